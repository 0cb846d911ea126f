package replica

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/membership"
	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys/memfs"
)

// hang makes the disk not answer one kind of step on one name, until release is called. asked receives a value for each step that hangs.
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

// expired is a context that is over.
func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// abandon begins something, waits until the disk was asked, leaves, and returns the error.
func abandon(asked <-chan struct{}, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- do(ctx) }()
	<-asked
	cancel()
	return <-ended
}

// wantHang checks that an error says what is known of what was asked for.
func wantHang(t *testing.T, err error, begun bool) {
	t.Helper()
	var h *HangError
	switch {
	case !errors.As(err, &h) || h.Begun != begun || errors.Is(err, nbd.ErrUnknownOutcome) != begun:
		t.Errorf("error %v, want one of a disk that hangs, begun %t", err, begun)
	case !errors.Is(err, context.Canceled) || ReasonOf(err) != DiskNotResponding:
		t.Errorf("error %v with reason %q", err, ReasonOf(err))
	}
}

// stuckAdmission is a replica whose generation 5 the disk was asked to record, and whose engine has left.
func stuckAdmission(t *testing.T) (r *Replica, release func()) {
	t.Helper()
	f, r := newMemReplica(t, 8*mib)
	must(t, admit(t, r, 3, "three").Close())
	asked, release := hang(t, f, "sync", metaTempName)
	wantHang(t, abandon(asked, func(ctx context.Context) error {
		s, err := r.Admit(ctx, 5, "five")
		if s != nil {
			t.Error("the engine has left, and is in")
		}
		return err
	}), true)
	return r, release
}

func TestAnAdmissionThatIsAbandonedLetsNobodyInWhenTheDiskAnswers(t *testing.T) {
	r, release := stuckAdmission(t)
	if got := r.State(); got.Generation != 3 || got.Connected || got.Failure != nil {
		t.Errorf("state %+v", got)
	}
	_, err := r.Admit(expired(), 6, "six")
	wantHang(t, err, false)
	wantHang(t, r.Fence(expired(), 7), false)
	wantHang(t, r.Close(expired()), false)
	if got := len(r.lane.places); got != 1 {
		t.Errorf("%d calls are under way, want the one that hangs", got)
	}
	release()
	waitFor(t, func() bool { return r.State().Generation == 5 })
	if r.State().Connected {
		t.Error("an engine is in that has left")
	}
	must(t, admit(t, r, 5, "five").Close()) // the same engine may ask again
}

// What was asked for later comes later, and is decided by what the late answer has made: here generation 4 would turn 5 back.
func TestAnAdmissionBehindOneThatHangsIsDecidedAfterIt(t *testing.T) {
	r, release := stuckAdmission(t)
	lower, higher := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := r.Admit(context.Background(), 4, "four")
		lower <- err
	}()
	release()
	if err := <-lower; !errors.Is(err, ErrFenced) {
		t.Errorf("generation 4 after 5: %v", err)
	}
	go func() {
		s, err := r.Admit(context.Background(), 6, "six")
		if err == nil {
			err = s.Close()
		}
		higher <- err
	}()
	must(t, <-higher)
	if got := r.State().Generation; got != 6 {
		t.Errorf("generation %d", got)
	}
}

// The disk is lost while an admission is recorded: nobody is let in to a replica that has ended.
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
	if err := <-admitted; !errors.Is(err, ErrFailed) || ReasonOf(err) != DiskUnmounted {
		t.Errorf("error %v", err)
	}
	if r.State().Connected {
		t.Error("an engine is in")
	}
}

func TestAFenceThatIsAbandonedShutsOutAllTheSame(t *testing.T) {
	f, r := newMemReplica(t, 8*mib)
	s := admit(t, r, 1, "one")
	asked, release := hang(t, f, "sync", metaTempName)
	wantHang(t, abandon(asked, func(ctx context.Context) error { return r.Fence(ctx, 2) }), true)
	if !errors.Is(s.Err(), ErrFenced) {
		t.Errorf("the older session: %v", s.Err())
	}
	release()
	must(t, r.Fence(context.Background(), 2))
	if _, err := r.Admit(context.Background(), 1, "one"); !errors.Is(err, ErrFenced) {
		t.Errorf("the older engine again: %v", err)
	}
	must(t, s.Close())
}

// Epochs are compared in the order in which they are stored: the older one must not come over the newer one that hung.
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
	if err := <-behind; !errors.Is(err, nbd.EINVAL) {
		t.Errorf("the older epoch: %v", err)
	}
	if got := r.State().Epoch; !got.Equal(newer) {
		t.Errorf("epoch %s", got)
	}
}

func recordIn(ctx context.Context, s *Session, e membership.Epoch) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = s.Control(ctx, membership.OpRecordEpoch, b)
	return err
}

// The next engine waits for what the older one has begun, also when the older one does not wait for it any more.
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
	if !r.State().Rebuilding {
		t.Error("what had begun before the takeover is not there after it")
	}
	must(t, s.Close())
	must(t, old.Close())
}

func TestTheMarksAreShownWhileTheyAreBeingCleared(t *testing.T) {
	f, r := newMemReplica(t, 8*mib)
	s := admit(t, r, 1, "s")
	must(t, s.WriteAt(context.Background(), make([]byte, 512), 0, false))
	asked, _ := hang(t, f, "write", intentName)
	wantHang(t, abandon(asked, func(ctx context.Context) error {
		_, err := s.Control(ctx, membership.OpClearIntents, regionsPayload(t, 0))
		return err
	}), true)
	if got := marks(t, s); len(got) != 0 {
		t.Errorf("marks %v", got)
	}
	if got := askState(t, s); got.Generation != 1 {
		t.Errorf("state %+v", got)
	}
}

func TestAClosingThatHangsGoesOnAndMayBeAskedForAgain(t *testing.T) {
	f, r := newMemReplica(t, 8*mib)
	s := admit(t, r, 1, "s")
	must(t, s.WriteAt(context.Background(), make([]byte, 512), 0, false))
	must(t, s.Close())
	asked, release := hang(t, f, "datasync", dataName)
	wantHang(t, abandon(asked, r.Close), true)
	wantHang(t, r.Close(expired()), false)
	if _, err := r.View(); !errors.Is(err, ErrClosed) {
		t.Errorf("a view of a replica that is being closed: %v", err)
	}
	release()
	must(t, r.Close(context.Background()))
	openReplica(t, f, "/disk/replicas/r", testSpec("uid-1", 8*mib), testBoot)
}

func TestASessionIsClosedInBoundedTimeAndKeepsTheNextOneOutUntilItsRequestHasEnded(t *testing.T) {
	f := memfs.New()
	f.MkdirAll("/disk/replicas")
	spec := testSpec("uid-1", 8*mib)
	must(t, Create(f, "/disk/replicas/r", spec))
	fake := clocktesting.NewFakeClock(time.Unix(1000, 0))
	r, err := Open(f, "/disk/replicas/r", spec, Options{BootID: testBoot, Clock: fake})
	must(t, err)
	s := admit(t, r, 1, "one")
	asked, release := hang(t, f, "write", dataName)
	wrote, closed := make(chan error, 1), make(chan error, 1)
	go func() { wrote <- s.WriteAt(context.Background(), stampBlock(1), 0, false) }()
	<-asked
	if since, _ := r.StuckSince(); !since.IsZero() {
		t.Errorf("stuck since %v at the first look", since)
	}
	fake.Step(time.Second)
	if since, what := r.StuckSince(); !since.Equal(time.Unix(1000, 0)) || what == "" {
		t.Errorf("stuck since %v in %q", since, what)
	}
	go func() { closed <- s.Close() }()
	waitFor(t, fake.HasWaiters)
	r.Lose(lost) // does not wait either
	fake.Step(closeWait)
	if err := <-closed; !errors.Is(err, ErrBusy) || ReasonOf(err) != DiskNotResponding {
		t.Errorf("close: %v", err)
	}
	wantHang(t, r.Close(expired()), false)
	release()
	<-wrote
	must(t, s.Close())
	must(t, r.Close(context.Background()))
	if since, what := r.StuckSince(); !since.IsZero() {
		t.Errorf("stuck since %v in %q when all has ended", since, what)
	}
}

func TestTheSameSessionComesBackOnlyWhenItsRequestHasEnded(t *testing.T) {
	r := newHostReplica(t, mib)
	first := admit(t, r, 1, "s")
	inside, err := first.begin() // a request that hangs in the disk
	must(t, err)
	close(first.closed) // its owner has let go, and waits no more
	first.end(ErrClosed)
	if _, err := r.View(); !errors.Is(err, ErrInUse) {
		t.Errorf("a view beside a request: %v", err)
	}
	for range 20 { // which of what is over is seen first is left to chance
		if _, _, err := r.clearTheWay(expired(), 1, "s"); err == nil {
			t.Error("let in beside its own request")
		}
	}
	first.gate.leave(inside)
	second := admit(t, r, 1, "s")
	must(t, second.Close())
}

func TestAGateTellsRequestsThatStayFromThoseThatComeAndGo(t *testing.T) {
	g := newGate()
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	old, _ := g.enter()
	for i := range int64(5) {
		if since := g.look(at(i)); (i == 0) != since.IsZero() || i > 0 && !since.Equal(at(0)) {
			t.Errorf("look %d: %v", i, since)
		}
		busy, _ := g.enter()
		g.leave(busy)
	}
	g.leave(old)
	next, _ := g.enter()
	if since := g.look(at(9)); !since.IsZero() {
		t.Errorf("after the old one has left: %v", since)
	}
	if since := g.look(at(10)); !since.Equal(at(9)) {
		t.Errorf("the next one: %v", since)
	}
	g.shut()
	if g.isDrained() {
		t.Error("drained with one inside")
	}
	if _, in := g.enter(); in {
		t.Error("let in when shut")
	}
	g.leave(next)
	if !g.isDrained() {
		t.Error("not drained")
	}
}
