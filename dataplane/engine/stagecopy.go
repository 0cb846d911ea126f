package engine

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// ownRanges returns readers of the ranges that only a first stage copies: the blocks that the target has above the
// base, and all marked regions.
func (s *stages) ownRanges(base layers.Point) ([]*rangeReader, error) {
	marked, err := s.marksOfMembers()
	if err != nil {
		return nil, err
	}
	for i := range marked {
		marked[i] |= s.marked[i]
	}
	size := s.e.mirror.size.Load()
	ranges, _ := s.e.mirror.regions.bytes(marked, size)
	own := s.e.differs(base, layers.Point{}, func() []*member { return []*member{s.target} })
	return []*rangeReader{own, knownRanges(ranges, size)}, nil
}

// marksOfMembers are the regions that a member has marked, or that are dirty. A change that is under way when it is
// called is in one of them.
func (s *stages) marksOfMembers() (bitmap, error) {
	m := s.e.mirror
	union, count := m.regions.dirtyNow()
	var mu sync.Mutex
	err := m.onServing(m.roster.Load(), func(b *member) error {
		indexes, err := b.marks(count)
		mu.Lock()
		defer mu.Unlock()
		union.add(indexes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the intent marks: %w", err)
	}
	return union, nil
}

// copyRanges copies the ranges of the readers, step by step.
func (s *stages) copyRanges(c *copier, readers []*rangeReader, left int) error {
	size := s.e.mirror.size.Load() // it does not grow during a rebuild
	for off := int64(0); off < size; off += copyStepBytes {
		end := min(off+copyStepBytes, size)
		var ranges []byteRange
		for _, r := range readers {
			more, err := r.upTo(s.b.ctx, end)
			if err != nil {
				return fmt.Errorf("ask which ranges differ: %w", err)
			}
			ranges = append(ranges, more...)
		}
		for _, g := range unite(ranges) {
			if err := c.step(s.b.ctx, g.from, g.to-g.from); err != nil {
				return err
			}
			s.copied += g.to - g.from
			if err := c.flushOften(g.to-g.from, s.e.cfg.KeepEvery); err != nil {
				return err
			}
		}
		s.e.showExtent(s.b, s.copied, s.partial)
		part := float64(end) / float64(size)
		s.e.showProgress(s.b, int(100*(float64(s.sealed)+part)/float64(s.sealed+left)))
	}
	return nil
}

// clearMarks clears the target's marks after a stage. Everything that it has is at the point and on its disk, and the
// source's layers name every later change. So a mark says nothing any longer.
func (s *stages) clearMarks() error {
	marks, err := s.marksOfTarget()
	if err != nil || marks.count() == 0 {
		return err
	}
	request, err := json.Marshal(membership.Regions{Indexes: marks.indexes()})
	if err != nil {
		return fmt.Errorf("encode the regions: %w", err)
	}
	s.marked = newBitmap(int(s.e.mirror.regions.count()))
	return s.onTarget(func() error {
		_, err := s.target.Control(background, membership.OpClearIntents, request)
		return err
	})
}

// lastRanges returns readers of the ranges that the last stage copies. The marks are read first: see last.
func (s *stages) lastRanges() ([]*rangeReader, error) {
	marked, err := s.marksOfMembers()
	if err != nil {
		return nil, err
	}
	size := s.e.mirror.size.Load()
	ranges, _ := s.e.mirror.regions.bytes(marked, size)
	readers := []*rangeReader{knownRanges(ranges, size)}
	if s.own {
		own, err := s.ownRanges(s.done)
		if err != nil {
			return nil, err
		}
		readers = append(readers, own...)
	}
	return append(readers, s.e.differs(s.done, layers.Point{}, s.e.sources)), nil
}
