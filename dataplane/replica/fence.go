package replica

import (
	"context"
	"fmt"
)

// fenceSession is the session of a generation that was admitted only to shut out older generations. No engine has it.
const fenceSession = "fence"

// Fence permanently shuts out every engine of a generation below the given one. It stops those engines from starting
// requests, waits for their current requests, then makes the generation durable. It admits no engine. If the replica
// has already admitted this generation or a higher one, the replica stays unchanged, and so does an engine that is
// connected.
//
// A replica that failed can be fenced as long as its disk stores the metadata. If ctx ends first (a *HangError), or the
// disk refuses, the older session is shut out now, but perhaps not after a restart. So the caller must not rely on it.
func (r *Replica) Fence(ctx context.Context, generation int64) error {
	if r.opts.ReadOnly {
		return fmt.Errorf("replica %s: fence: %w", r.name, ErrReadOnly)
	}
	if err := r.lockAdmission(ctx, "fence"); err != nil {
		return fmt.Errorf("replica %s: fence with generation %d: %w", r.name, generation, err)
	}
	due, err := r.shutOut(ctx, generation)
	if err != nil || !due {
		r.unlockAdmission()
	} else {
		err = r.lane.run(ctx, call{
			what: "record the fence",
			work: func() error {
				err := r.update(func(m *Meta) { m.Generation, m.Session = generation, fenceSession })
				r.changed()
				return err
			},
			over: r.unlockAdmission,
		})
	}
	if err != nil {
		return fmt.Errorf("replica %s: fence with generation %d: %w", r.name, generation, err)
	}
	return nil
}

// shutOut ends the session of an older generation and waits for its requests; due is false if nothing must be recorded.
// The caller holds the admission lock.
func (r *Replica) shutOut(ctx context.Context, generation int64) (due bool, err error) {
	r.mu.Lock()
	held, current, closed := r.meta, r.current, r.closed
	r.mu.Unlock()
	switch {
	case closed:
		return false, ErrClosed
	case held.Generation >= generation:
		return false, nil
	}
	if current != nil {
		current.end(fmt.Errorf("%w by generation %d", ErrFenced, generation))
		if err := current.await(ctx, generation); err != nil {
			return false, err
		}
	}
	return true, nil
}
