package instance

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/replica"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys"
)

// content is what an open replica has on its disk: its directory, and the files without which it cannot be opened again.
type content struct {
	directory string
	id        fsys.ID            // of the directory; zero: it cannot be told whether it is there
	files     map[string]fsys.ID // by name; zero: it may be replaced, but must be there
	heard     bool               // it was asked to be watched; used by the goroutine that looks
}

// contentOf is what a replica that was just opened has. A name that is not there is seen by the first look.
func contentOf(fs fsys.FS, directory string) content {
	c := content{directory: directory, files: map[string]fsys.ID{"data.img": {}, "intent.map": {}, "replica.meta": {}}}
	dir, err := fs.OpenDir(directory)
	if err != nil {
		return c
	}
	defer dir.Close()
	if c.id, err = dir.ID(); err != nil {
		c.id = fsys.ID{}
	}
	for _, name := range []string{"data.img", "intent.map"} {
		if id, err := dir.Lookup(name); err == nil {
			c.files[name] = id
		}
	}
	return c
}

// judge tells whether the data was deleted, moved away or replaced. nil: it was not, or that cannot be told, as when the path leads
// nowhere that can be examined: what became of the disk is judged before.
func (c content) judge(fs fsys.FS) *replica.DiskLostError {
	deleted := func(format string, args ...any) *replica.DiskLostError {
		return &replica.DiskLostError{Reason: replica.DataDeleted, Path: c.directory, Now: fmt.Sprintf(format, args...)}
	}
	if c.id == (fsys.ID{}) {
		return nil
	}
	dir, err := fs.OpenDir(c.directory)
	switch {
	case errors.Is(err, syscall.ENOENT):
		return deleted("there is nothing at the path")
	case err != nil:
		return nil
	}
	defer dir.Close()
	if id, err := dir.ID(); err == nil && id != c.id {
		return deleted("another directory is in its place")
	}
	for name, want := range c.files {
		id, err := dir.Lookup(name)
		switch {
		case errors.Is(err, syscall.ENOENT):
			return deleted("it lacks %s", name)
		case err == nil && want != fsys.ID{} && id != want:
			return deleted("its %s is another file", name)
		}
	}
	return nil
}
