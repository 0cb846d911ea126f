package share

import (
	"context"
	"errors"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/share/nfsclient"
	"github.com/longhorn-lep/longhorn-manager/util/repeat"
)

// server is a running NFS server.
type server interface {
	// Ended is closed when the server has exited and is reaped. From then on Why returns the reason.
	Ended() <-chan struct{}
	Why() error
	// IsSuspended reports whether the server's process was stopped by a signal or a debugger. It must return at once.
	IsSuspended() bool
	// Terminate requests that the server exits in order. Kill kills it.
	Terminate() error
	Kill() error
}

// supervisor keeps a server running and checks it and its volume.
type supervisor struct {
	watch watch
	// now is the time since some fixed moment. It advances while this process is stopped and while the machine sleeps.
	now   func() time.Duration
	start func() (server, error)
	// lookup and null must return within timing.limit. check, grow and size may take as long as the volume takes.
	lookup, null func(context.Context) error
	check        func(write bool) error
	size         func() (int64, error)
	grow         func() error
	// grown receives the result of each attempt to grow the file system; nil: it has grown.
	grown func(error)
	// serving is called when clients start or cease to be served.
	serving func(bool)
	// afterStep is called once per timing.maxStepInterval or more often.
	afterStep func()
	log       *logrus.Entry

	// failed receives the reason when clients can no longer be served; nil: only this supervisor detects that.
	failed <-chan error

	server    server
	outcomes  chan outcome
	sizeBytes int64 // to which the file system was grown
	growing   bool
	growAfter time.Duration // not tried before this time; after a failure
	growError repeat.Filter // of the last attempt; empty: it succeeded
	wasServed bool
	probeErr  error // the result of the last probe
}

// outcome applies the result of a background task; the main loop calls it.
type outcome func(now time.Duration) ([]action, error)

// run serves until ctx is done, when it returns nil, or until it must stop. It leaves the server running, if there is
// one: see stop.
func (s *supervisor) run(ctx context.Context) error {
	taskCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.outcomes = make(chan outcome)
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer s.setServed(false)
	for {
		var received outcome
		var ended <-chan struct{}
		if s.server != nil {
			ended = s.server.Ended()
		}
		stopping := false
		select {
		case err := <-s.failed:
			return err
		case <-ctx.Done():
			stopping = true
		case <-timer.C:
		case received = <-s.outcomes:
		case <-ended:
			received = s.serverExited
		}
		now := s.now()
		if err := s.watch.checkStall(now); err != nil || stopping {
			return err
		}
		if err := s.handle(taskCtx, now, received); err != nil {
			return err
		}
		timer.Reset(s.watch.due(now) - now)
	}
}

// handle applies an outcome and executes the resulting actions.
func (s *supervisor) handle(ctx context.Context, now time.Duration, received outcome) error {
	if received != nil {
		acts, err := received(now)
		if err != nil {
			return err
		}
		if err := s.do(ctx, acts); err != nil {
			return err
		}
	}
	if s.server != nil && s.watch.needsStateCheck(now) {
		if err := s.checkState(ctx, now); err != nil {
			return err
		}
	}
	acts, err := s.watch.step(now)
	if err != nil {
		return err
	}
	if err := s.do(ctx, acts); err != nil {
		return err
	}
	s.setServed(s.watch.serving(now))
	s.afterStep()
	return nil
}

// errSuspended is why a server is killed that another process has stopped.
var errSuspended = errors.New("its process is suspended by a signal or a debugger (state T or t)")

// checkState checks whether the server's process runs.
func (s *supervisor) checkState(ctx context.Context, now time.Duration) error {
	acts := s.watch.stateChecked(now, s.server.IsSuspended())
	if len(acts) > 0 {
		s.probeErr = errSuspended
	}
	return s.do(ctx, acts)
}

// serverExited is the outcome that the server has exited.
func (s *supervisor) serverExited(now time.Duration) ([]action, error) {
	s.log.WithError(s.server.Why()).Warn("The NFS server has exited")
	s.server = nil
	return nil, s.watch.exited(now)
}

func (s *supervisor) do(ctx context.Context, acts []action) error {
	for _, a := range acts {
		switch a {
		case startServer:
			server, err := s.start()
			if err != nil {
				return err // another attempt would fail in the same way
			}
			s.server = server
		case killServer:
			s.log.WithError(s.probeErr).Warn("The NFS server does not answer. The share manager kills it")
			if err := s.server.Kill(); err != nil {
				return err
			}
		case probeLookup:
			s.probe(ctx, s.lookup)
		case probeNull:
			s.probe(ctx, s.null)
		case checkVolume, writeVolume:
			s.checkVolume(ctx, a == writeVolume)
		}
	}
	return nil
}

// runInBackground runs f in the background, and passes its outcome to the main loop while that loop runs.
func (s *supervisor) runInBackground(ctx context.Context, f func() outcome) {
	go func() {
		result := f()
		select {
		case s.outcomes <- result:
		case <-ctx.Done():
		}
	}()
}

func (s *supervisor) probe(ctx context.Context, ask func(context.Context) error) {
	number := s.watch.number
	s.runInBackground(ctx, func() outcome {
		err := ask(ctx)
		return func(now time.Duration) ([]action, error) {
			if s.watch.phase.hasAnswered() && nfsclient.IsBusy(err) {
				err = nil
			}
			s.probeErr = err
			if err != nil && s.watch.phase.hasAnswered() {
				s.log.WithError(err).Warn("The NFS server did not answer")
			}
			return s.watch.probed(now, number, err), nil
		}
	})
}

// checkVolume checks the volume, and whether its device has grown.
func (s *supervisor) checkVolume(ctx context.Context, write bool) {
	s.runInBackground(ctx, func() outcome {
		err := s.check(write)
		size, sizeErr := int64(0), err
		if err == nil {
			size, sizeErr = s.size()
		}
		return func(now time.Duration) ([]action, error) {
			if sizeErr == nil && size > s.sizeBytes && !s.growing && now >= s.growAfter {
				s.growTo(ctx, size)
			}
			return nil, s.watch.checked(now, err)
		}
	})
}

// growRetry is how long after a failure the next attempt to grow the file system starts: the cause may have
// disappeared, such as a slow member.
const growRetry = time.Minute

// growTo grows the file system. There is no second request to grow it, so a failed attempt is repeated.
func (s *supervisor) growTo(ctx context.Context, size int64) {
	s.growing = true
	s.runInBackground(ctx, func() outcome {
		err := s.grow()
		return func(now time.Duration) ([]action, error) {
			s.growing = false
			s.grown(err)
			log, isNew := s.log.WithField("sizeBytes", size), s.growError.NoteError(err)
			if err != nil {
				s.growAfter = now + growRetry
				if isNew { // once, not every minute
					log.WithError(err).Warn("The file system cannot grow to fill its device. The share manager tries again in a minute")
				}
				return nil, nil
			}
			s.sizeBytes = size
			log.Info("The file system has grown to fill its device")
			return nil, nil
		}
	})
}

func (s *supervisor) setServed(served bool) {
	if served == s.wasServed {
		return
	}
	s.wasServed = served
	s.serving(served)
	if served {
		s.log.Info("Clients are served")
	} else {
		s.log.Info("Clients are no longer served")
	}
}

// stop stops the server. If request is positive, stop first requests that the server exits, and waits for at most that
// long: the server then records its clients for a successor. After that, stop kills it, and waits for at most kill.
func (s *supervisor) stop(request, kill time.Duration) {
	if s.server == nil {
		return
	}
	if request > 0 && s.server.Terminate() == nil && s.hasEnded(request) {
		return
	}
	if err := s.server.Kill(); err != nil {
		s.log.WithError(err).Error("The NFS server cannot be killed")
	}
	if !s.hasEnded(kill) {
		s.log.Error("The NFS server was killed but has not exited: it waits for the volume")
	}
}

// isStopped reports whether there is no server.
func (s *supervisor) isStopped() bool {
	if s.server == nil {
		return true
	}
	select {
	case <-s.server.Ended():
		return true
	default:
		return false
	}
}

func (s *supervisor) hasEnded(limit time.Duration) bool {
	select {
	case <-s.server.Ended():
		return true
	case <-time.After(limit):
		return false
	}
}
