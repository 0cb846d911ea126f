package chain

import (
	"errors"
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// content is the content below a layer: the view at a border, or the volume. The caller holds Chain.reads.
type content struct {
	chain layers.Chain
	index int // of the top layer of the view
	files map[layers.File]*file
	// volume is the state whose volume it is; nil for the view at a border, which cannot use the index.
	volume *state
}

// volume is the content of the volume.
func (s *state) volume() content {
	return content{chain: s.list.chain, index: s.list.chain.Head(), files: s.files, volume: s}
}

// sources returns, for each of the blocks [first, first+n), the file from which it is read; nil if no layer has it. It
// asks the layers from the top, or from the layer that the index names, so it reads no map below the layers that have
// all of the blocks.
func (v content) sources(first, n int64) ([]*file, error) {
	windows := map[layers.File]window{}
	var failed error
	has := func(f layers.File, b int64) bool {
		w, known := windows[f]
		if !known && failed == nil {
			if w, failed = v.files[f].window(first, n); failed == nil {
				windows[f] = w
			}
		}
		return failed == nil && w.Has(b-first)
	}
	found, find := make([]*file, n), v.finder(has)
	for i := range n {
		f, ok := find(first + i)
		if failed != nil {
			return nil, failed
		}
		if ok {
			found[i] = v.files[f]
		}
	}
	return found, nil
}

// finder returns how the file of a block is found. The volume asks the index below the unsealed layers. A page that
// cannot be made, because a map cannot be read, starts the search at the top: perhaps the search does not need that map.
func (v content) finder(has layers.Has) func(block int64) (layers.File, bool) {
	if v.volume == nil || !v.volume.index.isUsed(v.volume) {
		return func(b int64) (layers.File, bool) { return v.chain.Find(v.index, b, has) }
	}
	var page indexPage
	at := int64(-1)
	slot := func(b int64) layers.File {
		if n := b / indexPageBlocks; n != at {
			var err error
			if page, err = v.volume.index.page(v.volume, n); err != nil {
				return v.chain.Next
			}
			at = n
		}
		return page.slot(b % indexPageBlocks)
	}
	return func(b int64) (layers.File, bool) { return v.chain.FindFrom(slot, b, has) }
}

// part is a range of the view that is read from one file. No file: the range reads as zeroes.
type part struct {
	file     *file
	off, end int64
}

// parts divides [off, end) by the files from which it is read.
func (v content) parts(off, end int64) (parts []part, err error) {
	first, last := layers.Covered(off, end-off)
	from, err := v.sources(first, last-first)
	if err != nil {
		return nil, err
	}
	for i, f := range from {
		b := first + int64(i)
		p := part{file: f, off: max(off, b*layers.BlockBytes), end: min(end, (b+1)*layers.BlockBytes)}
		if n := len(parts); n > 0 && parts[n-1].file == f {
			parts[n-1].end = p.end
		} else {
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// readAt fills p.
func (v content) readAt(p []byte, off int64) error {
	parts, err := v.parts(off, off+int64(len(p)))
	if err != nil {
		return err
	}
	for _, part := range parts {
		to := p[part.off-off : part.end-off]
		if part.file == nil {
			clear(to)
			continue
		}
		if err := part.file.readAt(to, part.off); err != nil {
			return err
		}
	}
	return nil
}

// maxExtents limits one answer; the caller asks again for the rest.
const maxExtents = 4096

// extentBlocks is how many blocks are looked up at once.
const extentBlocks = 16 << 10

// extents describes [off, end), starting at off and ending at end or after maxExtents extents. A hole in a present
// block reads as zeroes, so it is a hole of the view.
func (v content) extents(off, end int64) ([]nbd.Extent, error) {
	l := extentList{off: off, end: end, found: []nbd.Extent{}}
	for l.off < end && !l.isFull() {
		// Up to a multiple, so that the parts end at the borders of blocks.
		stop := min(end, (l.off/layers.BlockBytes+extentBlocks)*layers.BlockBytes)
		parts, err := v.parts(l.off, stop)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			if l.isFull() {
				break
			}
			if err := l.addPart(p); err != nil {
				return nil, err
			}
		}
	}
	return l.found, nil
}

// extentList collects extents that are adjacent, and not empty.
type extentList struct {
	off, end int64
	found    []nbd.Extent
}

func (l *extentList) isFull() bool { return len(l.found) >= maxExtents }

func (l *extentList) add(to int64, flags nbd.ExtentFlags) {
	if to <= l.off {
		return
	}
	if n := len(l.found); n > 0 && l.found[n-1].Flags == flags {
		l.found[n-1].Length += to - l.off
	} else {
		l.found = append(l.found, nbd.Extent{Offset: l.off, Length: to - l.off, Flags: flags})
	}
	l.off = to
}

// addPart adds data and holes of one part.
func (l *extentList) addPart(p part) error {
	const hole = nbd.ExtentHole | nbd.ExtentZero
	var data fsys.File
	end := p.off
	if p.file != nil {
		var err error
		if data, err = p.file.reader(); err != nil {
			return err
		}
		end = min(p.end, p.file.size.Load())
	}
	for l.off < end && !l.isFull() {
		next, err := data.NextData(l.off)
		if err != nil {
			return err
		}
		l.add(min(next, end), hole)
		if l.off >= end {
			break
		}
		if next, err = data.NextHole(l.off); err != nil {
			return err
		}
		l.add(min(next, end), 0)
	}
	if l.off >= end {
		l.add(p.end, hole)
	}
	return nil
}

// ReadAt fills p with the volume's content.
func (c *Chain) ReadAt(p []byte, off int64) error {
	c.reads.RLock()
	defer c.reads.RUnlock()
	if err := c.Err(); err != nil {
		return err
	}
	s := c.state.Load()
	if err := inRange(off, int64(len(p)), s.size()); err != nil || len(p) == 0 {
		return err
	}
	return s.volume().readAt(p, off)
}

// Extents describes [off, end) of the volume, starting at off and ending at end or after maxExtents extents.
func (c *Chain) Extents(off, end int64) ([]nbd.Extent, error) {
	c.reads.RLock()
	defer c.reads.RUnlock()
	if err := c.Err(); err != nil {
		return nil, err
	}
	s := c.state.Load()
	if err := inRange(off, end-off, s.size()); err != nil {
		return nil, err
	}
	return s.volume().extents(off, end)
}

// Size is the size of the volume.
func (c *Chain) Size() (int64, error) { return c.state.Load().size(), c.Err() }

// ID identifies the file that takes changes.
func (c *Chain) ID() (fsys.ID, error) {
	c.reads.RLock()
	defer c.reads.RUnlock()
	if err := c.Err(); errors.Is(err, ErrClosed) {
		return fsys.ID{}, err
	}
	data, err := c.state.Load().active().reader()
	if err != nil {
		return fsys.ID{}, err
	}
	return data.ID()
}

// AllocatedBytes is the space that the data of all layers takes.
func (c *Chain) AllocatedBytes() (sum int64, err error) {
	c.reads.RLock()
	defer c.reads.RUnlock()
	if err := c.Err(); errors.Is(err, ErrClosed) {
		return 0, err
	}
	for _, f := range c.state.Load().files {
		data, err := f.reader()
		if err != nil {
			return 0, err
		}
		n, err := data.AllocatedBytes()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func inRange(off, length, size int64) error {
	if off < 0 || length < 0 || off > size || length > size-off {
		return fmt.Errorf("%d bytes at offset %d of %d bytes: %w", length, off, size, ErrRange)
	}
	return nil
}
