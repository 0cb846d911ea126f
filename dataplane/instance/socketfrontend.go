package instance

import (
	"context"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// socketFrontend holds the connections of tools to one engine. If it is writable, it is the engine's frontend, and the
// volume is in use while a tool is connected. Otherwise the engine has another frontend or none, and tools are
// disconnected when it ends.
type socketFrontend struct {
	writable bool

	mu    sync.Mutex
	conns map[*func()]struct{} // guarded by mu; the function that drops each connection
	shut  bool                 // guarded by mu
}

var _ engine.Aborter = (*socketFrontend)(nil)

func newSocketFrontend(writable bool) *socketFrontend {
	return &socketFrontend{writable: writable, conns: map[*func()]struct{}{}}
}

// connect counts a connection until the returned function is called; false if the engine is ending.
func (f *socketFrontend) connect(drop func()) (closed func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shut {
		return nil, false
	}
	f.conns[&drop] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.conns, &drop)
	}, true
}

// cut admits no further tools and drops the connected ones.
func (f *socketFrontend) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shut = true
	for drop := range f.conns {
		(*drop)()
	}
}

// Start implements engine.Frontend. There is no device, so there is no endpoint.
func (f *socketFrontend) Start(context.Context, string, int64, nbd.Backend) (string, error) {
	return "", nil
}

// Stop implements engine.Frontend.
func (f *socketFrontend) Stop(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.conns) > 0 && !f.shut {
		return device.ErrInUse
	}
	f.shut = true
	return nil
}

// Abort implements engine.Aborter.
func (f *socketFrontend) Abort(context.Context) error {
	f.cut()
	return nil
}
