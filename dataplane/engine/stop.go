package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// hangGrace limits two waits: after the end of its time, the engine waits for a frontend to stop. After the connections
// were closed, it waits for requests to end. A request that takes longer hangs in a disk of this machine. It is left
// behind, and ends with the disk.
const hangGrace = 5 * time.Second

// errStopping is the reason why an operation ended with the engine.
var errStopping = errors.New("the engine is stopping")

// Stop removes the device, waits for current requests, flushes, clears the intent marks and closes all connections.
//
// If the frontend cannot stop, above all because the device is in use, Stop returns the frontend's error, and the engine
// continues as before. With any other result, the engine has ended. nil: the stop was clean, or State had already shown
// a failure. ErrUnclean: the last flush failed, or a member that failed is still in the recorded epoch. If ctx ends
// first, connections are cut and the stop is unclean. The data that the device had not written back by then, and a
// moment later, is lost with it. Stop may be repeated.
func (e *Engine) Stop(ctx context.Context) error {
	e.stopMu.Lock()
	defer e.stopMu.Unlock()
	if e.ended {
		return nil
	}
	before := e.beginStop()
	if before.Phase == PhaseStarting {
		e.fail(failure{reason: ReasonInterrupted, err: errors.New("the engine was stopped before it had started")})
		e.await(ctx, e.loopsEnded)
	}
	if err := e.stopFrontendInTime(ctx); err != nil {
		e.resume(before)
		return fmt.Errorf("remove the device of volume %s: %w", e.cfg.Volume, err)
	}
	var err error
	if before.Phase == PhaseRunning {
		err = e.finish(ctx)
	}
	e.end(ctx)
	if err != nil {
		e.log.WithError(err).Warn("Engine stopped, but not cleanly")
		return fmt.Errorf("stop engine %s: %w: %w", e.cfg.Name, ErrUnclean, err)
	}
	e.log.Info("Engine stopped")
	return nil
}

// Interrupt ends the engine's service at once: nothing is acknowledged from now on, all current requests fail, a Stop
// that waits for them continues, and the marks stay. The caller must call Stop or StopForce afterwards.
func (e *Engine) Interrupt() {
	e.fail(failure{reason: ReasonInterrupted, err: errors.New("the engine was stopped by force")})
}

// StopForce ends the engine at once, even if its device is in use. After Interrupt the device is aborted, and the parts
// that no user holds are freed. It does not wait for users, and ends a Stop that does. The engine has ended when
// StopForce returns, even with an error; the error then says what remains of the device.
func (e *Engine) StopForce(ctx context.Context) error {
	e.Interrupt()
	e.stopMu.Lock()
	defer e.stopMu.Unlock()
	if e.ended {
		return nil
	}
	e.await(ctx, e.loopsEnded)
	err := e.abortFrontend(ctx)
	e.end(ctx)
	if err != nil {
		return fmt.Errorf("stop engine %s by force: %w", e.cfg.Name, err)
	}
	e.log.Info("Engine stopped by force")
	return nil
}

// end closes what remains open and shows that the engine has ended.
func (e *Engine) end(ctx context.Context) {
	e.cancel()
	tasks := make(chan struct{})
	go func() {
		defer close(tasks)
		e.tasks.Wait()
	}()
	if !e.await(ctx, tasks) {
		e.log.Error("A request hangs in a disk of this node; the engine stopped without waiting for it")
	}
	e.ended = true
	e.update(func(s *State) { s.Phase, s.Endpoint = PhaseStopped, "" })
}

// await waits for requests that end soon after the connections are closed. After ctx has ended, it waits for hangGrace
// at most.
func (e *Engine) await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	timer := e.cfg.Clock.NewTimer(hangGrace)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C():
		return false
	}
}

// beginStop shows that the engine stops and returns the previous state.
func (e *Engine) beginStop() State {
	before := e.State()
	e.update(func(s *State) {
		e.stopping = true
		if s.Phase == PhaseRunning {
			s.Phase = PhaseStopping
		}
	})
	return before
}

// resume undoes beginStop, unless the engine has failed since.
func (e *Engine) resume(before State) {
	e.update(func(s *State) {
		e.stopping = false
		if s.Phase == PhaseStopping {
			s.Phase = before.Phase
		}
	})
}

// stopFrontendInTime stops the frontend. The frontend first gives its last data to the engine, and such a change may
// wait for an epoch without bound. If it has not stopped when hangGrace has passed after ctx, the engine fails, and
// this ends the waiting. A frontend that is in use reports this soon, and then the engine continues.
func (e *Engine) stopFrontendInTime(ctx context.Context) error {
	stopped := make(chan struct{})
	var limit sync.WaitGroup
	limit.Go(func() {
		if !e.await(ctx, stopped) {
			e.fail(failure{reason: ReasonInterrupted, err: errors.New("the last data of the device could not be written back in time")})
		}
	})
	err := e.stopFrontend(ctx)
	close(stopped)
	limit.Wait()
	return err
}

func (e *Engine) stopFrontend(ctx context.Context) error {
	e.mu.Lock()
	started := e.isFrontendStarted
	e.mu.Unlock()
	if !started {
		return nil
	}
	if err := e.cfg.Frontend.Stop(ctx); err != nil {
		return err
	}
	e.mu.Lock()
	e.isFrontendStarted = false
	e.mu.Unlock()
	return nil
}

func (e *Engine) abortFrontend(ctx context.Context) error {
	a, ok := e.cfg.Frontend.(Aborter)
	if !ok {
		return e.stopFrontend(ctx)
	}
	e.mu.Lock()
	started := e.isFrontendStarted
	e.isFrontendStarted = false
	e.mu.Unlock()
	if !started {
		return nil
	}
	return a.Abort(ctx)
}

// finish ends the service of a running engine. It refuses new requests, waits for current requests, flushes everything
// and clears all marks. The marks come last, so after a failure at any line the regions that may differ are still
// marked. All marks stay while an epoch lists a member that has failed.
func (e *Engine) finish(ctx context.Context) error {
	stop := context.AfterFunc(ctx, e.cancel) // closes the connections, so that every wait below ends
	defer stop()
	e.mirror.gate.shut(nbd.ESHUTDOWN)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		e.mirror.gate.wait()
	}()
	if !e.await(ctx, drained) {
		return errors.New("a request did not finish in time")
	}
	close(e.quit)
	if !e.await(ctx, e.loopsEnded) {
		return errors.New("a request did not finish in time")
	}
	e.mu.Lock()
	if b := e.rebuilding(); b != nil {
		b.cancel(errStopping)
	}
	if e.snapshot != nil {
		e.snapshot.cancel(errStopping)
	}
	e.mu.Unlock()
	if e.ctx.Err() != nil {
		return errors.New("the engine had failed, or its time to stop had expired")
	}
	return e.mirror.clearAll()
}
