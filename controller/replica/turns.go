package replica

import "sync"

// callsPerDisk is the number of workers that calls about one disk may block: on a disk that hangs, a call blocks
// until it times out. It equals the number of calls that the data plane sends to a disk at a time.
const callsPerDisk = 2

// turns give replicas a call to the data plane, a few at a time for each disk. A replica without a turn does not
// wait, so it blocks no worker. It is queued again when a turn of its disk is over.
type turns struct {
	again func(replica string) // queues a replica again

	mu      sync.Mutex
	taken   map[string]int                 // by disk; guarded by mu
	waiting map[string]map[string]struct{} // replicas by disk; guarded by mu
}

func newTurns(again func(string)) *turns {
	return &turns{again: again, taken: map[string]int{}, waiting: map[string]map[string]struct{}{}}
}

// take returns a func that returns the turn. If no turn is free, it returns false, and the replica is queued again
// later.
func (t *turns) take(disk, replica string) (done func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken[disk] == callsPerDisk {
		if t.waiting[disk] == nil {
			t.waiting[disk] = map[string]struct{}{}
		}
		t.waiting[disk][replica] = struct{}{}
		return nil, false
	}
	t.taken[disk]++
	return func() { t.done(disk) }, true
}

// done queues all waiting replicas again: a replica that no longer needs a call must not block the turn for the
// others.
func (t *turns) done(disk string) {
	t.mu.Lock()
	if t.taken[disk]--; t.taken[disk] == 0 {
		delete(t.taken, disk)
	}
	waiting := t.waiting[disk]
	delete(t.waiting, disk)
	t.mu.Unlock()
	for replica := range waiting {
		t.again(replica)
	}
}
