package engine

import (
	"sync"
	"sync/atomic"
)

const (
	// windowBytes limits the data under way to the members at once. So a slow member falls behind by that much at most,
	// and has the time of the slow rule for it, whatever the users request.
	windowBytes = 32 << 20
	// windowLeast is the least that a request counts for.
	windowLeast = 256 << 10
)

// window admits requests to the members, in order of arrival if they must wait. A request inside waits only for
// members: it enters under the range lock, and leaves before it waits for an epoch.
type window struct {
	used    atomic.Int64 // the sum of the costs inside
	waiting atomic.Int32 // as many as are in queue

	mu    sync.Mutex
	queue []*windowWaiter // guarded by mu
}

type windowWaiter struct {
	cost  int64
	ready chan struct{}
}

// windowCost is the cost of a request: the size of its data, but not less than windowLeast and not more than
// windowBytes.
func windowCost(r *request) int64 { return min(max(int64(len(r.data)), windowLeast), windowBytes) }

// enter waits until there is room. If no other request waits and there is room, it takes no lock.
func (w *window) enter(cost int64) {
	if w.waiting.Load() == 0 {
		if w.used.Add(cost) <= windowBytes {
			return
		}
		w.used.Add(-cost)
	}
	x := &windowWaiter{cost: cost, ready: make(chan struct{})}
	w.mu.Lock()
	w.queue = append(w.queue, x)
	w.waiting.Add(1) // before used is read: a request that leaves afterwards sees it
	w.admitLocked()
	w.mu.Unlock()
	<-x.ready
}

func (w *window) leave(cost int64) {
	w.used.Add(-cost)
	if w.waiting.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.admitLocked()
}

func (w *window) admitLocked() {
	for len(w.queue) > 0 && w.used.Load()+w.queue[0].cost <= windowBytes {
		x := w.queue[0]
		w.queue = w.queue[1:]
		w.used.Add(x.cost)
		w.waiting.Add(-1)
		close(x.ready)
	}
}
