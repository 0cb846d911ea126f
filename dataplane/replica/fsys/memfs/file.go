package memfs

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

const sectorBytes = 512

type sector = [sectorBytes]byte

// unwritten is in the place of a sector that is allocated and was never written since: ext4 and xfs tell it as a hole.
var unwritten = &sector{}

// fileNode holds content by sector; a sector that is absent is a hole.
type fileNode struct {
	inode                 uint64
	size, durableSize     int64
	content, durableBytes map[int64]*sector // as read through the cache, and as stored on the disk
	unsynced              map[int64]bool
	// lost has the sectors that could not be written out: content has the written data, and the disk has the earlier
	// data.
	lost     map[int64]bool
	errors   int // counts failed write-outs
	reported int // number of the last error that any opening has reported
}

func newFile(inode uint64) *fileNode {
	return &fileNode{
		inode: inode, content: map[int64]*sector{}, durableBytes: map[int64]*sector{}, unsynced: map[int64]bool{}, lost: map[int64]bool{},
	}
}

func (n *fileNode) number() uint64 { return n.inode }

type file struct {
	fs       *FS
	node     *fileNode
	name     string
	path     string
	epoch    int
	reported int // number of the node's last error that this opening has reported
}

func (f *file) enter(kind string) error {
	f.fs.mu.Lock()
	var err error
	switch {
	case f.fs.dead || f.epoch != f.fs.epoch:
		err = ErrCrashed
	case kind != "":
		err = f.fs.stepLocked(kind, f.name)
	}
	if err != nil {
		f.fs.mu.Unlock()
	}
	return err
}

func (f *file) ReadAt(p []byte, off int64) error {
	if err := f.enter(""); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	if off+int64(len(p)) > f.node.size {
		return fmt.Errorf("read at %d of a file of %d: %w", off, f.node.size, io.ErrUnexpectedEOF)
	}
	for len(p) > 0 {
		var from sector
		if s := f.node.content[off/sectorBytes]; s != nil {
			from = *s
		}
		n := copy(p, from[off%sectorBytes:])
		p, off = p[n:], off+int64(n)
	}
	return nil
}

func (f *file) WriteAt(p []byte, off int64) error {
	if err := f.enter("write"); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	if f.fs.full && !f.node.has(off, int64(len(p))) {
		return syscall.ENOSPC
	}
	f.node.size = max(f.node.size, off+int64(len(p)))
	f.node.put(p, off)
	return nil
}

// has reports whether every sector of a range is allocated.
func (n *fileNode) has(off, length int64) bool {
	for i := off / sectorBytes; i*sectorBytes < off+length; i++ {
		if n.content[i] == nil {
			return false
		}
	}
	return true
}

func (n *fileNode) put(p []byte, off int64) {
	for len(p) > 0 {
		i := off / sectorBytes
		s := &sector{}
		if old := n.content[i]; old != nil {
			*s = *old
		}
		c := copy(s[off%sectorBytes:], p)
		n.content[i] = s
		if !n.lost[i] || n.durableBytes[i] != nil {
			n.unsynced[i] = true
			delete(n.lost, i)
		}
		p, off = p[c:], off+int64(c)
	}
}

func (f *file) Truncate(size int64) error {
	if err := f.enter("truncate"); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	f.node.size = size
	return nil
}

func (f *file) PunchHole(off, length int64) error { return f.zero("punch", off, length, true) }

func (f *file) ZeroRange(off, length int64) error { return f.zero("zero", off, length, false) }

// zero first writes out the range, as Host does. So it also reports earlier failed write-outs.
func (f *file) zero(kind string, off, length int64, free bool) error {
	if err := f.enter(kind); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	if err := f.writeErrorLocked(); err != nil {
		return err
	}
	f.node.put(make([]byte, length), off)
	for i := (off + sectorBytes - 1) / sectorBytes; (i+1)*sectorBytes <= off+length; i++ {
		if free {
			delete(f.node.content, i)
		} else {
			f.node.content[i] = unwritten
		}
	}
	return nil
}

func (f *file) NextData(off int64) (int64, error) { return f.next(off, true) }

func (f *file) NextHole(off int64) (int64, error) { return f.next(off, false) }

func (f *file) next(off int64, data bool) (int64, error) {
	if err := f.enter(""); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	isData := func(s *sector) bool { return s != nil && s != unwritten }
	for off < f.node.size && isData(f.node.content[off/sectorBytes]) != data {
		off = (off/sectorBytes + 1) * sectorBytes
	}
	return min(off, f.node.size), nil
}

func (f *file) Size() (int64, error) {
	if err := f.enter(""); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	return f.node.size, nil
}

func (f *file) ID() (fsys.ID, error) { return fsys.ID{Inode: f.node.inode}, nil }

func (f *file) AllocatedBytes() (int64, error) {
	if err := f.enter(""); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	return int64(len(f.node.content)) * sectorBytes, nil
}

func (f *file) Close() error { return nil }

func keep(m map[int64]*sector, i int64, s *sector) {
	if s == nil {
		delete(m, i)
		return
	}
	m[i] = s
}

// Crash stops the machine now, if a hook did not already, and starts it again. Every open handle is dead, locks are
// released and the hook is removed. Of the unsynced data, a part chosen by rng remains.
func (f *FS) Crash(rng *rand.Rand) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch++
	f.dead, f.before = false, nil
	f.root.crash(rng)
}

// Kill stops the process now, if a hook did not already: every open handle is dead, locks are released and the hook is
// removed. The machine keeps running, so the next process sees everything that was written. A Crash may still lose
// unsynced data.
func (f *FS) Kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch++
	f.dead, f.before = false, nil
	f.root.unlock()
}

func (d *dirNode) unlock() {
	d.locked = nil
	for _, n := range d.entries {
		if sub, ok := n.(*dirNode); ok {
			sub.unlock()
		}
	}
}

func (d *dirNode) crash(rng *rand.Rand) {
	for _, c := range d.journal[:rng.IntN(len(d.journal)+1)] {
		c(d.durable)
	}
	d.journal, d.locked = nil, nil
	d.entries = map[string]node{}
	names := []string{}
	for name := range d.durable {
		names = append(names, name)
	}
	slices.Sort(names) // so that one seed always loses the same data
	for _, name := range names {
		n := d.durable[name]
		d.entries[name] = n
		switch n := n.(type) {
		case *dirNode:
			n.crash(rng)
		case *fileNode:
			n.crash(rng)
		}
	}
}

func (n *fileNode) crash(rng *rand.Rand) {
	lost := []int64{}
	for i := range n.unsynced {
		lost = append(lost, i)
	}
	slices.Sort(lost)
	for _, i := range lost {
		switch rng.IntN(3) {
		case 0: // old
		case 1: // new
			keep(n.durableBytes, i, n.content[i])
		case 2:
			keep(n.durableBytes, i, torn(n.durableBytes[i], n.content[i], rng))
		}
	}
	if rng.IntN(2) == 0 {
		n.durableSize = n.size
	}
	for i := range n.durableBytes {
		if i*sectorBytes >= n.durableSize {
			delete(n.durableBytes, i) // a file that grows again has zeroes there
		}
	}
	n.size, n.unsynced, n.lost, n.content = n.durableSize, map[int64]bool{}, map[int64]bool{}, map[int64]*sector{}
	n.reported = n.errors
	for i, s := range n.durableBytes {
		n.content[i] = s
	}
}

// torn mixes two images of a sector byte by byte.
func torn(a, b *sector, rng *rand.Rand) *sector {
	mixed := sector{}
	if a != nil {
		mixed = *a
	}
	for i := range mixed {
		if rng.IntN(2) == 0 {
			continue
		}
		mixed[i] = 0
		if b != nil {
			mixed[i] = b[i]
		}
	}
	return &mixed
}

var (
	_ fsys.FS   = (*FS)(nil)
	_ fsys.Dir  = (*dir)(nil)
	_ fsys.File = (*file)(nil)
)
