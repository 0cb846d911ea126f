package replica

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/chain"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// heldFiles identifies the files that an open replica holds. They are compared with the files that the names lead to.
type heldFiles struct{ dir, data, intents fsys.ID }

// identifyHeld stores the identity of the opened files.
func (r *Replica) identifyHeld() (err error) {
	if r.held.dir, err = r.dir.ID(); err != nil {
		return refuse(r.dirPath, IOError, "%w", err)
	}
	if r.meta.Layers == 0 {
		if r.held.data, err = r.data.ID(); err != nil {
			return refuse(r.dirPath, IOError, "%w", err)
		}
	}
	if r.imap == nil {
		return nil
	}
	if r.held.intents, err = r.imap.ID(); err != nil {
		return refuse(r.dirPath, IOError, "%w", err)
	}
	return nil
}

// Check reports whether the files that an open replica holds are still below the disk's directory. It returns nil if
// they are, and otherwise the error to pass to Lose. Writes to deleted files succeed, but the files disappear with the
// process. The second result says that the check was not possible, which proves nothing about the replica; for a closed
// replica it is always set. Check writes nothing. It makes a few system calls for names that the kernel has in memory,
// and may be called at any time. On a disk that hangs it may hang.
//
// The replica may have been opened through another Disk for the same directories.
func (d *Disk) Check(r *Replica) (*DiskLostError, error) {
	lost, err := d.compare(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed { // checked last: after a close the replica may have been removed
		return nil, ErrClosed
	}
	return lost, err
}

func (d *Disk) compare(r *Replica) (*DiskLostError, error) {
	name, err := d.place(r.dirPath)
	if err != nil {
		return nil, err
	}
	r.files.Lock()
	defer r.files.Unlock()
	expected, err := r.heldNames(r.chainNow())
	if err != nil {
		return nil, err
	}
	for _, c := range append([]heldName{{d.replicas, name, r.held.dir, "the directory"}}, expected...) {
		now, err := c.in.Lookup(c.name)
		switch {
		case errors.Is(err, syscall.ENOENT) && c.in == r.dir && r.isGoneByMerge(c.name):
		case errors.Is(err, syscall.ENOENT):
			return &DiskLostError{Reason: DataDeleted, Path: d.path, Now: fmt.Sprintf("%s of replica %s no longer exists", c.title, r.name)}, nil
		case err != nil:
			return nil, fmt.Errorf("check the files of replica %s: %w", r.name, err)
		// On another device, the file is only covered by a mount.
		case c.held != (fsys.ID{}) && now.Device == c.held.Device && now != c.held:
			return &DiskLostError{Reason: DataDeleted, Path: d.path, Now: fmt.Sprintf("%s of replica %s was replaced by another one", c.title, r.name)}, nil
		}
	}
	return nil, nil
}

// heldName is a name that must lead to a file that is held; a zero ID is any file.
type heldName struct {
	in    fsys.Dir
	name  string
	held  fsys.ID
	title string
}

// heldNames are the names in the replica's directory.
func (r *Replica) heldNames(c *chain.Chain) ([]heldName, error) {
	file := func(name string, id fsys.ID) heldName { return heldName{r.dir, name, id, "file " + name} }
	names := []heldName{
		file(intentName, r.held.intents),
		file(metaName, fsys.ID{}), // two files take turns with this name
	}
	if c == nil {
		return append(names, file(dataName, r.held.data)), nil
	}
	active, id, err := c.Active()
	if err != nil {
		return nil, fmt.Errorf("check the files of replica %s: %w", r.name, err)
	}
	names = append(names, file(active, id), file(chain.ListNames[0], fsys.ID{}))
	for _, name := range c.DataNames() {
		if name != active {
			names = append(names, file(name, fsys.ID{}))
		}
	}
	return names, nil
}

// isGoneByMerge reports whether a file is no longer one of the chain's: a merge or a revert has removed it since its
// name was listed.
func (r *Replica) isGoneByMerge(name string) bool {
	c := r.chainNow()
	return c != nil && chain.IsData(name) && !slices.Contains(c.DataNames(), name)
}

// WatchPath leads to the directory that contains the replicas' directories, wherever that is mounted, as long as the
// Disk is open. It is for inotify: the events IN_DELETE, IN_MOVED_FROM, IN_DELETE_SELF and IN_MOVE_SELF are reasons to
// call Check. It is "" if no such path exists.
func (d *Disk) WatchPath() string { return watchPath(d.replicas) }

// WatchPath leads to the directory that contains the replica's files, as long as the replica is open. It is for
// inotify, like Disk.WatchPath. Each replacement of the metadata also causes events there.
func (r *Replica) WatchPath() string { return watchPath(r.dir) }

func watchPath(d fsys.Dir) string {
	if d, ok := d.(interface{ WatchPath() string }); ok {
		return d.WatchPath()
	}
	return ""
}
