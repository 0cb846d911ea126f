package replica

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/longhorn-lep/longhorn-manager/dataplane/chain"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// layered is data in a chain of layers: format 2.
type layered struct {
	*chain.Chain
	out     *writeback // nil in an opening for reading only
	partial *blockLocks
}

var _ blocks = layered{}

// WriteAt implements blocks.
func (l layered) WriteAt(p []byte, off int64) error {
	defer l.partial.lock(off, int64(len(p)))()
	return l.Chain.WriteAt(p, off)
}

// Punch implements blocks.
func (l layered) Punch(off, length int64) error {
	defer l.partial.lock(off, length)()
	return l.Chain.Punch(off, length)
}

// Zero implements blocks.
func (l layered) Zero(off, length int64) error {
	defer l.partial.lock(off, length)()
	return l.Chain.Zero(off, length)
}

// Datasync implements blocks. The chain syncs each unsealed file, and asks another opening of each.
func (l layered) Datasync() error {
	files := l.out.several.written()
	if err := l.out.settleBy(l.Chain.Datasync); err != nil {
		return err
	}
	for f, n := range files {
		f.settle(n)
	}
	return nil
}

// Close waits for the current write-out, and closes the files.
func (l layered) Close() error {
	if l.out == nil {
		return l.Chain.Close()
	}
	return errors.Join(l.out.Close(), l.Chain.Close())
}

// blockLocks lock the blocks that a change covers in part. The chain then may write the rest of the block as well, so
// two changes of one block must not run at the same time. Engines lock whole blocks. But an engine of a release that
// knows no layers locks only the bytes that it changes.
type blockLocks struct{ stripes [64]sync.Mutex }

func (b *blockLocks) lock(off, length int64) (unlock func()) {
	end := off + length
	var held []int
	for _, at := range []int64{off, end} {
		if at%layers.BlockBytes != 0 {
			held = append(held, int(at/layers.BlockBytes%int64(len(b.stripes))))
		}
	}
	slices.Sort(held)
	held = slices.Compact(held)
	for _, i := range held {
		b.stripes[i].Lock()
	}
	return func() {
		for _, i := range held {
			b.stripes[i].Unlock()
		}
	}
}

// layerFiles are the data files of a chain that are open for changes. Together they have one limit for the data that is
// not on the disk yet, and each of them has another opening, which is asked whether some data could not be written out.
// Only files that were changed since the last sync are written out and asked: nothing of the others is at risk.
type layerFiles struct {
	out *writeback

	mu   sync.Mutex
	open map[*layerFile]struct{} // guarded by mu
}

// layerFile is the data file of a layer, open for changes.
type layerFile struct {
	fsys.File
	set    *layerFiles
	errors fsys.File // another opening; nothing is written through it
	// using is held for reading during calls that the chain does not know of, and for writing to close the file.
	using    sync.RWMutex
	isClosed bool // guarded by using

	written, settled atomic.Int64
}

// layerDir is the directory as a chain sees it: data files that it opens for changes join the set.
type layerDir struct {
	fsys.Dir
	set *layerFiles
}

func newLayerFiles() *layerFiles { return &layerFiles{open: map[*layerFile]struct{}{}} }

// OpenFile implements fsys.Dir.
func (d layerDir) OpenFile(name string, mode fsys.Mode) (fsys.File, error) {
	file, err := d.Dir.OpenFile(name, mode)
	if err != nil || mode != fsys.ReadWrite || !chain.IsData(name) {
		return file, err
	}
	other, err := d.Dir.OpenFile(name, fsys.ReadOnly)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f := &layerFile{File: file, set: d.set, errors: other}
	d.set.mu.Lock()
	defer d.set.mu.Unlock()
	d.set.open[f] = struct{}{}
	return f, nil
}

// WriteAt counts the bytes, after the call: a sync that started during the call may lack them. Any part of a failed write
// may have happened.
func (f *layerFile) WriteAt(p []byte, off int64) error {
	err := f.File.WriteAt(p, off)
	f.written.Add(1)
	f.set.out.wrote(int64(len(p)))
	return err
}

// PunchHole counts the part of the range that may be in the page cache.
func (f *layerFile) PunchHole(off, length int64) error {
	err := f.File.PunchHole(off, length)
	f.written.Add(1)
	f.set.out.wrote(min(length, zeroedBytes))
	return err
}

// ZeroRange counts the same part as PunchHole.
func (f *layerFile) ZeroRange(off, length int64) error {
	err := f.File.ZeroRange(off, length)
	f.written.Add(1)
	f.set.out.wrote(min(length, zeroedBytes))
	return err
}

// settle records that the first n changes are on the disk.
func (f *layerFile) settle(n int64) {
	for {
		old := f.settled.Load()
		if n <= old || f.settled.CompareAndSwap(old, n) {
			return
		}
	}
}

// Close closes both openings. It waits for a write-out of the file.
func (f *layerFile) Close() error {
	f.set.mu.Lock()
	delete(f.set.open, f)
	f.set.mu.Unlock()
	f.using.Lock()
	defer f.using.Unlock()
	f.isClosed = true
	return errors.Join(f.File.Close(), f.errors.Close())
}

// use calls do, unless the file is closed.
func (f *layerFile) use(do func() error) error {
	f.using.RLock()
	defer f.using.RUnlock()
	if f.isClosed {
		return nil // the chain needs its content no longer
	}
	return do()
}

// written returns the files with changes that are not known to be on the disk, and how many changes each has had.
func (s *layerFiles) written() map[*layerFile]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[*layerFile]int64{}
	for f := range s.open {
		if n := f.written.Load(); n != f.settled.Load() {
			found[f] = n
		}
	}
	return found
}

// owe counts changes of the open files that were made by another opening.
func (s *layerFiles) owe(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.open {
		f.written.Add(n)
	}
}

// WriteBack writes out everything that was written before the call.
func (s *layerFiles) WriteBack() error {
	var errs []error
	for f := range s.written() {
		errs = append(errs, f.use(f.File.WriteBack))
	}
	return errors.Join(errs...)
}

// Unwritten returns how many bytes of the files the kernel has not written out.
func (s *layerFiles) Unwritten() (sum int64, err error) {
	for f := range s.written() {
		err := f.use(func() error {
			n, err := f.File.Unwritten()
			sum += n
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// WriteError returns an error if some changed data could not be written out.
func (s *layerFiles) WriteError() error {
	var errs []error
	for f := range s.written() {
		errs = append(errs, f.use(f.errors.WriteError))
	}
	return errors.Join(errs...)
}

// earlierError asks each file for a failure from before it was opened. The kernel reports it once, so no later question
// finds it.
func (s *layerFiles) earlierError() error {
	s.mu.Lock()
	files := make([]*layerFile, 0, len(s.open))
	for f := range s.open {
		files = append(files, f)
	}
	s.mu.Unlock()
	var errs []error
	for _, f := range files {
		errs = append(errs, f.use(f.errors.WriteError))
	}
	return errors.Join(errs...)
}

// Close has nothing to do: the chain closes its files.
func (s *layerFiles) Close() error { return nil }
