package replica

import (
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// LayerState describes the layers of a replica for its host.
type LayerState struct {
	// FormatVersion is 1 for a replica that never had a snapshot, and 2 for a chain of layers.
	FormatVersion int
	// Points are the borders that the replica shows, the oldest first.
	Points []PointState
	// HeadBytes is the space of the data above the newest border.
	HeadBytes int64
}

// PointState describes the border at one point.
type PointState struct {
	Point layers.Point
	// AllocatedBytes is the space of the layer below the border.
	AllocatedBytes int64
	// Flushed says that everything below the border is durable.
	Flushed bool
}

// Layers asks the file system how much space the layers take.
func (r *Replica) Layers() (LayerState, error) {
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed {
		return LayerState{}, ErrClosed
	}
	c := r.chainNow()
	if c == nil {
		allocated, err := r.AllocatedBytes()
		return LayerState{FormatVersion: metaVersion, HeadBytes: allocated}, err
	}
	l, sums, err := c.AllocatedByLayer()
	if err != nil {
		return LayerState{}, err
	}
	s := LayerState{FormatVersion: metaLayered}
	for i, layer := range l.Layers {
		if i == l.Head() {
			s.HeadBytes = sums[i]
			break
		}
		s.Points = append(s.Points, PointState{Point: layer.Top.Point, AllocatedBytes: sums[i], Flushed: layer.Top.Flushed})
	}
	return s, nil
}

// ViewAt opens the content at a point for reading, also while an engine is connected. It is refused while the replica
// is being rebuilt, and at a border that is not flushed. The caller must Close the View: until then the border stays.
func (r *Replica) ViewAt(n layers.Number) (*View, error) {
	c := r.chainNow()
	if c == nil {
		return nil, fmt.Errorf("replica %s: point %d: %w", r.name, n, layers.ErrNoBorder)
	}
	r.attempt.opening.Lock()
	defer r.attempt.opening.Unlock()
	if r.attempt.isPending() {
		return nil, fmt.Errorf("replica %s: point %d: %w", r.name, n, layers.ErrBusy)
	}
	for _, l := range c.Layers().Layers {
		if l.Top.Number != n || n == 0 {
			continue
		}
		at, err := c.View(l.Top.Point)
		if err != nil {
			return nil, fmt.Errorf("replica %s: %w", r.name, err)
		}
		r.mu.Lock()
		err = r.unusableLocked()
		if err == nil && r.meta.Rebuilding {
			err = ErrRebuilding
		}
		v := &View{replica: r, gate: newGate(), done: make(chan struct{}), at: at}
		if err == nil {
			r.views[v] = struct{}{}
		}
		r.mu.Unlock()
		if err != nil {
			_ = at.Close() // only read
			return nil, fmt.Errorf("replica %s: point %d: %w", r.name, n, err)
		}
		return v, nil
	}
	return nil, fmt.Errorf("replica %s: point %d: %w", r.name, n, layers.ErrNoBorder)
}
