package engine

import (
	"slices"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// rangeLock orders requests that overlap: they run one after another, in the order in which they came. So all replicas
// see them in the same order. Requests that do not overlap run concurrently. The list has one entry for each current
// request, so a search through it costs less than a more complex structure.
type rangeLock struct {
	mu sync.Mutex
	// spans are held or waiting, in order of arrival; guarded by mu.
	spans []*span
}

// span is one range that a request holds or waits for.
type span struct {
	from, to int64 // in bytes; to is excluded
	shared   bool
	blockers int // earlier spans in conflict; guarded by rangeLock.mu
	ready    chan struct{}
}

var spanPool = sync.Pool{New: func() any { return &span{ready: make(chan struct{}, 1)} }}

func (s *span) conflicts(o *span) bool {
	return s.from < o.to && o.from < s.to && !(s.shared && o.shared)
}

// lockMode is whether a range is shared with others of the same mode.
type lockMode bool

const (
	exclusive lockMode = false
	shared    lockMode = true
)

// lock waits until no earlier request that overlaps [off, off+length) is under way. It is fair: a later request never
// overtakes an earlier one.
func (r *rangeLock) lock(off, length int64, mode lockMode) *span {
	s := spanPool.Get().(*span)
	s.from, s.to, s.shared, s.blockers = off, off+length, bool(mode), 0
	r.mu.Lock()
	for _, o := range r.spans {
		if o.conflicts(s) {
			s.blockers++
		}
	}
	r.spans = append(r.spans, s)
	blocked := s.blockers > 0
	r.mu.Unlock()
	if blocked {
		<-s.ready
	}
	return s
}

// lockBlocks takes the lock for a change: all blocks that the change touches, as a whole. A replica with layers fills the
// rest of a block from the view below. So two changes of one block must not run at the same time, even if they do not
// overlap.
func (r *rangeLock) lockBlocks(off, length int64) *span {
	first, end := layers.Covered(off, length)
	return r.lock(first*layers.BlockBytes, (end-first)*layers.BlockBytes, exclusive)
}

// tryLock takes the range if no earlier request that overlaps it is under way or waits; otherwise it returns nil.
func (r *rangeLock) tryLock(off, length int64, mode lockMode) *span {
	s := spanPool.Get().(*span)
	s.from, s.to, s.shared, s.blockers = off, off+length, bool(mode), 0
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.spans, s.conflicts) {
		spanPool.Put(s)
		return nil
	}
	r.spans = append(r.spans, s)
	return s
}

// unlock admits the next requests. s must not be used afterwards.
func (r *rangeLock) unlock(s *span) {
	r.mu.Lock()
	i := slices.Index(r.spans, s)
	for _, o := range r.spans[i+1:] {
		if o.conflicts(s) {
			if o.blockers--; o.blockers == 0 {
				o.ready <- struct{}{}
			}
		}
	}
	r.spans = slices.Delete(r.spans, i, i+1)
	r.mu.Unlock()
	spanPool.Put(s)
}
