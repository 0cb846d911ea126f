package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// A read fails at the first member and hangs in the second. The third member shows that the second is slow, as for any
// read that hangs.
func TestAReadThatFailedDoesNotWaitForAnotherMemberThatHangs(t *testing.T) {
	for _, local := range []string{"a", ""} {
		t.Run("local: "+local, func(t *testing.T) {
			r := newRig(t, "a", "b", "c")
			r.local = local
			e, _ := r.run(1)
			b := e.Backend()
			require.NoError(t, b.WriteAt(t.Context(), pattern(1, 512), 0, false))
			g := faulty.NewGate()
			t.Cleanup(g.Open)
			r.disk("a").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Err: nbd.EIO})
			r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Gate: g})
			var got [512]byte
			read := make(chan error, 1)
			go func() { read <- b.ReadAt(context.Background(), got[:], 0) }()
			<-g.Arrived()
			r.stepUntil(func() bool { return len(read) > 0 })
			require.NoError(t, <-read)
			assert.Equal(t, [512]byte(pattern(1, 512)), got)
			r.stepUntil(func() bool { return inEpoch("c")(e.State()) })
			r.awaitQueued(e, 0)
		})
	}
}

// A read hangs in the local disk after it failed at another member. It is left behind there like a read that went to
// that disk first.
func TestAReadThatFailedIsLeftBehindInALocalDiskThatHangs(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.local = "b"
	e, _ := r.run(1)
	require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(1, 512), 0, false))
	g := faulty.NewGate()
	t.Cleanup(g.Open)
	r.disk("a").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Times: 1, Err: nbd.EIO})
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Gate: g})
	e.mirror.roster.Load().find("b").hanging.Add(1) // so that the next read goes to a first
	read := readLate(e, 0, 512)
	<-g.Arrived()
	r.stepUntil(func() bool { return len(read.answered) > 0 })
	answer := <-read.answered
	require.NoError(t, answer.err)
	assert.Equal(t, pattern(1, 512), answer.got)
	assert.Empty(t, read.returned, "the disk has not answered")
	r.awaitQueued(e, 0)
	g.Open()
	assert.True(t, <-read.returned)
}

// The first member cannot read one sector, and the second is slow. The first can read other sectors. This must not
// expel the second, because only the second has that sector.
func TestAMemberThatCannotReadProvesNoOtherSlow(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	b := e.Backend()
	require.NoError(t, b.WriteAt(t.Context(), pattern(1, 8192), 0, false))
	g := faulty.NewGate()
	t.Cleanup(g.Open)
	r.disk("a").io.Inject(faulty.Rule{Match: func(op faulty.Op) bool { return op.Kind == faulty.Read && op.Length > probeBytes }, Err: nbd.EIO})
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Times: 1, Gate: g})
	got := make([]byte, 8192)
	read := make(chan error, 1)
	go func() { read <- b.ReadAt(context.Background(), got, 0) }()
	<-g.Arrived()
	began := r.clock.Now()
	r.stepUntil(func() bool { return r.clock.Since(began) > 3*membership.SlowAfter })
	assert.Empty(t, read)
	assert.True(t, inEpoch("a", "b")(e.State()))
	g.Open()
	require.NoError(t, r.answer(read))
	assert.Equal(t, pattern(1, 8192), got)
	r.stepUntil(func() bool { return inEpoch("b")(e.State()) })
}

// After a change for which no member had space, members may differ. A read that fails there is not tried on another
// member, because later reads could have other answers. But a member with a lost connection answers no later read.
func TestAReadOfAnUnequalRegionIsRepeatedElsewhereOnlyWhenItsMemberIsLost(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost: %t", lost), func(t *testing.T) {
			r := newRig(t, "a", "b")
			var loses atomic.Bool
			r.wrap = func(d *disk, s *session) Replica {
				if d.name == "a" {
					return &lostByRead{session: s, loses: &loses}
				}
				return s
			}
			e, changed := r.run(1)
			b := e.Backend()
			for name, stored := range map[string]int{"a": 512, "b": 1024} {
				r.disk(name).io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Times: 1, Tear: stored, Err: nbd.ENOSPC})
			}
			require.ErrorIs(t, b.WriteAt(t.Context(), pattern(2, 4096), 0, false), nbd.ENOSPC)
			got := make([]byte, 4096)
			if !lost {
				r.disk("a").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Times: 1, Err: nbd.EIO})
				require.ErrorIs(t, b.ReadAt(t.Context(), got, 0), nbd.EIO)
				assert.True(t, inEpoch("a", "b")(e.State()))
				return
			}
			loses.Store(true)
			require.NoError(t, b.ReadAt(t.Context(), got, 0))
			assert.Equal(t, r.disk("b").bytes(t, 0, 4096), got)
			r.await(e, changed, "epoch", inEpoch("b"))
		})
	}
}

// lostByRead loses its connection during a read.
type lostByRead struct {
	*session
	loses *atomic.Bool
}

func (l *lostByRead) ReadAt(ctx context.Context, p []byte, off int64) error {
	if l.loses.Load() {
		_ = l.session.Close()
	}
	return l.session.ReadAt(ctx, p, off)
}
