package engine

import (
	"context"
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// grower is a method that a Replica over the network must have, so that the engine can tell it that its peer is larger
// now.
type grower interface{ Grow(sizeBytes int64) }

// expansion is an operation; its value is the size in bytes to which the volume grows.
type expansion int64

func (x expansion) String() string {
	return fmt.Sprintf("the volume is being expanded to %d bytes", int64(x))
}

// Expand makes the volume larger while it is used. It may be repeated after a failure at any line. A size that users
// are offered already is a success. If a member does not have the size durably, Expand refuses with ErrMemberTooSmall,
// and has changed nothing.
//
//  1. no rebuild can start; no epoch lists a member that has failed; each member shows its size
//  2. the data path admits changes and reads of the new range
//  3. the frontend offers the new size
//
// So users are never offered a size that a member lacks. Members never shrink, and a replica becomes a member only with
// the size of the data path.
func (e *Engine) Expand(ctx context.Context, session string, sizeBytes int64) error {
	if err := e.expand(ctx, session, sizeBytes); err != nil {
		return fmt.Errorf("expand the volume to %d bytes: %w", sizeBytes, err)
	}
	return nil
}

func (e *Engine) expand(ctx context.Context, session string, size int64) error {
	e.expandMu.Lock()
	defer e.expandMu.Unlock()
	if err := e.beginExpand(session, size); err != nil {
		return err
	}
	defer e.endOperation()
	if size > e.mirror.size.Load() {
		if err := membership.CheckRegions(size, e.mirror.regions.regionBytes); err != nil {
			return err
		}
		if err := e.growMembers(ctx, size); err != nil {
			return err
		}
		e.mirror.regions.grow(size)
		e.mirror.size.Store(size)
	}
	if f, ok := e.cfg.Frontend.(Resizer); ok && f.Size() < size {
		if err := f.Resize(ctx, size); err != nil {
			return fmt.Errorf("offer the new size on the device: %w", err)
		}
	}
	if offered := e.offered(); offered != e.State().SizeBytes {
		e.update(func(s *State) { s.SizeBytes = offered })
		e.log.WithField("sizeBytes", offered).Info("Volume expanded")
	}
	return nil
}

func (e *Engine) beginExpand(session string, size int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.checkRunningLocked(session); err != nil {
		return err
	}
	if e.snapshot != nil {
		return fmt.Errorf("%w: %s", ErrBusy, e.snapshot)
	}
	return e.beginOperation(expansion(size))
}

// growMembers asks each member for its size, and makes the connections accept requests of that size. A member that
// fails during this is expelled as usual, and no other replica becomes a member.
func (e *Engine) growMembers(ctx context.Context, size int64) error {
	serving, err := e.stableMembers(ctx)
	if err != nil {
		return err
	}
	for _, m := range serving {
		reply, err := m.Control(ctx, membership.OpState, nil)
		if err != nil {
			return fmt.Errorf("read the size of replica %s: %w", m.name, err)
		}
		s, err := decodeState(reply)
		if err != nil {
			return fmt.Errorf("read the size of replica %s: %w", m.name, err)
		}
		if s.SizeBytes < size {
			return fmt.Errorf("%w: replica %s has %d bytes", ErrMemberTooSmall, m.name, s.SizeBytes)
		}
		if g, ok := m.Replica.(grower); ok {
			g.Grow(s.SizeBytes)
		}
		if m.Size() < size {
			return fmt.Errorf("%w: the connection to replica %s offers %d bytes", ErrMemberTooSmall, m.name, m.Size())
		}
	}
	return nil
}

// stableMembers returns the serving members when no epoch lists another member. The engine can no longer ask a failed
// member for its size. But while it is listed, the next engine may start with that member only.
func (e *Engine) stableMembers(ctx context.Context) ([]*member, error) {
	for {
		ro := e.mirror.roster.Load()
		if len(ro.leaving) == 0 {
			return ro.serving, nil
		}
		m := ro.leaving[0]
		select {
		case <-m.gone:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: replica %s", ErrLeaving, m.name)
		case <-e.quit:
			return nil, ErrNotRunning
		case <-e.ctx.Done():
			return nil, ErrNotRunning
		}
	}
}

// offered is the size that users see.
func (e *Engine) offered() int64 {
	size := e.mirror.size.Load()
	if f, ok := e.cfg.Frontend.(Resizer); ok {
		size = min(size, f.Size())
	}
	return size
}
