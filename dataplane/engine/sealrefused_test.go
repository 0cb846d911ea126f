package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

// expectAllMembers fails the test if a member of the engine has failed. It stops the engine first, so that the answers
// that came late are judged.
func (r *rig) expectAllMembers(e *Engine, names ...string) {
	r.t.Helper()
	require.NoError(r.t, e.Stop(r.t.Context()))
	s := e.State()
	assert.Equal(r.t, names, s.Epoch.Members)
	for _, m := range s.Members {
		assert.Equal(r.t, ModeRW, m.Mode, "%s: %s", m.Name, m.Error)
	}
}

// All disks are slow. The members merge the border away before they seal it, so each of them refuses.
func TestAPointThatIsGivenUpWhileItIsSealedExpelsNoMember(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	e, _ := r.run(1)
	require.NoError(t, writeOnes(e.Backend()))
	var arrived []<-chan struct{}
	for _, d := range r.disks {
		arrived = append(arrived, r.holdOperation(d.name, points.OpSeal))
	}
	line, p := r.intend()
	ended := make(chan error, 1)
	go func() {
		_, err := e.Snapshot(context.Background(), e.cfg.Session, line, p)
		ended <- err
	}()
	for _, a := range arrived {
		<-a
	}
	require.NoError(t, r.conclude(e, p, layers.ErrLate))
	require.ErrorIs(t, r.answer(ended), layers.ErrNotPrepared)
	for _, d := range r.disks {
		flushed, other := d.data.borders()
		require.Empty(t, append(flushed, other...), "%s did not merge the border away", d.name)
	}
	for _, release := range r.releases {
		release()
	}
	next, _ := r.snapshot(e)
	r.sameView(next, nil, "a", "b", "c")
	r.expectAllMembers(e, "a", "b", "c")
}

func TestAMemberThatRefusesToSealStays(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	e, _ := r.run(1)
	require.NoError(t, writeOnes(e.Backend()))
	r.disk("b").setControlErr(points.OpSeal, nbd.EINVAL)
	line, p := r.intend()
	_, err := e.Snapshot(t.Context(), e.cfg.Session, line, p)
	require.ErrorIs(t, err, layers.ErrNotPrepared)
	require.NoError(t, r.conclude(e, p, err))
	r.disk("b").setControlErr(points.OpSeal, nil)
	next, _ := r.snapshot(e)
	r.sameView(next, nil, "a", "b", "c")
	r.expectAllMembers(e, "a", "b", "c")
}

// A member that is full answers at once, because it has nothing to write. That does not make the others slow.
func TestAFullMemberDoesNotMakeTheOthersSlow(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	e, _ := r.run(1)
	require.NoError(t, writeOnes(e.Backend()))
	r.disk("b").setControlErr(points.OpSeal, nbd.ENOSPC)
	arrivedA, arrivedC := r.holdOperation("a", points.OpSeal), r.holdOperation("c", points.OpSeal)
	line, p := r.intend()
	ended := make(chan error, 1)
	go func() {
		_, err := e.Snapshot(context.Background(), e.cfg.Session, line, p)
		ended <- err
	}()
	<-arrivedA
	<-arrivedC
	require.Eventually(t, func() bool { return r.disk("b").count(points.OpSeal) > 0 }, time.Minute, time.Millisecond)
	for range 100 { // far more than a slow member has
		r.clock.Step(time.Second)
		time.Sleep(200 * time.Microsecond)
	}
	for _, release := range r.releases {
		release()
	}
	require.ErrorIs(t, r.answer(ended), layers.ErrNoRoom)
	r.expectAllMembers(e, "a", "b", "c")
}

// waitsForSwitch reports whether a disk has prepared for a point, and still puts changes below the border.
func (d *disk) waitsForSwitch() bool {
	d.data.mu.Lock()
	defer d.data.mu.Unlock()
	return d.data.prepared
}

// The API object may be out of reach for long, so the caller cannot give the point up.
func TestAfterAFailedAttemptNoMemberWaitsForTheSwitch(t *testing.T) {
	for name, op := range map[string]uint16{"prepare": points.OpPrepare, "switch": points.OpSwitch} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "a", "b", "c")
			e, _ := r.run(1)
			require.NoError(t, writeOnes(e.Backend()))
			d := r.disk("b")
			d.setControlErr(op, nbd.ENOSPC)
			d.before = func(o uint16) {
				if op == points.OpSwitch && o == op && d.count(op) > 0 {
					d.setControlErr(op, nil) // of the first request only
				}
			}
			line, p := r.intend()
			_, err := e.Snapshot(t.Context(), e.cfg.Session, line, p)
			require.Error(t, err)
			for _, d := range r.disks {
				require.Eventually(t, func() bool { return !d.waitsForSwitch() }, 10*time.Second, time.Millisecond, d.name)
			}
			require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(7, 8192), 0, false))
			require.NoError(t, r.conclude(e, p, err))
			r.sameBytes()
			d.setControlErr(op, nil)
			next, _ := r.snapshot(e)
			r.sameView(next, nil, "a", "b", "c")
			r.expectAllMembers(e, "a", "b", "c")
		})
	}
}
