package chain

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// lowestName is the data of file 1. A volume that had format 1 starts with it.
const lowestName = "data.img"

func dataName(n layers.File) string {
	if n == 1 {
		return lowestName
	}
	return fmt.Sprintf("%d.img", n)
}

func mapName(n layers.File) string    { return fmt.Sprintf("%d.map", n) }
func recentName(n layers.File) string { return fmt.Sprintf("%d.recent", n) }

// partNames are the names of all parts of a file. Recent is first: it must not be believed after another part is gone.
func partNames(n layers.File) []string { return []string{recentName(n), mapName(n), dataName(n)} }

// file is one file of a layer: its data, and which blocks it has. A file that only readers use is opened when it is
// needed, for reading.
type file struct {
	n     layers.File
	dir   fsys.Dir
	uid   string
	cache *Cache
	size  atomic.Int64 // valid when the file is open
	// lowest says that the file has no map and has every block. It is set once, and never cleared.
	lowest atomic.Bool

	mu      sync.Mutex
	isOpen  bool      // guarded by mu
	changes bool      // guarded by mu; the file is open for changes
	data    fsys.File // guarded by mu for opening and closing
	// probe is another opening of the data. It reports data that could not be written out, when a call for data has
	// received the kernel's report already. Only flushes ask it.
	probe fsys.File
	known *presence // guarded by mu; nil in the lowest file

	views   int  // guarded by Chain.lane; views that may read the file after it has left the list
	retired bool // guarded by Chain.lane; the file has left the list
}

// open opens the file for reading, or for changes. A file that is open for reading must not be in use by a merge or a
// flush while it is opened for changes.
func (f *file) open(forChanges bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.openLocked(forChanges)
}

func (f *file) openLocked(forChanges bool) (err error) {
	if f.isOpen && (f.changes || !forChanges) {
		return nil
	}
	mode := fsys.ReadOnly
	if forChanges {
		mode = fsys.ReadWrite
	}
	var opened []fsys.File
	open := func(name string, mode fsys.Mode) fsys.File {
		if err != nil {
			return nil
		}
		var o fsys.File
		if o, err = f.dir.OpenFile(name, mode); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
			return nil
		}
		opened = append(opened, o)
		return o
	}
	data := open(dataName(f.n), mode)
	var probe, bits fsys.File
	if forChanges {
		probe = open(dataName(f.n), fsys.ReadOnly)
	}
	if !f.lowest.Load() {
		bits = open(mapName(f.n), mode)
	}
	if err == nil {
		err = f.take(data, probe, bits)
	}
	if err != nil {
		for _, o := range opened {
			_ = o.Close() // nothing was written
		}
		return err
	}
	f.isOpen, f.changes = true, forChanges
	return nil
}

// take puts opened files in place of the ones for reading, if there are any.
func (f *file) take(data, probe, bits fsys.File) error {
	size, err := data.Size()
	if err != nil {
		return err
	}
	if bits != nil {
		m, err := openMap(bits, mapName(f.n), f.uid, f.n, blocksOf(size), f.cache)
		if err != nil {
			return err
		}
		if f.known == nil {
			f.known = newPresence(m, nil)
		} else {
			f.known.replaceMap(m)
		}
	}
	if f.data != nil {
		_ = f.data.Close() // it was only read
	}
	f.data, f.probe = data, probe
	f.size.Store(size)
	return nil
}

func (f *file) isForChanges() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changes
}

// presence returns which blocks the file has; nil in the lowest file.
func (f *file) presence() *presence {
	if f.lowest.Load() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known
}

// window returns which of the blocks [first, first+n) the file has.
func (f *file) window(first, n int64) (window, error) {
	if f.lowest.Load() {
		return window{first: first, n: n, all: true}, nil
	}
	if err := f.open(false); err != nil {
		return window{}, err
	}
	p := f.presence()
	if p == nil { // it has become the lowest file just now
		return window{first: first, n: n, all: true}, nil
	}
	return p.window(first, n)
}

// reader returns the data for reading.
func (f *file) reader() (fsys.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.openLocked(false); err != nil {
		return nil, err
	}
	return f.data, nil
}

// readAt fills p. The caller has found the blocks in this file. The part past the end of the file reads as zeroes: the
// lowest file may end before the volume, and the last block of a file may be short. A block of another file that starts
// past the end cannot be present.
func (f *file) readAt(p []byte, off int64) error {
	data, err := f.reader()
	if err != nil {
		return err
	}
	size := f.size.Load()
	if n := max(0, min(int64(len(p)), size-off)); n < int64(len(p)) {
		if last := (off + int64(len(p)) - 1) / layers.BlockBytes * layers.BlockBytes; last >= size && !f.lowest.Load() {
			return fmt.Errorf("%s: %w: it has %d bytes, and its map says that it has the block at %d", dataName(f.n), ErrTorn, size, last)
		}
		clear(p[n:])
		p = p[:n]
	}
	if len(p) == 0 {
		return nil
	}
	return data.ReadAt(p, off)
}

// dataBlocks returns which of the blocks [first, first+n) have data. In all others the file reads as zeroes.
func (f *file) dataBlocks(first, n int64) (bitset, error) {
	found := newBitset(n)
	data, err := f.reader()
	if err != nil {
		return nil, err
	}
	off, end := first*layers.BlockBytes, min((first+n)*layers.BlockBytes, f.size.Load())
	for off < end {
		if off, err = data.NextData(off); err != nil {
			return nil, err
		}
		if off >= end {
			break
		}
		hole, err := data.NextHole(off)
		if err != nil {
			return nil, err
		}
		from, to := layers.Covered(off, min(hole, end)-off)
		for b := from; b < to; b++ {
			found.set(b - first)
		}
		off = max(hole, off+1) // a hole that was punched just now
	}
	return found, nil
}

// punch makes a range read as zeroes, and frees it if the file system can.
func (f *file) punch(off, length int64) error {
	length = min(length, f.size.Load()-off)
	if length <= 0 {
		return nil
	}
	err := f.data.PunchHole(off, length)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		return f.writeZeroes(off, length)
	}
	return err
}

// free is punch for a range that no reader finds in this file. It does nothing where the file system cannot free it.
func (f *file) free(off, length int64) error {
	length = min(length, f.size.Load()-off)
	if length <= 0 {
		return nil
	}
	err := f.data.PunchHole(off, length)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		return nil
	}
	return err
}

// zero makes a range read as zeroes, and leaves all of it allocated.
func (f *file) zero(off, length int64) error {
	err := f.data.ZeroRange(off, length)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		return f.writeZeroes(off, length)
	}
	return err
}

// zeroChunk is written repeatedly if a file system cannot zero a range itself.
var zeroChunk = make([]byte, 256<<10)

func (f *file) writeZeroes(off, length int64) error {
	for length > 0 {
		n := min(length, int64(len(zeroChunk)))
		if err := f.data.WriteAt(zeroChunk[:n], off); err != nil {
			return err
		}
		off, length = off+n, length-n
	}
	return nil
}

// syncData makes the data durable. It fails if any opening has received a report of lost data since the last call.
// Errors wrap errSync.
func (f *file) syncData() error {
	if err := errors.Join(f.data.Datasync(), f.probe.WriteError()); err != nil {
		return fmt.Errorf("%s: %w: %w", dataName(f.n), errSync, err)
	}
	return nil
}

// grow makes the file larger. The map is durably larger before the data is.
func (f *file) grow(size int64) error {
	if p := f.presence(); p != nil {
		if err := p.grow(blocksOf(size)); err != nil {
			return err
		}
	}
	if err := f.data.Truncate(size); err != nil {
		return err
	}
	f.size.Store(size)
	return nil
}

func (f *file) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, o := range []fsys.File{f.data, f.probe} {
		if o != nil {
			errs = append(errs, o.Close())
		}
	}
	if f.known != nil {
		errs = append(errs, f.known.close())
	}
	f.isOpen, f.changes, f.data, f.probe, f.known = false, false, nil, nil, nil
	return errors.Join(errs...)
}

// create creates the parts of a new file without blocks, durably except for their names. size is the size of the
// volume. Parts of a file that was never listed may be there; they are removed first.
func create(dir fsys.Dir, uid string, n layers.File, size int64, boot string, entries int64) error {
	for _, name := range partNames(n) {
		if err := unlinkIfAny(dir, name); err != nil {
			return err
		}
	}
	write := func(name string, content func(f fsys.File) error) error {
		f, err := dir.OpenFile(name, fsys.CreateNew)
		if err != nil {
			return fmt.Errorf("create %s: %w", name, err)
		}
		err = content(f)
		if err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("create %s: %w", name, err)
		}
		return nil
	}
	if err := write(dataName(n), func(f fsys.File) error { return f.Truncate(size) }); err != nil {
		return err
	}
	if err := write(mapName(n), func(f fsys.File) error { return writeEmptyMap(f, uid, n, 0, mapFileBytes(blocksOf(size))) }); err != nil {
		return err
	}
	return write(recentName(n), func(f fsys.File) error { return writeNewRecent(f, uid, n, boot, entries) })
}

// remove unlinks the parts of a file. After an error, the next opening removes the rest.
func remove(dir fsys.Dir, n layers.File) error {
	var errs []error
	for _, name := range partNames(n) {
		errs = append(errs, unlinkIfAny(dir, name))
	}
	return errors.Join(errs...)
}

// openNew opens a file that was just created, for changes.
func (f *file) openNew() error {
	if err := f.open(true); err != nil {
		return err
	}
	return f.openRecent()
}

// openRecent opens the recent part of a file that is open for changes.
func (f *file) openRecent() error {
	o, err := f.dir.OpenFile(recentName(f.n), fsys.ReadWrite)
	if err != nil {
		return fmt.Errorf("%s: %w", recentName(f.n), err)
	}
	r, err := openRecent(o, recentName(f.n), f.uid, f.n)
	if err != nil {
		return errors.Join(err, o.Close())
	}
	f.presence().recent = r
	return nil
}

// dropMap removes the map and recent of a file that has become the lowest one. No reader and no flush uses them.
func (f *file) dropMap() {
	f.mu.Lock()
	known := f.known
	f.known = nil
	f.mu.Unlock()
	if known != nil {
		_ = known.close() // what they say no longer counts
	}
	for _, name := range []string{recentName(f.n), mapName(f.n)} {
		_ = unlinkIfAny(f.dir, name) // best effort: the next opening repeats it
	}
}
