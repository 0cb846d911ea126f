package replica

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/chain"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

// mostViews is how many points a session keeps open for reading.
const mostViews = 4

// mostRanges limits one answer to OpDiffers, so that it fits into a message.
const mostRanges = 8192

// pointViews are the views at points that a session reads. They are opened when they are needed, and closed with the
// session, or before their border is taken away.
type pointViews struct {
	mu     sync.Mutex
	open   []*chain.View  // guarded by mu; the one that was used last is at the end
	of     []layers.Point // guarded by mu; of the views
	closed bool           // guarded by mu
}

// take returns an open view, or nil.
func (v *pointViews) take(p layers.Point) *chain.View {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := slices.Index(v.of, p)
	if i < 0 {
		return nil
	}
	view := v.open[i]
	v.open, v.of = append(slices.Delete(v.open, i, i+1), view), append(slices.Delete(v.of, i, i+1), p)
	return view
}

// put adds a view. It returns the ones to close.
func (v *pointViews) put(p layers.Point, view *chain.View) (gone []*chain.View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open, v.of = append(v.open, view), append(v.of, p)
	most := mostViews
	if v.closed {
		most = 0
	}
	n := max(0, len(v.open)-most)
	gone = slices.Clone(v.open[:n])
	v.open, v.of = slices.Delete(v.open, 0, n), slices.Delete(v.of, 0, n)
	return gone
}

// drop removes the views at a point, and returns them.
func (v *pointViews) drop(p layers.Point) (gone []*chain.View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := slices.Index(v.of, p); i >= 0; i = slices.Index(v.of, p) {
		gone = append(gone, v.open[i])
		v.open, v.of = slices.Delete(v.open, i, i+1), slices.Delete(v.of, i, i+1)
	}
	return gone
}

// close removes all views for good, and returns them.
func (v *pointViews) close() (gone []*chain.View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	gone, v.open, v.of, v.closed = v.open, nil, nil, true
	return gone
}

func closeViews(views []*chain.View) {
	for _, v := range views {
		_ = v.Close() // only read
	}
}

// dropViews closes the views of the present session at a point that goes.
func (r *Replica) dropViews(p layers.Point) {
	r.mu.Lock()
	s := r.current
	r.mu.Unlock()
	if s != nil {
		closeViews(s.views.drop(p))
	}
}

// openView opens the view at a point. While a snapshot is prepared it waits, so that the switch need not wait for it.
func (r *Replica) openView(ctx context.Context, over <-chan struct{}, p layers.Point) (*chain.View, error) {
	c := r.chainNow()
	if c == nil {
		return nil, layers.ErrNoBorder
	}
	for {
		r.attempt.opening.Lock()
		pending := r.attempt.wait()
		if pending == nil {
			v, err := c.View(p)
			r.attempt.opening.Unlock()
			return v, err
		}
		r.attempt.opening.Unlock()
		select {
		case <-pending:
		case <-over:
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// view returns the open view at a point. It may be closed at any time: then a read of it returns chain.ErrClosed.
func (s *Session) view(ctx context.Context, p layers.Point) (*chain.View, error) {
	if v := s.views.take(p); v != nil {
		return v, nil
	}
	v, err := s.replica.openView(ctx, s.done, p)
	if err != nil {
		return nil, err
	}
	closeViews(s.views.put(p, v))
	return v, nil
}

// withView calls do with the view at a point. A view that was closed in between is opened again.
func (s *Session) withView(ctx context.Context, p layers.Point, do func(*chain.View) error) error {
	for {
		v, err := s.view(ctx, p)
		if err == nil {
			err = do(v)
		}
		switch {
		case err == nil:
			return s.replica.checkServing()
		case errors.Is(err, chain.ErrClosed) && s.Err() == nil && s.replica.chainNow().Err() == nil:
			closeViews(s.views.drop(p))
		case errors.Is(err, layers.ErrNoBorder):
			closeViews(s.views.drop(p))
			return err
		default:
			return err
		}
	}
}

// pointRefusal is the error of a question about a view. It never ends the replica: only a read failed.
func pointRefusal(err error) error {
	if err != nil && isRefusal(err) {
		return &pointError{invalid("%v", err), err}
	}
	return err
}

// readView answers points.OpReadView. A part past the end of the view reads as zeroes: the volume was smaller.
func (s *Session) readView(ctx context.Context, q points.ReadView) ([]byte, error) {
	if q.Length < 0 || q.Length > nbd.MaxControl {
		return nil, invalid("a read of %d bytes exceeds the maximum of %d", q.Length, nbd.MaxControl)
	}
	if err := s.replica.checkRange(q.Offset, q.Length); err != nil {
		return nil, err
	}
	p := make([]byte, q.Length)
	if q.Point == (layers.Point{}) {
		if err := s.replica.read(p, q.Offset); err != nil {
			s.replica.markUnreadable(q.Offset, q.Length)
			return nil, err
		}
		return p, nil
	}
	err := s.withView(ctx, q.Point, func(v *chain.View) error {
		clear(p)
		return v.ReadAt(p[:max(0, min(q.Length, v.Size()-q.Offset))], min(q.Offset, v.Size()))
	})
	if err != nil {
		return nil, pointRefusal(err)
	}
	return p, nil
}

// differs answers points.OpDiffers.
func (s *Session) differs(ctx context.Context, q points.Differs) ([]byte, error) {
	if err := s.replica.checkRange(q.Offset, 0); err != nil {
		return nil, err
	}
	if q.From == (layers.Point{}) {
		ranges, err := s.hasData(ctx, q)
		if err != nil {
			return nil, pointRefusal(err)
		}
		return marshal(ranges)
	}
	c := s.replica.chainNow()
	if c == nil {
		return marshal(points.Ranges{Unknown: true, Next: q.Offset})
	}
	found, next, err := c.Differs(q.From, q.To, q.Offset, mostRanges)
	switch {
	case errors.Is(err, layers.ErrNoBorder):
		return marshal(points.Ranges{Unknown: true, Next: q.Offset})
	case err != nil:
		return nil, pointRefusal(err)
	}
	ranges := points.Ranges{Next: next}
	for _, r := range found {
		ranges.Ranges = append(ranges.Ranges, points.Range{Offset: r.Off, Length: r.Length})
	}
	if err := s.replica.checkRead(); err != nil {
		return nil, err
	}
	return marshal(ranges)
}

// hasData returns the ranges that have data, in the view at q.To.
func (s *Session) hasData(ctx context.Context, q points.Differs) (ranges points.Ranges, err error) {
	size := s.Size()
	ranges.Next = size
	if q.Offset == size {
		return ranges, nil
	}
	var found []nbd.Extent
	if q.To == (layers.Point{}) {
		found, err = s.replica.extents(q.Offset, size-q.Offset)
	} else {
		err = s.withView(ctx, q.To, func(v *chain.View) (err error) {
			if found = nil; q.Offset < v.Size() {
				found, err = v.Extents(q.Offset, v.Size())
			}
			if n := len(found); n > 0 && found[n-1].Offset+found[n-1].Length == v.Size() {
				found = append(found, nbd.Extent{Offset: v.Size(), Length: size - v.Size(), Flags: nbd.ExtentHole})
			}
			return err
		})
	}
	if err != nil {
		return points.Ranges{}, err
	}
	for _, e := range found {
		ranges.Next = e.Offset + e.Length
		if e.Flags&nbd.ExtentHole == 0 && e.Length > 0 {
			ranges.Ranges = append(ranges.Ranges, points.Range{Offset: e.Offset, Length: e.Length})
		}
	}
	return ranges, nil
}
