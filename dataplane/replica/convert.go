package replica

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/chain"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// A replica changes to format 2 at its first border, while an engine writes to it:
//
//  1. the list of layers is written: its only layer is data.img
//  2. the files are opened as a chain. Writes still go to data.img, by the earlier opening
//  3. metadata: the generation of the list, so format 2: the commit point
//  4. the chain takes the place of the flat file, in memory
//  5. the earlier opening is closed. Only now may the chain have another file, or free a block
//
// A crash before step 3 leaves format 1, and a list that nothing reads. The next change to format 2 writes it again.
// A crash after step 3 leaves a chain of one layer, with the same content.
//
// Step 4 holds three locks, so that no call uses the earlier opening afterwards:
//
//	syncing    no sync is under way
//	writing    no change is under way, and none starts
//	layout     no read is under way
//
// It waits for the calls under way, and for nothing else of the disk. Such a call may hang, and meanwhile no other call
// would start. So step 4 waits for a short time only, lets all calls continue, and tries again a few times. After that the
// snapshot is refused with ErrBusy. The metadata says format 2 then, and the replica still uses the flat file. The next
// attempt starts with the files of the list that exists.
//
// A sync that started before covers its data: it
// syncs the same file. Data that is not on the disk yet stays counted. The kernel reports a failure to write it out to
// each opening, the earlier ones and the new ones.

// makeLayered changes to format 2. The caller is in the lane.
func (r *Replica) makeLayered() error {
	if r.layers != nil {
		return nil
	}
	if r.growsTo() != 0 {
		return fmt.Errorf("the replica grows: %w", layers.ErrBusy)
	}
	isRecorded := r.meta.Layers > 0 // an earlier attempt has done step 3
	undo := func() {
		if !isRecorded && !r.hasFailed.Load() { // after a failure the metadata on the disk may have format 2
			r.removeList()
		}
	}
	if !isRecorded {
		if err := r.createList(); err != nil {
			return err
		}
	}
	files := newLayerFiles()
	out := newLayersWriteback(files, r.opts.Pace, r.opts.Clock, r.checkWrittenOut, r.failWriteBack)
	c, err := r.openFlatAsLayers(files)
	if err != nil {
		undo()
		return err
	}
	if !isRecorded {
		if err := r.update(func(m *Meta) { m.Layers = c.Generation() }); err != nil {
			err = errors.Join(fmt.Errorf("record the change to format 2: %w", err), c.Close())
			undo()
			return err
		}
	}
	return r.useLayers(c, out, files)
}

// openFlatAsLayers does step 2.
func (r *Replica) openFlatAsLayers(files *layerFiles) (*chain.Chain, error) {
	// Clean: nothing must be dropped from the cache, because this process has written it, and knows of no failure.
	c, err := chain.Open(layerDir{r.dir, files}, chain.Options{
		UID: r.meta.UID, Generation: max(1, r.meta.Layers), BootID: layersBoot(r.dir, r.opts.BootID), Clean: true, Reserve: r.opts.Reserve,
	})
	if err != nil {
		return nil, fmt.Errorf("open the layers: %w", err)
	}
	if size, err := c.Size(); err != nil || size != r.Size() {
		return nil, errors.Join(fmt.Errorf("the layers have %d bytes, not %d: %w", size, r.Size(), syscall.EIO), err, c.Close())
	}
	return c, nil
}

// createList does step 1. A directory of format 1 with a layer's file is not touched: the chain would take that file
// for a leftover, and remove it.
func (r *Replica) createList() error {
	names, err := r.dir.Names()
	if err != nil {
		return err
	}
	isLeft := isIndexLeft(r.dir, r.meta.UID)
	for _, name := range names {
		if chain.IsPart(name) && name != dataName && !isLeft(name) {
			return &pointError{invalid("the directory contains %q, which is not a file of format 1", name), ErrForeign}
		}
	}
	err = chain.Create(r.dir, r.meta.UID)
	if err != nil {
		r.removeList()
	}
	return err
}

// removeList removes what an attempt has left that has not reached the commit point. A release without layers removes
// no directory that has these files. The list goes last, because it shows whose index it is.
func (r *Replica) removeList() {
	for _, name := range slices.Concat([]string{layerIndexName}, chain.ListNames) {
		_ = r.dir.Unlink(name) // best effort: the next attempt repeats it
	}
}

// layerIndexName is the name of the index of package chain.
const layerIndexName = "index"

// isIndexLeft returns which names in a directory of format 1 are the index that an interrupted change of format has
// left. A list of this replica must be there as well: without it, the file is not ours.
func isIndexLeft(d fsys.Dir, uid string) func(name string) bool {
	_, listed := chain.Owns(d, uid)
	return func(name string) bool { return listed && name == layerIndexName }
}

// useLayers does steps 4 and 5.
func (r *Replica) useLayers(c *chain.Chain, out *writeback, files *layerFiles) error {
	was, err := r.exchangeData(c, out, files)
	if err != nil {
		return errors.Join(err, layered{Chain: c, out: out}.Close())
	}
	err = errors.Join(was.data.Close(), was.errors.Close()) // both were asked for failures
	r.changed()
	if r.opts.Log != nil {
		r.opts.Log.Info("Replica has changed to format 2")
	}
	return err
}

// opened is the data of a replica with its openings.
type opened struct {
	data   blocks
	errors writeErrors
}

const (
	// exchangeTry is how long reads, changes and flushes wait for one try of the exchange.
	exchangeTry = 200 * time.Millisecond
	// exchangePause is the time between two tries, in which all calls continue.
	exchangePause = 300 * time.Millisecond
	exchangeTries = 6
)

// exchangeData does step 4.
func (r *Replica) exchangeData(c *chain.Chain, out *writeback, files *layerFiles) (was opened, err error) {
	for i := range exchangeTries {
		if i > 0 {
			<-r.opts.Clock.After(exchangePause)
		}
		release, ok := r.stopCalls()
		if !ok {
			continue
		}
		defer release()
		// The earlier opening knows of each failure up to now, and the new ones of each later one.
		if err := errors.Join(r.writeError(), r.checkServing()); err != nil {
			return opened{}, err
		}
		was = opened{r.data, r.errors}
		files.owe(r.out.unsettled()) // first: the write-out that follow may start must find the files
		out.follow(r.out)
		r.layers, r.data, r.out, r.errors = c, layered{Chain: c, out: out, partial: &blockLocks{}}, out, files
		r.show()
		return was, nil
	}
	return opened{}, fmt.Errorf("change to format 2: requests do not end: %w", layers.ErrBusy)
}

// stopCalls takes all locks that calls of the data hold, and those of the questions to the openings. If it does not get
// one of them in time, it holds none.
func (r *Replica) stopCalls() (release func(), ok bool) {
	limit := r.opts.Clock.NewTimer(exchangeTry)
	defer limit.Stop()
	var held []func()
	release = func() {
		for _, unlock := range slices.Backward(held) {
			unlock()
		}
	}
	select {
	case r.syncing <- struct{}{}:
		held = append(held, func() { <-r.syncing })
	case <-limit.C():
		return nil, false
	}
	for _, p := range []*passage{r.writing, r.layout} {
		if !p.lockUntil(limit.C()) {
			release()
			return nil, false
		}
		held = append(held, p.unlock)
	}
	// No user of the data is inside now. A read that has returned its data may still ask for failures, and Disk.Check
	// may compare names. Both are short, unless the disk hangs.
	for _, m := range []*sync.Mutex{&r.checking, &r.files} {
		if !lockUntil(m, limit.C()) {
			release()
			return nil, false
		}
		held = append(held, m.Unlock)
	}
	return release, true
}

// lockUntil locks m, unless over has a value first.
func lockUntil(m *sync.Mutex, over <-chan time.Time) bool {
	for !m.TryLock() {
		select {
		case <-over:
			return false
		case <-time.After(time.Millisecond):
		}
	}
	return true
}
