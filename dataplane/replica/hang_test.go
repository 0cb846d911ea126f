package replica

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// hang makes the disk not answer one kind of step on one name, until release is called. asked receives a value for each
// step that hangs.
func hang(t testing.TB, f *memfs.FS, kind, name string) (asked <-chan struct{}, release func()) {
	t.Helper()
	began, gate := make(chan struct{}, 64), make(chan struct{})
	f.Before(func(op memfs.Op) error {
		if op.Kind == kind && op.Name == name {
			began <- struct{}{}
			<-gate
		}
		return nil
	})
	open := false
	release = func() {
		if !open {
			open = true
			close(gate)
		}
	}
	t.Cleanup(release)
	return began, release
}

// expired is a context that has ended.
func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// abandon starts an operation, waits until the disk has received it, leaves, and returns the error.
func abandon(asked <-chan struct{}, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- do(ctx) }()
	<-asked
	cancel()
	return <-ended
}

// wantHang checks that an error reports what is known about the operation.
func wantHang(t *testing.T, err error, begun bool) {
	t.Helper()
	var h *HangError
	switch {
	case !errors.As(err, &h) || h.Started != begun || errors.Is(err, nbd.ErrUnknownOutcome) != begun:
		t.Errorf("error %v, want one of a disk that hangs, begun %t", err, begun)
	case !errors.Is(err, context.Canceled) || ReasonOf(err) != DiskNotResponding:
		t.Errorf("error %v with reason %q", err, ReasonOf(err))
	}
}

// stuckAdmission returns a replica with a disk that hangs while it records generation 5. The engine of that generation
// has left.
func stuckAdmission(t *testing.T) (r *Replica, release func()) {
	t.Helper()
	f, r := newMemReplica(t, 8*mib)
	require.NoError(t, admit(t, r, 3, "three").Close())
	asked, release := hang(t, f, "sync", metaTempName)
	wantHang(t, abandon(asked, func(ctx context.Context) error {
		s, err := r.Admit(ctx, 5, "five")
		assert.Nil(t, s, "the engine has left, and is in")
		return err
	}), true)
	return r, release
}

func TestAnAbandonedAdmissionAdmitsNoEngineWhenTheDiskAnswers(t *testing.T) {
	r, release := stuckAdmission(t)
	got := r.State()
	assert.Equal(t, int64(3), got.Generation)
	assert.False(t, got.Connected)
	assert.NoError(t, got.Failure)
	_, err := r.Admit(expired(), 6, "six")
	wantHang(t, err, false)
	wantHang(t, r.Fence(expired(), 7), false)
	wantHang(t, r.Close(expired()), false)
	assert.Len(t, r.lane.slots, 1, "calls are under way")
	release()
	waitFor(t, func() bool { return r.State().Generation == 5 })
	assert.False(t, r.State().Connected, "an engine is in that has left")
	require.NoError(t, admit(t, r, 5, "five").Close()) // the same engine may ask again
}

// A later admission runs later, and the result of the late answer decides it: here generation 4 would refuse generation
// 5.
func TestAnAdmissionBehindOneThatHangsIsDecidedAfterIt(t *testing.T) {
	r, release := stuckAdmission(t)
	lower, higher := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := r.Admit(context.Background(), 4, "four")
		lower <- err
	}()
	release()
	assert.ErrorIs(t, <-lower, ErrFenced, "generation 4 after 5")
	go func() {
		s, err := r.Admit(context.Background(), 6, "six")
		if err == nil {
			err = s.Close()
		}
		higher <- err
	}()
	require.NoError(t, <-higher)
	assert.Equal(t, int64(6), r.State().Generation)
}

// The disk is lost while an admission is recorded: a replica that has ended admits no engine.
func TestAnAdmissionDuringWhichTheDiskIsLostIsRefused(t *testing.T) {
	f, r := newMemReplica(t, 8*mib)
	asked, release := hang(t, f, "sync", metaTempName)
	admitted := make(chan error, 1)
	go func() {
		_, err := r.Admit(context.Background(), 1, "s")
		admitted <- err
	}()
	<-asked
	r.Lose(lost)
	release()
	err := <-admitted
	assert.ErrorIs(t, err, ErrFailed)
	assert.Equal(t, DiskUnmounted, ReasonOf(err))
	assert.False(t, r.State().Connected, "an engine is in")
}

func TestAnAbandonedFenceStillShutsOut(t *testing.T) {
	f, r := newMemReplica(t, 8*mib)
	s := admit(t, r, 1, "one")
	asked, release := hang(t, f, "sync", metaTempName)
	wantHang(t, abandon(asked, func(ctx context.Context) error { return r.Fence(ctx, 2) }), true)
	assert.ErrorIs(t, s.Err(), ErrFenced, "the older session")
	release()
	require.NoError(t, r.Fence(context.Background(), 2))
	_, err := r.Admit(context.Background(), 1, "one")
	assert.ErrorIs(t, err, ErrFenced, "the older engine again")
	require.NoError(t, s.Close())
}

// Epochs are compared in the order in which they are stored: the older epoch must not replace the newer one that hung.
func TestAnEpochBehindOneThatHangsIsComparedWithIt(t *testing.T) {
	f, r := newMemReplica(t, 8*mib)
	s := admit(t, r, 1, "s")
	asked, release := hang(t, f, "sync", metaTempName)
	newer, older := membership.NewEpoch(1, 3, []string{"a"}), membership.NewEpoch(1, 2, []string{"a", "b"})
	wantHang(t, abandon(asked, func(ctx context.Context) error { return recordIn(ctx, s, newer) }), true)
	wantHang(t, recordIn(expired(), s, older), false)
	behind := make(chan error, 1)
	go func() { behind <- recordIn(context.Background(), s, older) }()
	release()
	assert.ErrorIs(t, <-behind, nbd.EINVAL, "the older epoch")
	got := r.State().Epoch
	assert.True(t, got.Equal(newer), "epoch %s", got)
}

func recordIn(ctx context.Context, s *Session, e membership.Epoch) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = s.Control(ctx, membership.OpRecordEpoch, b)
	return err
}

// The next engine waits for the operations that the older engine started, even if the older engine no longer waits for
// them.
func TestATakeoverWaitsForAControlRequestThatWasAbandoned(t *testing.T) {
	f, r := newMemReplica(t, 8*mib)
	old := admit(t, r, 1, "one")
	asked, release := hang(t, f, "sync", metaTempName)
	wantHang(t, abandon(asked, func(ctx context.Context) error {
		_, err := old.Control(ctx, membership.OpBeginRebuild, nil)
		return err
	}), true)
	ctx, cancel := context.WithCancel(context.Background())
	taken := make(chan error, 1)
	go func() {
		_, err := r.Admit(ctx, 2, "two")
		taken <- err
	}()
	<-old.Done()
	cancel()
	wantHang(t, <-taken, false)
	release()
	s := admit(t, r, 2, "two")
	assert.True(t, r.State().Rebuilding, "what had begun before the takeover is not there after it")
	require.NoError(t, s.Close())
	require.NoError(t, old.Close())
}

func TestTheMarksAreShownWhileTheyAreBeingCleared(t *testing.T) {
	f, r := newMemReplica(t, 8*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(context.Background(), make([]byte, 512), 0, false))
	asked, _ := hang(t, f, "write", intentName)
	wantHang(t, abandon(asked, func(ctx context.Context) error {
		_, err := s.Control(ctx, membership.OpClearIntents, regionsPayload(t, 0))
		return err
	}), true)
	assert.Empty(t, marks(t, s))
	got := askState(t, s)
	assert.Equal(t, int64(1), got.Generation)
}

func TestACloseThatHangsContinuesAndMayBeRequestedAgain(t *testing.T) {
	f, r := newMemReplica(t, 8*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(context.Background(), make([]byte, 512), 0, false))
	require.NoError(t, s.Close())
	asked, release := hang(t, f, "datasync", dataName)
	wantHang(t, abandon(asked, r.Close), true)
	wantHang(t, r.Close(expired()), false)
	_, err := r.View()
	assert.ErrorIs(t, err, ErrClosed, "a view of a replica that is being closed")
	release()
	require.NoError(t, r.Close(context.Background()))
	openReplica(t, f, "/disk/replicas/r", testSpec("uid-1", 8*mib), testBoot)
}

func TestASessionIsClosedInBoundedTimeAndKeepsTheNextOneOutUntilItsRequestHasEnded(t *testing.T) {
	f := memfs.New()
	f.MkdirAll("/disk/replicas")
	spec := testSpec("uid-1", 8*mib)
	require.NoError(t, Create(f, "/disk/replicas/r", spec))
	fake := clocktesting.NewFakeClock(time.Unix(1000, 0))
	r, err := Open(f, "/disk/replicas/r", spec, Options{BootID: testBoot, Clock: fake})
	require.NoError(t, err)
	s := admit(t, r, 1, "one")
	asked, release := hang(t, f, "write", dataName)
	wrote, closed := make(chan error, 1), make(chan error, 1)
	go func() { wrote <- s.WriteAt(context.Background(), stampBlock(1), 0, false) }()
	<-asked
	since, _ := r.StuckSince()
	assert.True(t, since.IsZero(), "stuck since %v at the first look", since)
	fake.Step(time.Second)
	since, what := r.StuckSince()
	assert.WithinDuration(t, time.Unix(1000, 0), since, 0)
	assert.NotEmpty(t, what)
	go func() { closed <- s.Close() }()
	waitFor(t, fake.HasWaiters)
	r.Lose(lost) // does not wait either
	fake.Step(closeWait)
	err = <-closed
	assert.ErrorIs(t, err, ErrBusy)
	assert.Equal(t, DiskNotResponding, ReasonOf(err))
	wantHang(t, r.Close(expired()), false)
	release()
	<-wrote
	require.NoError(t, s.Close())
	require.NoError(t, r.Close(context.Background()))
	since, what = r.StuckSince()
	assert.True(t, since.IsZero(), "stuck since %v in %q when all has ended", since, what)
}

func TestTheSameSessionComesBackOnlyWhenItsRequestHasEnded(t *testing.T) {
	r := newHostReplica(t, mib)
	first := admit(t, r, 1, "s")
	inside, err := first.begin() // a request that hangs in the disk
	require.NoError(t, err)
	close(first.closed) // its owner has closed it, and no longer waits
	first.end(ErrClosed)
	_, err = r.View()
	assert.ErrorIs(t, err, ErrInUse, "a view beside a request")
	for range 20 { // if several have ended, chance decides which is seen first
		_, _, err := r.clearTheWay(expired(), 1, "s")
		assert.Error(t, err, "let in beside its own request")
	}
	first.gate.leave(inside)
	second := admit(t, r, 1, "s")
	require.NoError(t, second.Close())
}

func TestAGateDistinguishesLongRequestsFromShortOnes(t *testing.T) {
	g := newGate()
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	old, _ := g.enter()
	for i := range int64(5) {
		since := g.look(at(i))
		assert.Equal(t, since.IsZero(), i == 0, "look %d", i)
		if i > 0 {
			assert.WithinDuration(t, at(0), since, 0, "look %d", i)
		}
		busy, _ := g.enter()
		g.leave(busy)
	}
	g.leave(old)
	next, _ := g.enter()
	since := g.look(at(9))
	assert.True(t, since.IsZero(), "after the old one has left: %v", since)
	since = g.look(at(10))
	assert.WithinDuration(t, at(9), since, 0, "the next one")
	g.shut()
	assert.False(t, g.isDrained(), "drained with one inside")
	_, in := g.enter()
	assert.False(t, in, "let in when shut")
	g.leave(next)
	assert.True(t, g.isDrained(), "not drained")
}
