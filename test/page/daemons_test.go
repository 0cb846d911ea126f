package page

import (
	"context"
	"slices"
	"sync"
)

// daemons are those of all nodes; a test says what they answer.
type daemons struct {
	mu      sync.Mutex
	err     error    // guarded by mu; what trims fail with
	trimmed []string // guarded by mu; node/volume of each trim that succeeded
}

// trims are node/volume of each trim that succeeded.
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

// answer makes all later trims fail with err; nil: they succeed.
func (d *daemons) answer(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}
