package chain

import (
	"errors"
	"fmt"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// An opening settles the files that an earlier process may have written to. A process that was killed leaves data and
// bits in the page cache that are not durable. After a failed sync the cache has content that the disk does not have,
// and no later sync changes that.
//
//  1. sync data and maps, and ask whether recent could be written out. An error says that a sync before the opening has
//     failed, or that entries are lost. Each recent records it
//  2. layers.Believe decides from this, the boot and the disk which records count
//  3. drop data and maps from the cache. After step 1 this loses nothing. An earlier sync may have failed without a
//     record of it, for example when the process was killed at that moment. From now on reads return the content of the disk,
//     and a flush or a merge relies on bits that the disk has
//  4. recent counts, or starts again without entries
//
// If the last opening was closed in order, nothing can be lost, and steps 1 to 3 have nothing to do.

// settle does these steps. unsealed are the files that a flush covers, merged are all other files of layers with
// several files.
func (c *Chain) settle(unsealed, merged []*file) error {
	failed := false
	all := append(slices.Clone(unsealed), merged...)
	if c.opts.Clean {
		all = nil
	}
	var recents []*recent
	for _, f := range unsealed {
		if p := f.presence(); p != nil && p.recent != nil {
			recents = append(recents, p.recent)
		}
	}
	for _, f := range all {
		lost, err := c.syncOld(f)
		if err != nil {
			return err
		}
		if lost && !failed {
			if err := recordLoss(recents); err != nil {
				return err
			}
		}
		failed = failed || lost
	}
	if c.trust = layers.Believe(c.opening(recents, failed)); c.opts.Clean {
		c.trust = layers.Trust{Recent: true}
	}
	if c.trust.Distrust && c.opts.OnDistrust != nil {
		if err := c.opts.OnDistrust(); err != nil {
			return err
		}
	}
	for _, f := range all {
		if err := c.drop(f); err != nil {
			return err
		}
	}
	for _, f := range unsealed {
		p := f.presence()
		if p == nil || p.recent == nil {
			continue
		}
		if c.trust.Recent && p.recent.boot == c.opts.BootID {
			p.believe(blocksOf(f.size.Load()))
			continue
		}
		if err := p.recent.restart(nil, c.opts.BootID); err != nil {
			return err
		}
	}
	return nil
}

// recordLoss records in each recent that a sync has failed, the newest first: the one of the active file is started again
// last. The kernel has reported the failure, and reports it no second time. If this opening is stopped, the next one
// knows the failure only from this record.
func recordLoss(recents []*recent) error {
	for _, r := range slices.Backward(recents) {
		if err := r.fail(); err != nil {
			return err
		}
	}
	return nil
}

// opening has the facts about the time since recent was written.
func (c *Chain) opening(recents []*recent, failed bool) layers.Opening {
	o := layers.Opening{FailedSync: c.opts.FailedSync || failed, SameSuperblock: c.opts.SameSuperblock}
	active := c.state.Load().active().n
	var found []layers.Recent
	for _, r := range recents {
		found = append(found, layers.Recent{SameBoot: c.opts.isPresent(r.boot), Active: r.n == active, Empty: len(r.log) == 0})
		o.FailedSync = o.FailedSync || r.failed && c.opts.isPresent(r.boot)
	}
	o.SameBoot = c.opts.BootID != "" && layers.SameBoot(found)
	return o
}

// syncOld syncs a file that an earlier process may have written to. It reports whether data was lost before.
func (c *Chain) syncOld(f *file) (lost bool, err error) {
	defer c.opts.progress()
	synced := func(o fsys.File) error {
		if err := o.Datasync(); err != nil { // the error of an earlier write-out is reported once
			lost = true
			return o.Datasync()
		}
		return nil
	}
	if err := synced(f.data); err != nil {
		return true, fmt.Errorf("sync %s: %w", dataName(f.n), err)
	}
	if f.probe.WriteError() != nil {
		lost = true
	}
	if p := f.presence(); p != nil {
		if err := synced(p.bits.file); err != nil {
			return true, fmt.Errorf("sync %s: %w", mapName(f.n), err)
		}
		lost = p.lostEntries() != nil || lost
	}
	return lost, nil
}

// errStaysCached means that a part of a file stays cached and differs from the disk.
var errStaysCached = errors.New("the kernel does not drop the file from its cache")

// drop makes reads of a file return the content of the disk.
func (c *Chain) drop(f *file) error {
	if err := c.dropFile(f.data, dataName(f.n), f.size.Load()); err != nil {
		return err
	}
	p := f.presence()
	if p == nil {
		return nil
	}
	c.cache.drop(p.bits)
	return c.dropFile(p.bits.file, mapName(f.n), p.bits.bytes)
}

// dropFile drops a file from the page cache. Some parts may stay, because a program reads or locks them. They are
// written to the disk as they read: each of their blocks has the content of the disk, or a later one.
func (c *Chain) dropFile(o fsys.File, name string, size int64) error {
	if size == 0 {
		return nil
	}
	kept, err := o.DropCache([]fsys.Range{{Off: 0, Length: size}}, c.opts.progress)
	if err != nil {
		return fmt.Errorf("drop %s: %w", name, err)
	}
	if len(kept) == 0 {
		return nil
	}
	err = o.WriteThrough(kept, c.opts.progress)
	if err == nil {
		err = o.Datasync()
	}
	if err != nil {
		return fmt.Errorf("%s: %w: write %d parts directly to the disk: %w", name, errStaysCached, len(kept), err)
	}
	return nil
}
