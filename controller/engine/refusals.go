package engine

import (
	"sync"
	"time"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// refusals remember which engines were not stopped because their devices are in use. A refused stop changes the
// engine's state twice, and each change causes another sync. Without this memory, the controller would request the
// next stop at once, in an endless loop. The memory is lost with the process, which costs one more attempt.
type refusals struct {
	mu sync.Mutex
	at map[string]refusal // by engine; guarded by mu
}

type refusal struct {
	session string
	at      time.Time
}

// note records that the stop of an engine's session was refused.
func (r *refusals) note(engine, session string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil {
		r.at = map[string]refusal{}
	}
	r.at[engine] = refusal{session, now}
}

// last is the time at which a stop of the observed engine was last refused; zero: never. It forgets an engine that
// the instance manager does not run, or that has another session.
func (r *refusals) last(engine string, o Observed) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.at[engine]
	switch {
	case !ok || o.Phase == types.PhaseUnknown:
		return time.Time{}
	case o.Phase == types.PhaseAbsent || o.Session != known.session:
		delete(r.at, engine)
		return time.Time{}
	}
	return known.at
}
