package volume

import (
	"sync"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// turns are the rebuilds that this process has begun and the cache may not show yet. Without
// them, volumes whose turns come at once would not count each other, and a node would get more
// rebuilds than its limit.
//
//	begun --> written, or failed --> the cache has the engine as it is then: forgotten
type turns struct {
	mu    sync.Mutex
	begun map[string]turn // by volume; guarded by mu
}

type turn struct {
	node string
	// over: the write of the engine has ended, so the cache can show what came of it.
	over bool
}

// take notes that a volume begins a rebuild on a node.
func (t *turns) take(volume, node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begun == nil {
		t.begun = map[string]turn{}
	}
	t.begun[volume] = turn{node: node}
}

// wrote notes that what the volume began was written, or was not.
func (t *turns) wrote(volume string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if was, ok := t.begun[volume]; ok {
		was.over = true
		t.begun[volume] = was
	}
}

// forget drops what is known of a volume that is gone.
func (t *turns) forget(volume string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.begun, volume)
}

// correct changes what the cache makes of a volume's claim where it does not show yet what the volume
// has begun. e is the engine that the claim was made from; nil if there is none.
func (t *turns) correct(claim Claim, e *longhorn.Engine, isStale func(*longhorn.Engine) bool) Claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, ok := t.begun[claim.Volume]
	switch {
	case !ok:
	case e == nil, was.over && !isStale(e):
		delete(t.begun, claim.Volume)
	default:
		claim.Runs, claim.Wants = was.node, nil
	}
	return claim
}
