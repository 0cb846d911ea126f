package volume

import (
	"sync"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// turns are the rebuilds that this process has started and that the cache may not show yet. Without them, several
// volumes could take the same turn without counting each other's rebuilds, and a node would get more rebuilds than its
// limit.
//
//	started --> written, or failed --> the cache has the engine's state after that: forgotten
type turns struct {
	mu    sync.Mutex
	begun map[string]turn // by volume; guarded by mu
}

type turn struct {
	node string
	// over: the write of the engine has returned, so the cache can show its result.
	over bool
}

// take records that a volume starts a rebuild on a node.
func (t *turns) take(volume, node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begun == nil {
		t.begun = map[string]turn{}
	}
	t.begun[volume] = turn{node: node}
}

// wrote records that the write of a started rebuild has returned, with or without success.
func (t *turns) wrote(volume string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if was, ok := t.begun[volume]; ok {
		was.over = true
		t.begun[volume] = was
	}
}

// forget removes the record of a volume that is gone.
func (t *turns) forget(volume string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.begun, volume)
}

// correct adjusts a volume's claim, as the cache shows it, if the cache does not show a started rebuild yet. e is the
// engine on which the claim is based; nil if there is none.
func (t *turns) correct(claim copies.Claim, e *longhorn.Engine, isStale func(*longhorn.Engine) bool) copies.Claim {
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
