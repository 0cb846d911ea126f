package replica

import "sync"

// callsPerDisk is how many workers the calls about one disk may hold: a disk that hangs keeps a call until
// it times out. It is as many calls as the data plane lets ask a disk at a time.
const callsPerDisk = 2

// turns give replicas a call to the data plane, a few at a time for each disk. A replica that gets none
// does not wait, and so holds no worker: it comes back when a turn of its disk is over.
type turns struct {
	again func(replica string) // brings a replica back

	mu      sync.Mutex
	taken   map[string]int                 // by disk; guarded by mu
	waiting map[string]map[string]struct{} // replicas by disk; guarded by mu
}

func newTurns(again func(string)) *turns {
	return &turns{again: again, taken: map[string]int{}, waiting: map[string]map[string]struct{}{}}
}

// take returns a func that gives the turn back, or false: there is none, and the replica comes back.
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

// done brings back all that wait: those that no longer need a call must not keep the turn from the others.
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
