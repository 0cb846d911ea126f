package chain

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// Chain is the open data of one replica. The caller that opens it must Close it. Its methods may be called
// concurrently.
//
// Locks are taken in this order:
//
//	merging     one merge, or one Follow
//	lane        replacements of the list, one after another
//	keeping     a change of the kept maps
//	flushing    one flush, or the syncs of a piece of a merge, or the end of a removed file
//	changes     a change holds it for reading, from its lookup to its entry. A merge holds it for writing while it
//	            copies into a file that users write to. So does a replacement of the file that takes changes
//	reads       a read, and a change, hold it for reading from the lookup to the end of their I/O. A merge takes it for
//	            a moment before it punches, and so does the removal of a file. A view that closes does not take it: each
//	            view has a lock of its own for its reads, View.reading, which they take before this one
type Chain struct {
	dir   fsys.Dir
	opts  Options
	cache *Cache
	trust layers.Trust
	store listStore // guarded by lane

	merging  sync.Mutex
	lane     sync.Mutex
	keeping  sync.Mutex
	flushing sync.Mutex
	changes  sync.RWMutex
	reads    sync.RWMutex

	state atomic.Pointer[state] // replaced under lane
	// attempt is the last point that was prepared in this opening. Guarded by lane.
	attempt layers.Point
	views   map[*View]struct{} // guarded by lane
	// copied has the blocks that a merge has copied into a file that users write to, and that do not count yet. Guarded
	// by changes.
	copied copiedBlocks
	// local is the last local head of this opening. Guarded by merging.
	local   layers.File
	reserve atomic.Int64
	kept    atomic.Pointer[[]keptMap] // replaced under keeping

	failure atomic.Pointer[error]
}

// copiedBlocks are blocks of one file; the zero value has none.
type copiedBlocks struct {
	to     *file
	blocks overlay
}

func (c copiedBlocks) has(f *file, b int64) bool { return f == c.to && c.blocks.has(b) }

// state is one list with its files. It is never changed, only replaced.
type state struct {
	list     list
	files    map[layers.File]*file
	prepared bool // changes still go to the file below the newest border
	index    *index
}

// active is the file that takes changes.
func (s *state) active() *file { return s.files[s.list.chain.Active(s.prepared)] }

// top is the newest file. Its size is the size of the volume.
func (s *state) top() *file { return s.files[s.list.chain.Active(false)] }

func (s *state) size() int64 { return s.top().size.Load() }

// unsealed are the files that a flush syncs.
func (s *state) unsealed() (files []*file) {
	for _, n := range s.list.chain.Unsealed() {
		files = append(files, s.files[n])
	}
	return files
}

// written are the unsealed files that may have something to be synced. A sealed file may become unsealed when a border
// is joined. If it is not open for changes, nothing was written to it since it was sealed.
func (s *state) written() []*file {
	return slices.DeleteFunc(s.unsealed(), func(f *file) bool { return !f.isForChanges() })
}

// layers returns the list as the rules see it.
func (c *Chain) chain() layers.Chain { return c.state.Load().list.chain }

// Layers returns the layers of the replica, as the list has them. The caller must not change them.
func (c *Chain) Layers() layers.Chain { return c.chain() }

// Generation counts the replacements of the list.
func (c *Chain) Generation() int64 { return c.state.Load().list.generation }

// Trust says which records the opening believed. With Distrust, other members are preferred as the source, unless the
// replica's metadata says that nothing can be missing.
func (c *Chain) Trust() layers.Trust { return c.trust }

// Err returns why the chain has failed; nil while it serves.
func (c *Chain) Err() error {
	if err := c.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Cause is the kind of the failure that Err returns.
func (c *Chain) Cause() Cause { return causeOf(c.Err()) }

// fail ends the chain. The first failure counts. If data may be lost, each recent records it. It returns the error.
func (c *Chain) fail(err error) error {
	if c.failure.CompareAndSwap(nil, &err) && causeOf(err).losesData() {
		for _, f := range c.state.Load().written() {
			if p := f.presence(); p != nil {
				p.failed()
			}
		}
	}
	return err
}

// check ends the chain on each error of the disk except a lack of space. The kernel reports each loss of written data
// once for each opening, so no call may ignore it. After an uncertain replacement of the list, a lack of space is not
// harmless either: the list may already name the new files.
func (c *Chain) check(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errSync), errors.Is(err, ErrUncertain), errors.Is(err, fsys.ErrUncertain):
		return c.fail(err)
	case isNoSpace(err), errors.Is(err, ErrRange):
		return err
	}
	return c.fail(err)
}

// usable returns why the chain cannot be changed.
func (c *Chain) usable() error {
	if c.opts.ReadOnly {
		return ErrReadOnly
	}
	return c.Err()
}

// commit replaces the list: the commit point of each change of the layers. The caller holds lane.
//
//  1. create the new files, durably, then their names
//  2. replace the list
//  3. let reads and changes use it
//  4. unlink the files that it no longer names
//
// So the list never names a file that is not durable, or that is gone. An error before step 2 changes nothing.
func (c *Chain) commit(next layers.Chain, prepared bool) error {
	if err := c.usable(); err != nil {
		return err
	}
	was := c.state.Load()
	to := &state{list: list{uid: was.list.uid, generation: was.list.generation + 1, chain: next}, prepared: prepared, index: was.index}
	encoded, err := to.list.encode()
	if err != nil {
		return err
	}
	created, err := c.createMissing(was, to)
	if err == nil {
		err = c.store.replace(encoded)
	}
	if err != nil {
		err = c.check(err)
		if c.Err() == nil {
			for _, f := range created {
				_ = f.close()
				_ = remove(c.dir, f.n) // best effort: the next file of this number, or the next opening, repeats it
			}
		}
		return err
	}
	c.publish(was, to)
	c.retire(was, to)
	return nil
}

// createMissing fills the files of a state. It returns the new ones.
func (c *Chain) createMissing(was, to *state) (created []*file, err error) {
	to.files = map[layers.File]*file{}
	for _, n := range fileNumbers(to.list.chain) {
		if f := was.files[n]; f != nil {
			to.files[n] = f
			continue
		}
		f := &file{n: n, dir: c.dir, uid: c.opts.UID, cache: c.cache}
		created = append(created, f)
		if err := create(c.dir, c.opts.UID, n, was.size(), c.opts.BootID, c.opts.entries()); err != nil {
			return created, err
		}
		if err := f.openNew(); err != nil {
			return created, err
		}
		to.files[n] = f
	}
	if len(created) > 0 {
		return created, c.dir.Sync()
	}
	return nil, nil
}

// publish lets reads and changes use a state. If another file takes changes from now on, it waits for the changes under
// way: a merge may rely on it that no change is left in the old file.
func (c *Chain) publish(was, to *state) {
	lowest := to.files[to.list.chain.Layers[0].Files[0]]
	lowest.lowest.Store(true)
	if was.active() == to.active() {
		c.state.Store(to)
		return
	}
	c.changes.Lock()
	defer c.changes.Unlock()
	c.state.Store(to)
}

// retire removes the files that a state no longer has. Views may still read them. It also removes the map of a file
// that has become the lowest one.
func (c *Chain) retire(was, to *state) {
	lowest := to.files[to.list.chain.Layers[0].Files[0]]
	lost := was.files[was.list.chain.Layers[0].Files[0]] != lowest
	var gone []*file
	for n, f := range was.files {
		if to.files[n] == nil {
			gone = append(gone, f)
		}
	}
	if len(gone) == 0 && !lost {
		return
	}
	c.awaitReaders()
	c.flushing.Lock()
	defer c.flushing.Unlock()
	for _, f := range gone {
		f.retired = true
		_ = remove(c.dir, f.n) // best effort: the next opening repeats it
		if f.views == 0 {
			_ = f.close() // no one reads it
		}
	}
	if lost {
		lowest.dropMap()
	}
}

// awaitReaders returns when each read that started before it has ended. A later read finds the blocks that count now.
func (c *Chain) awaitReaders() {
	c.reads.Lock()
	defer c.reads.Unlock()
}

// Close closes all files. It makes nothing durable. No call may be under way. Reads of views fail later.
func (c *Chain) Close() error {
	c.merging.Lock()
	defer c.merging.Unlock()
	c.lane.Lock()
	defer c.lane.Unlock()
	_ = c.fail(ErrClosed)
	c.flushing.Lock()
	defer c.flushing.Unlock()
	c.changes.Lock()
	defer c.changes.Unlock()
	c.awaitReaders()
	var errs []error
	for v := range c.views {
		v.end(ErrClosed)
		errs = append(errs, v.releaseLocked()...)
	}
	for _, f := range c.state.Load().files {
		errs = append(errs, f.close())
	}
	errs = append(errs, c.state.Load().index.close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the layers: %w", err)
	}
	return nil
}

// fileNumbers are the files of a list, the lowest first.
func fileNumbers(c layers.Chain) (files []layers.File) {
	for _, l := range c.Layers {
		files = append(files, l.Files...)
	}
	return files
}
