package mount

import (
	"errors"
	"fmt"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

const typeNFS4 = "nfs4"

// Entry is a line of the mount table. It is comparable; the zero value means no mount.
type Entry struct {
	Path string
	// Type of the file system, and its source: a device, or an export with the directory below it that is bound.
	Type, Source string
	// Device is the number of the file system: two entries with the same number show the same files.
	Device   DeviceNumber
	ReadOnly bool
}

// IsNFS reports whether access to the path needs an answer from the network.
func (e Entry) IsNFS() bool { return e.Type == typeNFS4 }

// Table implements Files.
func (HostFiles) Table() ([]Entry, error) {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(mounts))
	for _, m := range mounts {
		entries = append(entries, Entry{
			Path: m.Mountpoint, Type: m.FSType, Source: m.Source,
			Device:   DeviceNumber(unix.Mkdev(uint32(m.Major), uint32(m.Minor))),
			ReadOnly: strings.HasPrefix(m.Options+",", "ro,"),
		})
	}
	return entries, nil
}

// Umount implements Files.
func (HostFiles) Umount(path string, flags int) error {
	return unix.Unmount(path, flags|unix.UMOUNT_NOFOLLOW)
}

// Bind implements Files. A read-only bind is read-only from the start. Otherwise its copies in other mount namespaces,
// where the pods are, would be writable: the kernel propagates the mount, but not its change.
func (HostFiles) Bind(source, target string, readOnly bool) error {
	if !readOnly {
		return unix.Mount(source, target, "", unix.MS_BIND, "")
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("copying the mount: %w", err)
	}
	defer func() { _ = unix.Close(tree) }() // a mounted copy stays
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if errors.Is(err, unix.ENOSYS) {
		return errors.New("a read-only mount of a share needs Linux 5.12 or later")
	}
	if err != nil {
		return fmt.Errorf("making the mount read-only: %w", err)
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
