package sharemanager

import (
	"errors"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
)

// unmade remembers why pods could not be made, for the status: an admission webhook or a quota may refuse them for as long as people let it.
type unmade struct {
	mu   sync.Mutex
	whys map[string]string // by the share's name
}

// tried takes in how the last try ended; nil: the pod is made.
func (u *unmade) tried(share string, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil || errors.Is(err, queue.ErrStale) {
		delete(u.whys, share)
		return
	}
	if u.whys == nil {
		u.whys = map[string]string{}
	}
	u.whys[share] = err.Error()
}

// why returns why a share's pod could not be made; "": it could, or nobody tried.
func (u *unmade) why(share string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.whys[share]
}
