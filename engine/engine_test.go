package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/nbd/faulty"
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
		if step != nil {
			t.Fatal(step)
		}
	}
	want := make([]byte, testSize)
	copy(want[3_000:], pattern(7, 10_000))
	copy(want[testSize-4096:], pattern(8, 4096))
	clear(want[4_000:6_000])
	clear(want[7_000:8_000])
	for _, d := range r.disks {
		if got := d.bytes(t, 0, testSize); !slices.Equal(got, want) {
			t.Errorf("%s holds other bytes", d.name)
		}
		var kinds []faulty.Kind
		for _, op := range d.io.Ops() {
			kinds = append(kinds, op.Kind)
			if op.FUA != (op.Off == testSize-4096 || op.NoHole) {
				t.Errorf("%s: %+v", d.name, op)
			}
		}
		if !slices.Equal(kinds, []faulty.Kind{faulty.Write, faulty.Write, faulty.Zero, faulty.Zero, faulty.Flush}) {
			t.Errorf("%s saw %v", d.name, kinds)
		}
	}
	got := make([]byte, testSize)
	if err := b.ReadAt(ctx, got, 0); err != nil || !slices.Equal(got, want) {
		t.Errorf("read back other bytes, %v", err)
	}
	if n := len(r.disk("a").io.Ops()) + len(r.disk("c").io.Ops()); n != 10 {
		t.Errorf("the read did not go to the local replica: %d requests elsewhere", n)
	}
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
			if err := b.ReadAt(t.Context(), p, tc.off); !errors.Is(err, tc.read) {
				t.Errorf("read: %v", err)
			}
			if err := b.WriteAt(t.Context(), p, tc.off, false); !errors.Is(err, tc.write) {
				t.Errorf("write: %v", err)
			}
		})
	}
	if err := b.Zero(t.Context(), 1, 1<<63-1, 0); !errors.Is(err, nbd.EINVAL) {
		t.Errorf("a range whose end overflows: %v", err)
	}
	if ops := r.disk("a").io.Ops(); len(ops) != 0 {
		t.Errorf("the replica saw %v", ops)
	}
}

func broke(s State) bool { return s.Phase == PhaseError }

// expectDead fails the test if the engine does anything but EIO.
func (r *rig) expectDead(e *Engine) {
	r.t.Helper()
	ctx, b, p := r.t.Context(), e.Backend(), make([]byte, 512)
	_, extents := b.Extents(ctx, 0, 512)
	for what, err := range map[string]error{
		"write": b.WriteAt(ctx, p, 0, false), "read": b.ReadAt(ctx, p, 0), "flush": b.Flush(ctx),
		"trim": b.Trim(ctx, 0, 512, false), "zero": b.Zero(ctx, 0, 512, 0), "extents": extents,
	} {
		if !errors.Is(err, nbd.EIO) {
			r.t.Errorf("%s of a failed engine: %v", what, err)
		}
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
	if err := b.WriteAt(t.Context(), pattern(1, 4096), testRegion, false); !errors.Is(err, nbd.ENOSPC) {
		t.Fatalf("got %v", err)
	}
	for _, u := range undo {
		u()
	}
	if err := b.WriteAt(t.Context(), pattern(2, 4096), 5*testRegion, false); err != nil {
		t.Fatalf("a write elsewhere, after it: %v", err)
	}
	r.disk("a").io.Inject(failing(nbd.EIO, faulty.Read))
	p := make([]byte, 4096)
	if err := b.ReadAt(t.Context(), p, testRegion); !errors.Is(err, nbd.EIO) {
		t.Errorf("a read that failed was tried where members may differ: %v", err)
	}
	if err := b.ReadAt(t.Context(), p, 5*testRegion); err != nil || p[0] != 2 {
		t.Errorf("a read elsewhere: %v", err)
	}
	r.await(e, changed, "expulsion of the one that failed to read", inEpoch("b", "c"))
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, d := range r.disks[1:] {
		if m := d.marked(); !slices.Equal(m, []int64{1}) {
			t.Errorf("%s was left with marks %v, want those of the full region", d.name, m)
		}
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
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// jittered makes a session answer writes from goroutines of its own, in whatever order they happen to run.
func jittered(_ *disk, s *session) Replica { return &asyncSession{session: s} }

type asyncSession struct {
	*session
	wg sync.WaitGroup
	mu sync.Mutex // between the last WriteAsync and Close
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
			time.Sleep(time.Duration(rand.IntN(50)) * time.Microsecond) // disorder, not waiting
		}
		done(a.session.WriteAt(context.Background(), p, off, fua))
	})
}

func (a *asyncSession) Close() error {
	err := a.session.Close()
	a.mu.Lock()   // whoever comes later sees that it is closed
	a.mu.Unlock() //nolint:staticcheck // nothing is guarded by it but the order
	a.wg.Wait()
	return err
}

// An engine overtaken by another acknowledges nothing that the other would not find.
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
	if s.Reason != ReasonMemberFailed {
		t.Errorf("got %+v", s)
	}
	acknowledged.Range(func(off, b any) bool {
		p := make([]byte, 512)
		if err := e2.Backend().ReadAt(t.Context(), p, off.(int64)); err != nil {
			t.Fatal(err)
		}
		// The next write to this place may have been under way; it may be there or not.
		if next := byte(int(b.(byte)) + 1000); p[0] != b && p[0] != next {
			t.Errorf("at %d the successor finds %d, acknowledged was %d", off, p[0], b)
		}
		return true
	})
	r.sameBytes()
	if err := e2.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
