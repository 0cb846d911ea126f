package sharemanager

import (
	"sync"
	"time"

	kubetypes "k8s.io/apimachinery/pkg/types"
)

// askSilentDelay is when to ask again a pod that answered once and then did not. A NetworkPolicy may keep its answers
// away, and a worker that waits for an answer has no time for shares that move.
const askSilentDelay = time.Hour

// asked remembers when to ask again the pods that have answered once. Their later answers are not urgent, so the first
// question comes late: a new leader does not ask all pods at once.
type asked struct {
	mu   sync.Mutex
	next map[string]askNext // by the share's name
}

type askNext struct {
	uid kubetypes.UID
	at  time.Time
}

// left returns in how long to ask a pod; 0: now.
func (a *asked) left(share string, pod kubetypes.UID, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	next, known := a.next[share]
	if !known || next.uid != pod {
		if a.next == nil {
			a.next = map[string]askNext{}
		}
		next = askNext{pod, now.Add(maxAskDelay)}
		a.next[share] = next
	}
	return max(0, next.at.Sub(now))
}

// again records whether a pod answered, and returns when to ask it again.
func (a *asked) again(share string, answered bool, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	delay := maxAskDelay
	if !answered {
		delay = askSilentDelay
	}
	next := a.next[share]
	next.at = now.Add(delay)
	a.next[share] = next
	return delay
}

func (a *asked) forget(share string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.next, share)
}
