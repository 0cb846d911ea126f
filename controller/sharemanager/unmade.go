package sharemanager

import (
	"errors"
	"sync"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
)

// unmade stores, for the status, why the API server refused pods. An admission webhook or a quota may refuse them until
// an administrator changes it.
type unmade struct {
	mu   sync.Mutex
	whys map[string]refusal // by the share's name
}

type refusal struct {
	text string
	at   time.Time
}

// newsEvery is how long a reason stays although the next one has another text. What unmade stores is written into the
// status, and that write triggers the next attempt. The message of a broken connection, such as one to a webhook,
// contains a different port each time. So without this pause each attempt would start another one.
const newsEvery = 30 * time.Second

// tried records how the last attempt ended; nil: the pod is created.
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

// why returns why a share's pod could not be created; "": it could, or this process has not tried.
func (u *unmade) why(share string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.whys[share].text
}
