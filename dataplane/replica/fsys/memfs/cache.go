package memfs

import (
	"maps"
	"path"
	"slices"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// The page cache, as Linux has it. A sector of a file is in one of these states:
//
//	clean   reads return what the disk has
//	dirty   written, and not synced. Reads return what was written. A Crash may lose it
//	lost    its write-out failed. Reads return what was written, but the disk has what was there before, and no sync writes it again.
//	        When it is written again it is dirty, if the disk has anything there. Else it stays lost: ext4 leaves its extent unwritten
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
		n.evict(func(int64) bool { return true })
		n.heard = n.errors
	})
}

// KeepCached makes DropCache of a file keep a part of it, as when another program has that part locked in memory.
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

// evict drops the sectors that goes is true for.
func (n *fileNode) evict(goes func(sector int64) bool) {
	for i := range n.lost {
		if goes(i) {
			keep(n.content, i, n.durableBytes[i])
			delete(n.lost, i)
		}
	}
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

// WriteBackPart reports what WriteBack would.
func (f *file) WriteBackPart(fsys.Range) error { return f.WriteBack() }

// Unwritten is not told, as by a kernel before 6.5.
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

// WriteThrough makes sectors dirty that were lost. A sync makes them durable.
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

// keepsLocked tells whether a sector stays cached: it is dirty, or KeepCached said so.
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
