package page

import (
	"context"
	"slices"
	"sync"
)

// daemons are the daemons of all nodes. A test sets their answers.
type daemons struct {
	mu      sync.Mutex
	err     error    // guarded by mu; the error with which trims fail
	trimmed []string // guarded by mu; node/volume of each trim that succeeded
}

// trims returns node/volume of each trim that succeeded.
func (d *daemons) trims() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.trimmed)
}

// TrimFilesystem implements manager.NodeDaemons.
func (d *daemons) TrimFilesystem(_ context.Context, node, _, volume string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return false, d.err
	}
	d.trimmed = append(d.trimmed, node+"/"+volume)
	return true, nil
}

// answer makes all later trims fail with err. If err is nil, they succeed.
func (d *daemons) answer(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}
