package replica

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/disk"
)

// Disk is the directory of one disk, held open, with the requested UUID. Its methods open, create and remove only below
// the held directories. They never look up the disk's path again:
//
//	<path>/                  held; the path leads here during OpenDisk, and may lead elsewhere a moment later
//	    longhorn-disk.cfg    read by OpenDisk; identifies the disk
//	    replicas/            held; on the same file system
//
// Suppose that a file system is mounted or unmounted during a step. Then the step finishes in the file system in which
// it started, even if no path leads there. It never continues in a directory that becomes visible below the mount. The
// caller of OpenDisk must Close the Disk; replicas that were opened through it stay open.
//
// A byte-for-byte clone has the same UUID file, so OpenDisk accepts it as the disk. The epoch of a replica on it shows
// whether this replica holds the current data.
type Disk struct {
	path, uuid string
	dir        fsys.Dir
	replicas   fsys.Dir
	id         DiskID
}

// DiskID distinguishes the directories of a disk from everything else that exists at the same time. It consists of
// device and inode numbers. These do not change while a directory or a file on the disk is held open. They also do not
// change when the same file system is mounted again or at another place. The number of a mount would change then.
type DiskID struct{ Directory, Replicas fsys.ID }

// Sighting describes what a path leads to that should be the path of a disk.
type Sighting struct {
	// Found: a directory exists, ID.Directory. MountPoint: it is the root of a mount.
	Found, MountPoint bool
	// ID.Replicas is zero unless Reason is "".
	ID DiskID
	// UUID is from the UUID file, in lower case; "" when it could not be read.
	UUID string
	// Reason is "" for a disk. Otherwise it is DiskMissing, DiskMismatch, or IOError, which proves nothing about the
	// disk. Err is the cause.
	Reason Reason
	Err    error
}

// OpenDisk opens a disk's directory by its absolute path and checks that its UUID file contains uuid. It writes
// nothing. An error is a *RefusedError: InvalidSpec (an empty uuid is not valid), DiskMissing, DiskMismatch or IOError.
func OpenDisk(fs fsys.FS, diskPath, uuid string) (*Disk, error) {
	switch {
	case uuid == "":
		return nil, refuse(diskPath, InvalidSpec, "the UUID of the disk is required")
	case !strings.HasPrefix(diskPath, "/"):
		return nil, refuse(diskPath, InvalidSpec, "the path of a disk must be absolute")
	}
	d := &Disk{path: path.Clean(diskPath), uuid: strings.ToLower(uuid)}
	s := d.look(fs)
	switch {
	case s.Reason != "":
		return nil, errors.Join(refuse(d.path, s.Reason, "%w", s.Err), d.Close())
	case s.UUID != d.uuid:
		return nil, errors.Join(refuse(d.path, DiskMismatch, "the disk has the UUID %s, expected %s", s.UUID, d.uuid), d.Close())
	}
	d.id = s.ID
	return d, nil
}

// LookAtDisk reports what a disk's path leads to now. It writes nothing and holds nothing open.
func LookAtDisk(fs fsys.FS, diskPath string) Sighting {
	d := &Disk{path: path.Clean(diskPath)}
	defer func() { _ = d.Close() }() // only read
	return d.look(fs)
}

// look opens the directories of a disk, as far as they exist.
func (d *Disk) look(fs fsys.FS) (s Sighting) {
	fail := func(err error) Sighting {
		s.Reason, s.Err = diskReason(err), err
		return s
	}
	var err error
	if d.dir, err = fs.OpenDir(d.path); err != nil {
		d.dir = nil
		return fail(err)
	}
	if s.ID.Directory, err = d.dir.ID(); err != nil {
		return fail(err)
	}
	s.Found, s.MountPoint = true, isMountPoint(d.dir)
	text, err := readFile(d.dir, disk.ConfigFileName, disk.MaxConfigBytes)
	if err != nil {
		return fail(fmt.Errorf("read the disk's UUID file: %w", err))
	}
	config, err := disk.ParseConfig(text)
	if err != nil {
		s.Reason, s.Err = DiskMismatch, err
		return s
	}
	s.UUID = config.UUID
	if d.replicas, err = d.dir.OpenDir(disk.ReplicasDirName); err != nil {
		d.replicas = nil
		return fail(err)
	}
	if s.ID.Replicas, err = d.replicas.ID(); err != nil {
		return fail(err)
	}
	return s
}

// diskReason is the reason for an error that occurred when a disk was examined.
func diskReason(err error) Reason {
	switch {
	case errors.Is(err, fsys.ErrNotRegular):
		return DiskMismatch
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return DiskMissing
	}
	return IOError
}

// isMountPoint reports whether a directory is the root of a mount. If the file system cannot say, the result is false.
func isMountPoint(d fsys.Dir) bool {
	m, ok := d.(interface{ IsMountPoint() bool })
	return ok && m.IsMountPoint()
}

// ID distinguishes the disk's directories from all others as long as a file or directory on the disk is open.
func (d *Disk) ID() DiskID { return d.id }

// Path is the path under which the disk was opened.
func (d *Disk) Path() string { return d.path }

// UUID is the UUID of the disk, in lower case.
func (d *Disk) UUID() string { return d.uuid }

// Close closes the disk's directories.
func (d *Disk) Close() error {
	var errs []error
	for _, dir := range []fsys.Dir{d.replicas, d.dir} {
		if dir != nil {
			errs = append(errs, dir.Close())
		}
	}
	return errors.Join(errs...)
}

// place returns the name of a replica's directory, which must be directly in the disk's directory for replicas.
func (d *Disk) place(dir string) (string, error) {
	parent, name, err := place(dir)
	if err != nil {
		return "", err
	}
	if want := path.Join(d.path, disk.ReplicasDirName); parent != want {
		return "", refuse(dir, InvalidSpec, "a replica of disk %s must be in %s", d.uuid, want)
	}
	return name, nil
}
