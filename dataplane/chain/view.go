package chain

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// View reads the content at a sealed border. It keeps its files, and the order of its layers, from its opening on. So
// deletions of older points do not disturb it: a merge moves blocks between files that the view has, and a file that
// leaves the list stays open. Only the border itself must stay. Join refuses to take it away while a view reads it.
// When Follow takes it away, the view ends.
type View struct {
	c       *Chain
	point   layers.Point
	content content
	ended   atomic.Pointer[error]
	// reading is held for reading by each read of the view, before Chain.reads. Close waits for it.
	reading sync.RWMutex
}

// View opens the content at a point for reading. The caller must Close it.
//
// The view is registered first, so that the border stays. Its files are opened without a lock, because a switch takes
// lane while no user is served. Meanwhile a merge may remove a file that is not open yet. Then its content is in
// another file, and the view starts again.
func (c *Chain) View(p layers.Point) (*View, error) {
	for {
		v, s, err := c.registerView(p)
		if err != nil {
			return nil, err
		}
		if err = v.open(); err == nil {
			return v, nil
		}
		err = errors.Join(err, v.Close())
		if !isMissing(err) || c.state.Load() == s {
			return nil, err
		}
	}
}

// registerView returns a view whose files may not be open, and the state that it is from.
func (c *Chain) registerView(p layers.Point) (*View, *state, error) {
	c.lane.Lock()
	defer c.lane.Unlock()
	if err := c.Err(); err != nil {
		return nil, nil, err
	}
	s := c.state.Load()
	i := s.list.chain.Border(p)
	if i < 0 || !s.list.chain.Layers[i].Top.Flushed {
		return nil, nil, fmt.Errorf("border %d: %w", p.Number, layers.ErrNoBorder)
	}
	v := &View{c: c, point: p, content: content{chain: s.list.chain, index: i, files: map[layers.File]*file{}}}
	for _, l := range s.list.chain.Layers[:i+1] {
		for _, n := range l.Files {
			v.content.files[n] = s.files[n]
			s.files[n].views++
		}
	}
	c.views[v] = struct{}{}
	return v, s, nil
}

// open opens the files, the highest first.
func (v *View) open() error {
	for _, l := range slices.Backward(v.content.chain.Layers[:v.content.index+1]) {
		for _, n := range slices.Backward(l.Files) {
			if err := v.content.files[n].open(false); err != nil {
				return err
			}
		}
	}
	return nil
}

// Size is the size of the volume at the point.
func (v *View) Size() int64 {
	l := v.content.chain.Layers[v.content.index].Files
	return v.content.files[l[len(l)-1]].size.Load()
}

// ReadAt fills p.
func (v *View) ReadAt(p []byte, off int64) error {
	v.beginRead()
	defer v.endRead()
	if err := v.check(off, int64(len(p))); err != nil || len(p) == 0 {
		return err
	}
	return v.content.readAt(p, off)
}

// Extents describes [off, end) as Chain.Extents does.
func (v *View) Extents(off, end int64) ([]nbd.Extent, error) {
	v.beginRead()
	defer v.endRead()
	if err := v.check(off, end-off); err != nil {
		return nil, err
	}
	return v.content.extents(off, end)
}

func (v *View) beginRead() {
	v.reading.RLock()
	v.c.reads.RLock()
}

func (v *View) endRead() {
	v.c.reads.RUnlock()
	v.reading.RUnlock()
}

// check returns why the range cannot be read. A chain that has failed is not read: after a failed sync the cache may
// show content that the disk lacks.
func (v *View) check(off, length int64) error {
	if err := v.ended.Load(); err != nil {
		return *err
	}
	if err := v.c.Err(); err != nil {
		return err
	}
	return inRange(off, length, v.Size())
}

// end makes later reads fail.
func (v *View) end(err error) { v.ended.CompareAndSwap(nil, &err) }

// Close closes the files that only this view has. It waits for the reads of the view first, without a lock of the
// chain: a switch takes lane while no user is served. It does not wait for any other read or change, which may hang in
// the disk. These do not use the files that it closes: a file has left the list before, and retire has waited for them.
func (v *View) Close() error {
	v.end(ErrClosed)
	v.awaitReads()
	v.c.lane.Lock()
	defer v.c.lane.Unlock()
	for _, err := range v.releaseLocked() {
		return err
	}
	return nil
}

// awaitReads returns when each read of the view that started before it has ended.
func (v *View) awaitReads() {
	v.reading.Lock()
	defer v.reading.Unlock()
}

// releaseLocked closes the files that have left the list and that no other view has. The caller holds lane.
func (v *View) releaseLocked() (errs []error) {
	if _, open := v.c.views[v]; !open {
		return nil
	}
	delete(v.c.views, v)
	for _, f := range v.content.files {
		if f.views--; f.views == 0 && f.retired {
			if err := f.close(); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}
