package sharemanager

import (
	"errors"
	"sync"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
)

// unmade remembers why pods could not be made, for the status: an admission webhook or a quota may refuse them for as long as people let it.
type unmade struct {
	mu   sync.Mutex
	whys map[string]refusal // by the share's name
}

type refusal struct {
	text string
	at   time.Time
}

// newsEvery is how long a reason stays though the next one says something else. What is remembered is written into the status, which brings
// on the next try; and a connection that breaks, say to a webhook, has a port of its own in each message. So each try would begin another one.
const newsEvery = 30 * time.Second

// tried takes in how the last try ended; nil: the pod is made.
func (u *unmade) tried(share string, err error, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil || errors.Is(err, queue.ErrStale) {
		delete(u.whys, share)
		return
	}
	if last, ok := u.whys[share]; ok && now.Sub(last.at) < newsEvery {
		return
	}
	if u.whys == nil {
		u.whys = map[string]refusal{}
	}
	u.whys[share] = refusal{err.Error(), now}
}

// why returns why a share's pod could not be made; "": it could, or nobody tried.
func (u *unmade) why(share string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.whys[share].text
}
