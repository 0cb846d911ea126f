package replica

import (
	"sync"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/util/boottime"
)

// Asked remembers in memory when engines asked a replica whether their generation is in force (membership.OpInForce). It outlives the openings
// of the replica, because a replica is stopped and started when its volume moves, but not the process.
//
//	an engine of a higher generation is admitted    the questions of the one before become the last ones
//	the same engine is admitted again               its questions are forgotten: it was not asked as a member meanwhile
//	a question without limit                        the questions of its generation are forgotten
//	a fence, a stop                                 nothing changes
type Asked struct {
	now func() time.Duration // boottime.Now, except in tests

	mu      sync.Mutex
	current asking // guarded by mu; of the generation that was admitted last
	last    asking // guarded by mu; of the last generation before it that asked
}

// asking is when an engine asked last; the zero value is "not known".
type asking struct {
	generation int64
	at         time.Duration
	known      bool
}

// NewAsked returns a memory of nothing.
func NewAsked() *Asked { return &Asked{now: boottime.Now} }

// admitted is called when the engine of a generation was let in, and nothing of an older one is under way.
func (a *Asked) admitted(generation int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current.known && a.current.generation != generation {
		a.last = a.current
	}
	a.current = asking{generation: generation}
}

// heard is called at each question, before it is answered.
func (a *Asked) heard(generation int64, limited bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current.generation == generation {
		a.current.at, a.current.known = a.now(), limited
	}
}

// before is the last question of a generation before the one that was admitted last; nil if none is known.
func (a *Asked) before() *membership.LastAsked {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.last.known {
		return nil
	}
	return &membership.LastAsked{Generation: a.last.generation, AgoMillis: (a.now() - a.last.at).Milliseconds()}
}
