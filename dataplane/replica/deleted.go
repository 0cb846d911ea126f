package replica

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// heldFiles tells what an open replica holds, for comparison with what its names lead to.
type heldFiles struct{ dir, data, intents fsys.ID }

// identifyHeld notes what was opened.
func (r *Replica) identifyHeld() (err error) {
	if r.held.dir, err = r.dir.ID(); err != nil {
		return refuse(r.dirPath, IOError, "%w", err)
	}
	if r.held.data, err = r.data.ID(); err != nil {
		return refuse(r.dirPath, IOError, "%w", err)
	}
	if r.imap == nil {
		return nil
	}
	if r.held.intents, err = r.imap.ID(); err != nil {
		return refuse(r.dirPath, IOError, "%w", err)
	}
	return nil
}

// Check tells whether what an open replica holds is still beneath the disk's directory: nil if it is, else what to give to Lose. Writes to
// deleted files succeed, and are gone with the process. The error says that this could not be found out, which says nothing of the
// replica; for a closed one there is always an error. Check writes nothing. It is a handful of system calls on names that the kernel has
// in memory, and may be called at any time; on a disk that hangs it may hang.
//
// The replica may have been opened through another Disk for the same directories.
func (d *Disk) Check(r *Replica) (*DiskLostError, error) {
	lost, err := d.compare(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed { // looked at last: after a close the replica may have been removed
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
	for _, c := range []struct {
		in   fsys.Dir
		name string
		held fsys.ID
	}{
		{d.replicas, name, r.held.dir},
		{r.dir, dataName, r.held.data},
		{r.dir, intentName, r.held.intents},
		{r.dir, metaName, fsys.ID{}}, // of whatever inode: two files take turns at this name
	} {
		now, err := c.in.Lookup(c.name)
		switch {
		case errors.Is(err, syscall.ENOENT):
			return &DiskLostError{Reason: DataDeleted, Path: d.path, Now: fmt.Sprintf("%s of replica %s is gone", c.name, r.name)}, nil
		case err != nil:
			return nil, fmt.Errorf("look for the files of replica %s: %w", r.name, err)
		case c.held != (fsys.ID{}) && now.Device == c.held.Device && now != c.held: // on another device it is only covered by a mount
			return &DiskLostError{Reason: DataDeleted, Path: d.path, Now: fmt.Sprintf("another %s is in the place of replica %s's", c.name, r.name)}, nil
		}
	}
	return nil, nil
}

// WatchPath leads to the directory in which the replicas' directories are, wherever that is mounted, as long as the Disk is open: for
// inotify, whose events (IN_DELETE, IN_MOVED_FROM, IN_DELETE_SELF, IN_MOVE_SELF) are occasions for Check. "" where there is none.
func (d *Disk) WatchPath() string { return watchPath(d.replicas) }

// WatchPath is the same for the directory in which the replica's files are, as long as the replica is open. Each replacement of the
// metadata makes events there as well.
func (r *Replica) WatchPath() string { return watchPath(r.dir) }

func watchPath(d fsys.Dir) string {
	if d, ok := d.(interface{ WatchPath() string }); ok {
		return d.WatchPath()
	}
	return ""
}
