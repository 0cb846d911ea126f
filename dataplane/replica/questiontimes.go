package replica

import (
	"sync"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/util/boottime"
)

// QuestionTimes remembers in memory when engines asked a replica whether their generation is in force
// (membership.OpInForce). It is kept over stops and starts of the replica, because these happen when its volume moves.
// It is not kept when the process exits.
//
//	an engine of a higher generation is admitted    the questions of the previous engine become the last ones
//	the same engine is admitted again               its questions are forgotten: the replica was no member in between
//	a question without limit                        the questions of its generation are forgotten
//	a fence, a stop                                 nothing changes
type QuestionTimes struct {
	now func() time.Duration // boottime.Now, except in tests

	mu      sync.Mutex
	current lastQuestion // guarded by mu; of the generation that was admitted last
	last    lastQuestion // guarded by mu; of the last earlier generation that asked
}

// lastQuestion is the time of an engine's last question; the zero value means "not known".
type lastQuestion struct {
	generation int64
	at         time.Duration
	known      bool
}

// NewQuestionTimes returns an empty memory.
func NewQuestionTimes() *QuestionTimes { return &QuestionTimes{now: boottime.Now} }

// admitted is called when the engine of a generation was admitted and no request of an older engine is under way.
func (a *QuestionTimes) admitted(generation int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current.known && a.current.generation != generation {
		a.last = a.current
	}
	a.current = lastQuestion{generation: generation}
}

// record is called for each question, before the question is answered.
func (a *QuestionTimes) record(generation int64, limited bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current.generation == generation {
		a.current.at, a.current.known = a.now(), limited
	}
}

// before is the last question of a generation before the currently admitted one; nil if none is known.
func (a *QuestionTimes) before() *membership.LastAsked {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.last.known {
		return nil
	}
	return &membership.LastAsked{Generation: a.last.generation, AgoMillis: (a.now() - a.last.at).Milliseconds()}
}
