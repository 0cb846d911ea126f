package memfs

import (
	"maps"
	"path"
	"slices"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// The page cache behaves as on Linux. A sector of a file is in one of these states:
//
//	clean   reads return the content of the disk
//	dirty   written, and not synced. Reads return the written data. A Crash may lose it
//	lost    its write-out failed. Reads return the written data, but the disk has the earlier data, and no sync writes it
//	        again. After another write it is dirty if the disk has anything there. Otherwise it stays lost, because ext4
//	        leaves its extent unwritten
//
// Each opening reports a failed write-out once, by its first sync, WriteBack, WriteError, PunchHole or ZeroRange. A
// later opening reports the failure only if no other opening has reported it before. Then nothing distinguishes lost
// sectors from clean sectors until Evict or DropCache drops them: from then on reads return the content of the disk. A
// Kill does not change this.
//
// A file is named by the last element of its path, which stands for all files with that name, or by its absolute path.

// failingSync is a sync that must fail.
type failingSync struct {
	file string
	left int // number of syncs of the file, including the one that fails
}

// LoseUnsynced makes the write-out in the background fail: unsynced data of the files with a name is lost. It stays
// readable until Evict.
func (f *FS) LoseUnsynced(file string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.root.each("/", file, (*fileNode).lose)
}

// FailSync makes the nth of the next calls of Datasync and Sync for a file fail as in the kernel: the data that it
// should make durable is lost, and stays readable until Evict. To make several calls fail, call it several times.
func (f *FS) FailSync(file string, nth int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failing = append(f.failing, failingSync{file: file, left: nth})
}

// Evict drops the files with a name from the cache, as a kernel does that needs the memory: lost data now reads as on
// the disk. Dirty data stays. Only the present openings report an error that no opening has reported yet.
func (f *FS) Evict(file string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.root.each("/", file, func(n *fileNode) {
		n.evict(func(int64) bool { return true })
		n.reported = n.errors
	})
}

// KeepCached makes DropCache of a file keep a part of it, as if another program had locked that part in memory.
func (f *FS) KeepCached(file string, part fsys.Range) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, keptPart{file: file, part: part})
}

// keptPart is a part of a file that DropCache does not drop.
type keptPart struct {
	file string
	part fsys.Range
}

// each calls do for the files with a name below a directory.
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

// evict drops the sectors for which goes returns true.
func (n *fileNode) evict(isEvicted func(sector int64) bool) {
	for i := range n.lost {
		if isEvicted(i) {
			keep(n.content, i, n.durableBytes[i])
			delete(n.lost, i)
		}
	}
}

// reportedAtOpening is the number of the last error that a new opening does not report.
func (n *fileNode) reportedAtOpening() int {
	if n.reported != n.errors {
		return n.errors - 1
	}
	return n.errors
}

// writeErrorLocked reports once that some data could not be written out.
func (f *file) writeErrorLocked() error {
	if f.reported == f.node.errors {
		return nil
	}
	f.reported, f.node.reported = f.node.errors, f.node.errors
	return syscall.EIO
}

func (f *file) isNamed(file string) bool { return file == f.name || file == f.path }

// syncFailsLocked counts a sync, and reports whether this sync must fail.
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

// WriteBackPart reports the same as WriteBack.
func (f *file) WriteBackPart(fsys.Range) error { return f.WriteBack() }

// Unwritten returns no answer, like a kernel before 6.5.
func (f *file) Unwritten() (int64, error) { return 0, syscall.EOPNOTSUPP }

func (f *file) WriteError() error {
	if err := f.enter(""); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	return f.writeErrorLocked()
}

func (f *file) DropCache(ranges []fsys.Range, progress func()) (kept []fsys.Range, err error) {
	if err := f.enter("dropcache"); err != nil {
		return nil, err
	}
	defer f.fs.mu.Unlock()
	progress()
	f.node.evict(func(i int64) bool { return !f.keepsLocked(i) })
	for _, i := range f.node.cached() {
		if f.keepsLocked(i) && isIn(i, ranges) {
			kept = append(kept, fsys.Range{Off: i * sectorBytes, Length: sectorBytes})
		}
	}
	return kept, nil
}

// WriteThrough makes lost sectors dirty. A sync makes them durable.
func (f *file) WriteThrough(ranges []fsys.Range, progress func()) error {
	if err := f.enter("writethrough"); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	progress()
	for i := range f.node.lost {
		if isIn(i, ranges) {
			delete(f.node.lost, i)
			f.node.unsynced[i] = true
		}
	}
	return nil
}

// keepsLocked reports whether a sector stays cached: it is dirty, or KeepCached named it.
func (f *file) keepsLocked(i int64) bool {
	return f.node.unsynced[i] || slices.ContainsFunc(f.fs.kept, func(k keptPart) bool {
		return f.isNamed(k.file) && isIn(i, []fsys.Range{k.part})
	})
}

// cached lists the sectors that can be in the cache, sorted.
func (n *fileNode) cached() []int64 {
	all := maps.Clone(n.lost)
	for i := range n.content {
		all[i] = true
	}
	for i := range n.unsynced {
		all[i] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func isIn(i int64, ranges []fsys.Range) bool {
	return slices.ContainsFunc(ranges, func(r fsys.Range) bool {
		return i*sectorBytes < r.Off+r.Length && r.Off < (i+1)*sectorBytes
	})
}
