package chain

import (
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// Datasync makes everything durable that was written before the call: the data of every unsealed file, and then the
// bits of the blocks that were entered. After an error the chain has failed.
func (c *Chain) Datasync() error {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	return c.flush()
}

// flush does the steps of layers.FlushSteps on every unsealed file. The caller holds flushing. A bit is written only
// after the data of all files is durable, and only for a block that was entered before that sync started. Nothing syncs
// recent, so the flush asks whether its write-out in the background has failed.
func (c *Chain) flush() error {
	if err := c.usable(); err != nil {
		return err
	}
	files := c.state.Load().written()
	known := make([]*presence, len(files))
	noted := make([]bool, len(files))
	for i, f := range files {
		known[i] = f.presence()
	}
	for _, step := range layers.FlushSteps() {
		for i, f := range files {
			var err error
			switch {
			case step == layers.SyncData:
				if err = f.syncData(); err == nil && known[i] != nil {
					err = known[i].lostEntries()
				}
			case known[i] == nil:
			case step == layers.NoteEntries:
				noted[i] = known[i].note()
			case !noted[i]:
			case step == layers.WriteBits:
				err = known[i].writeNoted()
			case step == layers.SyncMaps:
				err = known[i].settle()
			}
			if err != nil {
				return c.fail(fmt.Errorf("flush file %d: %w", f.n, err))
			}
		}
	}
	return c.Err()
}

// settle ends the flush of one map.
func (p *presence) settle() error {
	if err := p.sync(); err != nil {
		return err
	}
	p.shown()
	return p.settled()
}
