package engine

import (
	"sync"
	"sync/atomic"
)

const (
	// windowBytes bounds what is under way to the members at once: a slow one falls behind by that much at most, and has the time of the
	// slow rule for it, whatever its users ask for.
	windowBytes = 32 << 20
	// windowLeast is what a request counts for at least.
	windowLeast = 256 << 10
)

// window admits requests to the members, in order of arrival where they must wait. A request in it waits for members alone: it enters
// under the range lock, and leaves before it waits for an epoch.
type window struct {
	used    atomic.Int64 // what those inside count for
	waiting atomic.Int32 // as many as are in queue

	mu    sync.Mutex
	queue []*windowWaiter // guarded by mu
}

type windowWaiter struct {
	cost  int64
	ready chan struct{}
}

// windowCost is what a request counts for: its data, and no less than a request of none.
func windowCost(r *request) int64 { return min(max(int64(len(r.data)), windowLeast), windowBytes) }

// enter waits until there is room. Without others waiting and with room it takes no lock.
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
	w.waiting.Add(1) // before used is looked at: a request that leaves after that sees it
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
