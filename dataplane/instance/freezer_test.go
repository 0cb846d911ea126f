package instance

import (
	"strings"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// freezer is a file system with a disk that can be frozen. Calls that open, sync or write out a file on the disk do not
// return before thaw. If everything is frozen, this also holds for calls that ask for a file's size.
type freezer struct {
	fsys.FS
	mu     sync.Mutex
	frozen string        // path of a disk; guarded by mu
	all    bool          // guarded by mu
	thawed chan struct{} // guarded by mu; closed by thaw
	asked  chan struct{} // has an entry for each call that hangs
}

func newFreezer(fs fsys.FS) *freezer { return &freezer{FS: fs, asked: make(chan struct{}, 64)} }

func (f *freezer) freeze(disk string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen, f.thawed = disk, make(chan struct{})
}

func (f *freezer) freezeAll(disk string) {
	f.freeze(disk)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = true
}

func (f *freezer) isAllFrozen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all
}

func (f *freezer) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen != "" {
		f.frozen, f.all = "", false
		close(f.thawed)
	}
}

// wait hangs while the disk of a path is frozen.
func (f *freezer) wait(path string) {
	f.mu.Lock()
	hangs, thawed := f.frozen != "" && (path == f.frozen || strings.HasPrefix(path, f.frozen+"/")), f.thawed
	f.mu.Unlock()
	if hangs {
		f.asked <- struct{}{}
		<-thawed
	}
}

func (f *freezer) OpenDir(path string) (fsys.Dir, error) {
	f.wait(path)
	d, err := f.FS.OpenDir(path)
	if err != nil {
		return nil, err
	}
	return &freezerDir{Dir: d, freezer: f, path: path}, nil
}

type freezerDir struct {
	fsys.Dir
	freezer *freezer
	path    string
}

func (d *freezerDir) OpenDir(name string) (fsys.Dir, error) {
	d.freezer.wait(d.path)
	sub, err := d.Dir.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &freezerDir{Dir: sub, freezer: d.freezer, path: d.path + "/" + name}, nil
}

func (d *freezerDir) OpenFile(name string, mode fsys.Mode) (fsys.File, error) {
	d.freezer.wait(d.path)
	file, err := d.Dir.OpenFile(name, mode)
	if err != nil {
		return nil, err
	}
	return &freezerFile{File: file, dir: d}, nil
}

func (d *freezerDir) Sync() error {
	d.freezer.wait(d.path)
	return d.Dir.Sync()
}

type freezerFile struct {
	fsys.File
	dir *freezerDir
}

func (f *freezerFile) Datasync() error {
	f.dir.freezer.wait(f.dir.path)
	return f.File.Datasync()
}

func (f *freezerFile) WriteBack() error {
	f.dir.freezer.wait(f.dir.path)
	return f.File.WriteBack()
}

func (f *freezerFile) Sync() error {
	f.dir.freezer.wait(f.dir.path)
	return f.File.Sync()
}

func (f *freezerFile) AllocatedBytes() (int64, error) {
	if f.dir.freezer.isAllFrozen() {
		f.dir.freezer.wait(f.dir.path)
	}
	return f.File.AllocatedBytes()
}
