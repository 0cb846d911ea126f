package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

// sealing collects the answers of the members.
type sealing struct {
	mu      sync.Mutex
	sealed  []string // guarded by mu, like all below
	full    error    // of a member without space
	refused error    // of a member that does not know the border
}

// seal makes everything below the border durable on all members, and then the statement that it is. It is judged like a
// flush: a member that fails, or is slower than the others by the slow rule, is expelled. A member that is full stays,
// and so does a member that refuses: after the attempt has ended, the members merge the border away, and a request to
// seal it can come later than that.
func (e *Engine) seal(s *snapshot, ro *roster) ([]string, error) {
	var c sealing
	ended := make(chan error, 1)
	e.tasks.Go(func() {
		ended <- e.mirror.onServing(ro, func(b *member) error {
			return c.take(b.name, tell(background, b, points.OpSeal, s.point))
		})
	})
	select {
	case err := <-ended:
		return c.result(s.point, err)
	case <-s.ctx.Done():
		return nil, endedAttempt(s.ctx)
	}
}

// take stores the answer of a member, and returns the error with which onServing judges the member.
func (c *sealing) take(name string, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, nbd.ErrUnknownOutcome), errors.Is(err, nbd.ErrNotSent):
	case errors.Is(err, nbd.ENOSPC):
		c.full = fmt.Errorf("%w: replica %s: %w", layers.ErrNoRoom, name, err)
		return errNoVerdict
	case errors.Is(err, nbd.EINVAL), errors.Is(err, nbd.ENOTSUP):
		c.refused = fmt.Errorf("%w: replica %s: %w", layers.ErrNotPrepared, name, err)
		return errNoVerdict
	case err == nil:
		c.sealed = append(c.sealed, name)
	}
	return err
}

// result returns the members that have sealed the point. err is the error of onServing.
func (c *sealing) result(p layers.Point, err error) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.full != nil:
		return nil, c.full
	case c.refused != nil:
		return nil, c.refused
	case err != nil:
		return nil, fmt.Errorf("%w: seal point %d: %w", layers.ErrBusy, p.Number, err)
	}
	return slices.Sorted(slices.Values(c.sealed)), nil
}
