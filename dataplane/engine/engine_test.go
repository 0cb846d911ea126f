package engine

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func failing(err error, kinds ...faulty.Kind) faulty.Rule {
	return faulty.Rule{Match: faulty.Of(kinds...), Err: err}
}

func TestChangesReachAllMembers(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.local = "b"
	e, _ := r.run(1)
	b := e.Backend()
	ctx := t.Context()
	for _, step := range []error{
		b.WriteAt(ctx, pattern(7, 10_000), 3_000, false),
		b.WriteAt(ctx, pattern(8, 4096), testSize-4096, true),
		b.Trim(ctx, 4_000, 2_000, false),
		b.Zero(ctx, 7_000, 1_000, nbd.ZeroNoHole|nbd.ZeroFUA),
		b.Flush(ctx),
	} {
		require.NoError(t, step)
	}
	want := make([]byte, testSize)
	copy(want[3_000:], pattern(7, 10_000))
	copy(want[testSize-4096:], pattern(8, 4096))
	clear(want[4_000:6_000])
	clear(want[7_000:8_000])
	for _, d := range r.disks {
		assert.Equal(t, want, d.bytes(t, 0, testSize), "%s holds other bytes", d.name)
		var kinds []faulty.Kind
		for _, op := range d.io.Ops() {
			kinds = append(kinds, op.Kind)
			assert.Equal(t, op.FUA, op.Off == testSize-4096 || op.NoHole, d.name)
		}
		assert.Equal(t, []faulty.Kind{faulty.Write, faulty.Write, faulty.Zero, faulty.Zero, faulty.Flush}, kinds, d.name)
	}
	got := make([]byte, testSize)
	err := b.ReadAt(ctx, got, 0)
	require.NoError(t, err)
	assert.Equal(t, want, got, "read back other bytes")
	assert.Equal(t, 10, len(r.disk("a").io.Ops())+len(r.disk("c").io.Ops()), "the read did not go to the local replica")
}

func TestRangesOutsideTheVolumeAreRefused(t *testing.T) {
	r := newRig(t, "a")
	e, _ := r.run(1)
	b := e.Backend()
	for _, tc := range []struct {
		name        string
		off, length int64
		read, write error
	}{
		{"past the end", testSize, 512, nbd.EINVAL, nbd.ENOSPC},
		{"across the end", testSize - 100, 512, nbd.EINVAL, nbd.ENOSPC},
		{"before the beginning", -512, 512, nbd.EINVAL, nbd.EINVAL},
		{"nothing", 0, 0, nbd.EINVAL, nbd.EINVAL},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := make([]byte, tc.length)
			assert.ErrorIs(t, b.ReadAt(t.Context(), p, tc.off), tc.read)
			assert.ErrorIs(t, b.WriteAt(t.Context(), p, tc.off, false), tc.write)
		})
	}
	assert.ErrorIs(t, b.Zero(t.Context(), 1, 1<<63-1, 0), nbd.EINVAL, "a range whose end overflows")
	assert.Empty(t, r.disk("a").io.Ops(), "the replica saw")
}

func broke(s State) bool { return s.Phase == PhaseError }

// expectDead fails the test if the engine returns anything but EIO.
func (r *rig) expectDead(e *Engine) {
	r.t.Helper()
	ctx, b, p := r.t.Context(), e.Backend(), make([]byte, 512)
	_, extents := b.Extents(ctx, 0, 512)
	for what, err := range map[string]error{
		"write": b.WriteAt(ctx, p, 0, false), "read": b.ReadAt(ctx, p, 0), "flush": b.Flush(ctx),
		"trim": b.Trim(ctx, 0, 512, false), "zero": b.Zero(ctx, 0, 512, 0), "extents": extents,
	} {
		assert.ErrorIs(r.t, err, nbd.EIO, "%s of a failed engine", what)
	}
}

func TestAllMembersFullIsTheUsersError(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	e, changed := r.run(1)
	b := e.Backend()
	var undo []func()
	for _, d := range r.disks {
		undo = append(undo, d.io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, testRegion, testRegion), Tear: 100, Err: nbd.ENOSPC}))
	}
	require.ErrorIs(t, b.WriteAt(t.Context(), pattern(1, 4096), testRegion, false), nbd.ENOSPC)
	for _, u := range undo {
		u()
	}
	require.NoError(t, b.WriteAt(t.Context(), pattern(2, 4096), 5*testRegion, false), "a write elsewhere")
	r.disk("a").io.Inject(failing(nbd.EIO, faulty.Read))
	p := make([]byte, 4096)
	assert.ErrorIs(t, b.ReadAt(t.Context(), p, testRegion), nbd.EIO, "a read that failed was tried where members may differ")
	err := b.ReadAt(t.Context(), p, 5*testRegion)
	require.NoError(t, err)
	assert.Equal(t, byte(2), p[0], "a read elsewhere")
	r.await(e, changed, "expulsion of the one that failed to read", inEpoch("b", "c"))
	require.NoError(t, e.Stop(t.Context()))
	for _, d := range r.disks[1:] {
		assert.Equal(t, []int64{1}, d.marked(), d.name)
	}
}

func TestOverlappingWritersLeaveEqualReplicas(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.local = "a"
	r.wrap = jittered
	e, _ := r.run(1)
	const writers, writes, span = 8, 150, 64 << 10
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(2, uint64(w)))
			for n := range writes {
				off := rnd.Int64N(span)
				length := 1 + rnd.Int64N(8192)
				var err error
				switch n % 10 {
				case 0:
					err = e.Backend().Zero(context.Background(), off, length, 0)
				case 1:
					err = e.Backend().Flush(context.Background())
				default:
					err = e.Backend().WriteAt(context.Background(), pattern(byte(1+w*writes+n), length), off, n%7 == 0)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	r.sameBytes()
	assert.NoError(t, e.Stop(t.Context()))
}

// jittered makes a session answer writes from goroutines of its own, in random order.
func jittered(_ *disk, s *session) Replica { return &asyncSession{session: s} }

type asyncSession struct {
	*session
	wg sync.WaitGroup
	mu sync.Mutex // held between the last WriteAsync and Close
}

func (a *asyncSession) WriteAsync(p []byte, off int64, fua bool, done func(error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if isClosed(a.Done()) {
		done(nbd.ErrNotSent)
		return
	}
	a.wg.Go(func() {
		if rand.IntN(4) == 0 {
			time.Sleep(time.Duration(rand.IntN(50)) * time.Microsecond) // creates disorder; nothing waits for it
		}
		done(a.session.WriteAt(context.Background(), p, off, fua))
	})
}

func (a *asyncSession) Close() error {
	err := a.session.Close()
	a.mu.Lock()   // a later caller sees that it is closed
	a.mu.Unlock() //nolint:staticcheck // it guards only the order
	a.wg.Wait()
	return err
}

// An engine that was overtaken by another engine acknowledges no write that the other engine would not find.
func TestTakeover(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	e1, changed1 := r.run(1)
	var acknowledged sync.Map
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				off := int64(w*1000+n%1000) * 512
				if err := e1.Backend().WriteAt(context.Background(), pattern(byte(n+1), 512), off, false); err != nil {
					return
				}
				acknowledged.Store(off, byte(n+1))
			}
		})
	}
	e2, _ := r.run(2)
	wg.Wait()
	s := r.await(e1, changed1, "failure", broke)
	assert.Equal(t, ReasonMemberFailed, s.Reason)
	acknowledged.Range(func(off, b any) bool {
		p := make([]byte, 512)
		require.NoError(t, e2.Backend().ReadAt(t.Context(), p, off.(int64)))
		// The next write to this place may have been under way, so its data may be present or not.
		next := byte(int(b.(byte)) + 1000)
		if p[0] != b {
			assert.Equal(t, next, p[0], "at %d, acknowledged was %d", off, b)
		}
		return true
	})
	r.sameBytes()
	assert.NoError(t, e2.Stop(t.Context()))
}
