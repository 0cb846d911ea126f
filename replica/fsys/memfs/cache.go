package memfs

import (
	"fmt"
	"path"
	"slices"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/replica/fsys"
)

// The page cache, as Linux has it. A sector of a file is in one of these states:
//
//	clean   reads return what the disk has
//	dirty   written, and not synced. Reads return what was written. A Crash may lose it
//	lost    its write-out failed. Reads return what was written, but the disk has what was there before, and no sync writes it again
//
// A failure to write out is reported once per opening, by the first sync, WriteBack, WriteError, PunchHole or ZeroRange of that opening.
// An opening that is made later reports it only if no other opening has before. Then nothing tells lost sectors from clean ones until
// Evict or DropCache drops them: from then on reads return what the disk has. A Kill changes nothing of that.
//
// A file is named by its last element, which stands for all files that have it, or by its absolute path.

// failingSync is a sync that is to fail.
type failingSync struct {
	file string
	left int // syncs of the file up to the one that fails
}

// LoseUnsynced makes the write-out in the background fail: what was written to the files of a name and not synced is lost. It stays
// readable until Evict.
func (f *FS) LoseUnsynced(file string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.root.each("/", file, (*fileNode).lose)
}

// FailSync makes the nth of the next calls of Datasync and Sync for a file fail as one of the kernel does: what it was to make durable is
// lost, and stays readable until Evict. It can be called several times, to make several calls fail.
func (f *FS) FailSync(file string, nth int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failing = append(f.failing, failingSync{file: file, left: nth})
}

// Evict drops the files of a name from the cache, as a kernel does that needs the memory: what was lost reads as the disk has it. What is
// dirty stays. An error that no opening has reported is reported by the present openings alone.
func (f *FS) Evict(file string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.root.each("/", file, func(n *fileNode) {
		n.evict()
		n.heard = n.errors
	})
}

// KeepCached makes DropCache of a file fail with ErrCached and drop nothing, as for a file that another program has locked in memory.
func (f *FS) KeepCached(file string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, file)
}

// each calls do for the files of a name beneath a directory.
func (d *dirNode) each(at, file string, do func(*fileNode)) {
	for name, e := range d.entries {
		switch e := e.(type) {
		case *dirNode:
			e.each(path.Join(at, name), file, do)
		case *fileNode:
			if file == name || file == path.Join(at, name) {
				do(e)
			}
		}
	}
}

func (n *fileNode) lose() {
	for i := range n.unsynced {
		n.lost[i] = true
	}
	n.unsynced = map[int64]bool{}
	n.errors++
}

func (n *fileNode) evict() {
	for i := range n.lost {
		keep(n.content, i, n.durableBytes[i])
	}
	n.lost = map[int64]bool{}
}

// toldAtOpening is up to which error a new opening reports none.
func (n *fileNode) toldAtOpening() int {
	if n.heard != n.errors {
		return n.errors - 1
	}
	return n.errors
}

// writeErrorLocked reports once that something could not be written out.
func (f *file) writeErrorLocked() error {
	if f.told == f.node.errors {
		return nil
	}
	f.told, f.node.heard = f.node.errors, f.node.errors
	return syscall.EIO
}

func (f *file) isNamed(file string) bool { return file == f.name || file == f.path }

// syncFailsLocked counts a sync, and tells whether it is one that is to fail.
func (f *file) syncFailsLocked() (fails bool) {
	for i := range f.fs.failing {
		if s := &f.fs.failing[i]; f.isNamed(s.file) {
			s.left--
			fails = fails || s.left == 0
		}
	}
	f.fs.failing = slices.DeleteFunc(f.fs.failing, func(s failingSync) bool { return s.left <= 0 })
	return fails
}

func (f *file) Datasync() error { return f.sync("datasync") }

func (f *file) Sync() error { return f.sync("sync") }

func (f *file) sync(kind string) error {
	if err := f.enter(kind); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	n := f.node
	if f.syncFailsLocked() {
		n.lose()
	}
	if err := f.writeErrorLocked(); err != nil {
		return err
	}
	for i := range n.unsynced {
		keep(n.durableBytes, i, n.content[i])
	}
	n.durableSize, n.unsynced = n.size, map[int64]bool{}
	return nil
}

func (f *file) WriteBack() error {
	if err := f.enter("writeback"); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	return f.writeErrorLocked()
}

// Unwritten is not told, as by a kernel before 6.5.
func (f *file) Unwritten() (int64, error) { return 0, syscall.EOPNOTSUPP }

func (f *file) WriteError() error {
	if err := f.enter(""); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	return f.writeErrorLocked()
}

func (f *file) DropCache() error {
	if err := f.enter("dropcache"); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	if slices.ContainsFunc(f.fs.kept, f.isNamed) || len(f.node.unsynced) > 0 {
		return fmt.Errorf("drop %s: %w", f.path, fsys.ErrCached)
	}
	f.node.evict()
	return nil
}
