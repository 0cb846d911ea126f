package replica

import (
	"sync"
	"time"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// attempt is the last attempt to create or open a replica's directory.
type attempt struct {
	at      time.Time
	refusal *types.Refusal // why it failed; nil: the data plane accepted it
}

// attempts remember the last attempt on each replica. An attempt with the same result as the previous one changes
// nothing in the API, so the API does not show its time. The memory is lost with the process, which costs one more
// attempt.
type attempts struct {
	mu   sync.Mutex
	last map[string]attempt // by replica; guarded by mu
}

func (a *attempts) note(replica string, at time.Time, refusal *types.Refusal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		a.last = map[string]attempt{}
	}
	a.last[replica] = attempt{at, refusal}
}

func (a *attempts) forget(replica string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.last, replica)
}

func (a *attempts) of(replica string) attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last[replica]
}
