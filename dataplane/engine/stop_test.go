package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// errDeviceInUse is the error of a frontend with users.
var errDeviceInUse = errors.New("the device is in use")

func TestStopClearsAllMarksAndLeavesNothing(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	require.NoError(t, e.Backend().Zero(t.Context(), 0, testSize, 0))
	r.expectMarks([]int64{0, 1, 2, 3, 4, 5, 6, 7})
	for range 2 {
		require.NoError(t, e.Stop(t.Context()))
	}
	r.expectMarks(nil)
	for _, d := range r.disks {
		<-d.current.Done()
	}
	s := e.State()
	assert.Equal(t, PhaseStopped, s.Phase)
	assert.ErrorIs(t, e.Backend().ReadAt(t.Context(), make([]byte, 512), 0), nbd.ESHUTDOWN, "read after the stop")
}

func TestStopThatTakesTooLongCutsTheConnections(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	g := faulty.NewGate()
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Gate: g})
	wrote := make(chan error, 1)
	go func() { wrote <- e.Backend().WriteAt(context.Background(), pattern(1, 512), 0, false) }()
	<-g.Arrived()
	for len(r.disk("a").marked()) == 0 { // until the write has reached both members
		time.Sleep(200 * time.Microsecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, e.Stop(ctx), ErrUnclean)
	assert.Error(t, <-wrote, "the write was acknowledged")
	r.expectMarks([]int64{0})
}

// frontendStub simulates a device.
type frontendStub struct {
	inUse, fail error
	backend     nbd.Backend
	stopped     int
}

func (f *frontendStub) Start(_ context.Context, volume string, _ int64, b nbd.Backend) (string, error) {
	f.backend = b
	return "/dev/test/" + volume, f.fail
}

func (f *frontendStub) Stop(context.Context) error {
	f.stopped++
	return f.inUse
}

func TestStopIsRefusedWhileTheDeviceIsInUse(t *testing.T) {
	r := newRig(t, "a", "b")
	f := &frontendStub{inUse: errDeviceInUse}
	e, changed := r.run(1, func(c *Config) { c.Frontend = f })
	s := e.State()
	assert.Equal(t, "/dev/test/v", s.Endpoint)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, ctx := range []context.Context{t.Context(), over} {
		require.ErrorIs(t, e.Stop(ctx), errDeviceInUse)
		s := e.State()
		assert.Equal(t, PhaseRunning, s.Phase)
	}
	assert.NoError(t, f.backend.WriteAt(t.Context(), pattern(1, 512), 0, false), "write after a refused stop")
	// A failed engine also keeps its device while it is in use.
	for _, d := range r.disks {
		_ = d.current.Close()
	}
	r.await(e, changed, "failure", broke)
	require.ErrorIs(t, e.Stop(t.Context()), errDeviceInUse)
	s = e.State()
	assert.Equal(t, PhaseError, s.Phase)
	f.inUse = nil
	require.NoError(t, e.Stop(t.Context()))
	s = e.State()
	assert.Equal(t, PhaseStopped, s.Phase)
	assert.Empty(t, s.Endpoint)
	assert.Equal(t, 4, f.stopped)
}

// dirtyFrontend simulates a device with data that was not written back: it gives the data to the engine before it
// stops.
type dirtyFrontend struct {
	frontendStub
	written chan error // the result of the write of that data
}

func (f *dirtyFrontend) Stop(ctx context.Context) error {
	f.written <- f.backend.WriteAt(context.Background(), pattern(1, 4096), 0, false)
	return f.frontendStub.Stop(ctx)
}

// The device's last data waits for an epoch that is never recorded. When the time is over, or the stop is forced, the
// data is lost, and the engine ends.
func TestStopWhoseDeviceCannotWriteBackEnds(t *testing.T) {
	for _, byForce := range []bool{false, true} {
		t.Run(fmt.Sprintf("by force: %t", byForce), func(t *testing.T) {
			r := newRig(t, "a", "b")
			f := &dirtyFrontend{written: make(chan error, 1)}
			e, changed := r.run(1, func(c *Config) { c.Frontend = f })
			r.api.cut(true)
			_ = r.disk("b").current.Close()
			r.await(e, changed, "proposal", proposed)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stopped := make(chan error, 1)
			go func() { stopped <- e.Stop(ctx) }()
			for len(r.disk("a").marked()) == 0 { // until the write has reached the other member
				time.Sleep(100 * time.Microsecond)
			}
			r.expectUnanswered(stopped)
			if byForce {
				e.Interrupt()
			} else {
				cancel()
				r.stepUntil(func() bool { return len(stopped) > 0 })
			}
			assert.ErrorIs(t, r.answer(stopped), ErrUnclean)
			assert.Error(t, <-f.written, "the data was acknowledged")
			s := e.State()
			assert.Equal(t, PhaseStopped, s.Phase)
			r.disks = r.disks[:1]
			r.expectMarks([]int64{0})
		})
	}
}

func TestAFrontendThatFailsIsAReason(t *testing.T) {
	r := newRig(t, "a")
	f := &frontendStub{fail: errors.New("no loop device")}
	e, changed := r.start(1, func(c *Config) { c.Frontend = f })
	s := r.await(e, changed, "proposal", proposed)
	require.NoError(t, e.RecordEpoch("s1", s.ProposedEpoch, nil))
	s = r.await(e, changed, "end", settled)
	assert.Equal(t, PhaseError, s.Phase)
	assert.Equal(t, ReasonFrontendFailed, s.Reason)
	err := e.Stop(t.Context())
	require.NoError(t, err)
	assert.Zero(t, f.stopped, "stops of a frontend that never was")
}
