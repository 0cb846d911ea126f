package replica

import (
	"context"
	"fmt"
)

// fenceSession is the session that holds a generation which was admitted only to shut older ones out. No engine has it.
const fenceSession = "fence"

// Fence shuts out every engine of a generation below the given one, for ever: no request of theirs begins any more, those under
// way finish, then the generation is made durable. No engine gets in by it. A replica that has admitted this generation or a higher
// one is left as it is, with whoever is connected.
//
// A replica that failed can be fenced as long as its disk takes the metadata. When ctx ends first, or the disk refuses, the older
// session is shut out all the same, but may not be so after a restart: the caller must not rely on it.
func (r *Replica) Fence(ctx context.Context, generation int64) error {
	if r.opts.ReadOnly {
		return fmt.Errorf("replica %s: fence: %w", r.name, ErrReadOnly)
	}
	select {
	case r.admitting <- struct{}{}:
		defer func() { <-r.admitting }()
	case <-ctx.Done():
		return fmt.Errorf("replica %s: fence: %w", r.name, ctx.Err())
	}
	if err := r.fence(ctx, generation); err != nil {
		return fmt.Errorf("replica %s: fence with generation %d: %w", r.name, generation, err)
	}
	r.changed()
	return nil
}

// fence is Fence under the token.
func (r *Replica) fence(ctx context.Context, generation int64) error {
	r.mu.Lock()
	held, current, closed := r.meta, r.current, r.closed
	r.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case held.Generation >= generation:
		return nil
	}
	if current != nil {
		current.end(fmt.Errorf("%w by generation %d", ErrFenced, generation))
		if err := current.await(ctx, admitTakeover); err != nil {
			return err
		}
	}
	return r.update(func(m *Meta) { m.Generation, m.Session = generation, fenceSession })
}
