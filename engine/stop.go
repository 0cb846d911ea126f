package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/membership"
	"github.com/longhorn-lep/longhorn-manager/nbd"
)

// Stop removes the device, waits for what is under way, flushes, clears the intent marks and closes all connections.
//
// While the device is in use it returns ErrInUse and the engine goes on as before. With any other result except a failing
// frontend the engine has ended: nil after a clean end or after a failure that State told of before, ErrUnclean when the last
// flush could not be had. When ctx ends first, connections are cut and the end is unclean. It may be repeated.
func (e *Engine) Stop(ctx context.Context) error {
	e.stopMu.Lock()
	defer e.stopMu.Unlock()
	if e.ended {
		return nil
	}
	before := e.beginStop()
	if before.Phase == PhaseStarting {
		e.fail(failure{reason: ReasonInterrupted, err: errors.New("stopped while starting")})
		<-e.looped
	}
	if err := e.stopFrontend(ctx); err != nil {
		e.resume(before)
		return fmt.Errorf("stop the frontend of %s: %w", e.cfg.Volume, err)
	}
	clean := before.Phase != PhaseRunning
	var err error
	if !clean {
		err = e.finish(ctx)
	}
	e.cancel()
	e.tasks.Wait()
	e.ended = true
	e.update(func(s *State) { s.Phase, s.Endpoint = PhaseStopped, "" })
	if err != nil {
		e.log.WithError(err).Warn("Engine stopped uncleanly")
		return fmt.Errorf("stop %s: %w: %w", e.cfg.Name, ErrUnclean, err)
	}
	e.log.Info("Engine stopped")
	return nil
}

// beginStop shows that the engine stops and returns the state before.
func (e *Engine) beginStop() State {
	before := e.State()
	if before.Phase == PhaseRunning {
		e.update(func(s *State) {
			if s.Phase == PhaseRunning {
				s.Phase = PhaseStopping
			}
		})
	}
	return before
}

// resume takes beginStop back, unless the engine has failed since.
func (e *Engine) resume(before State) {
	e.update(func(s *State) {
		if s.Phase == PhaseStopping {
			s.Phase = before.Phase
		}
	})
}

func (e *Engine) stopFrontend(ctx context.Context) error {
	e.mu.Lock()
	started := e.frontended
	e.mu.Unlock()
	if !started {
		return nil
	}
	if err := e.cfg.Frontend.Stop(ctx); err != nil {
		return err
	}
	e.mu.Lock()
	e.frontended = false
	e.mu.Unlock()
	return nil
}

// finish ends the service of a running engine: no new request, those under way answered, all flushed, all marks cleared. The
// marks come last, so a failure at any line leaves what may differ marked.
func (e *Engine) finish(ctx context.Context) error {
	stop := context.AfterFunc(ctx, e.cancel) // closes the connections, so that every wait below ends
	defer stop()
	e.mirror.gate.shut(nbd.ESHUTDOWN)
	e.mirror.gate.wait()
	close(e.quit)
	<-e.looped
	if e.ctx.Err() != nil {
		return errors.New("the engine had failed or the time was over")
	}
	return e.mirror.clearAll()
}

// inForce shows an epoch that the API object and all members hold.
func (e *Engine) inForce(epoch membership.Epoch) {
	e.update(func(s *State) { s.Epoch = epoch })
}
