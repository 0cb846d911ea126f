package fsys

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/openat"
)

// Host is the file system as a process with the root directory Root sees it; "" is "/". Absolute symbolic links and
// ".." stay below Root. Links that the kernel creates (/proc/*/fd) are refused. It needs openat2 (Linux 5.6).
type Host struct{ Root string }

// OpenDir opens an existing directory by absolute path.
func (h Host) OpenDir(path string) (Dir, error) {
	root := h.Root
	if root == "" {
		root = "/"
	}
	dir, err := openat.Dir(root, path)
	if err != nil {
		return nil, err
	}
	return &hostDir{direct{dir}}, nil
}

// beneath is the way in which every name in an open directory is resolved: one element, no link, no other file system.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV

// hostDir is a directory of the kernel.
type hostDir struct{ descriptor }

// fail wraps the error of a call on a name.
func (d *hostDir) fail(what, name string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENXIO) {
		err = fmt.Errorf("%w: %w", ErrNotRegular, err)
	}
	return fmt.Errorf("%s %s/%s: %w", what, d.name(), name, err)
}

func isElement(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.Contains(name, "/")
}

// how returns the flags with which to open a name in a directory.
func (d *hostDir) how(name string, flags, perm uint64) (*unix.OpenHow, error) {
	if !isElement(name) {
		return nil, d.fail("open", name, unix.EINVAL)
	}
	return &unix.OpenHow{Flags: flags | unix.O_CLOEXEC | unix.O_NOFOLLOW, Mode: perm, Resolve: beneath}, nil
}

func (d *hostDir) OpenDir(name string) (Dir, error) {
	how, err := d.how(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	dir, err := d.openDir(name, how)
	if err != nil {
		return nil, d.fail("open", name, err)
	}
	return &hostDir{dir}, nil
}

func (d *hostDir) OpenFile(name string, mode Mode) (File, error) {
	flags, perm := uint64(unix.O_RDONLY), uint64(0)
	switch mode {
	case ReadWrite:
		flags = unix.O_RDWR
	case CreateNew:
		flags, perm = unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600
	}
	// O_NONBLOCK prevents the open from waiting if the name is a pipe.
	how, err := d.how(name, flags|unix.O_NONBLOCK, perm)
	if err != nil {
		return nil, err
	}
	file, err := d.open(name, how)
	if err != nil {
		return nil, d.fail("open", name, err)
	}
	f := &hostFile{file}
	st, err := f.stat()
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = d.fail("open", name, ErrNotRegular)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (d *hostDir) Mkdir(name string) error {
	return d.fail("create directory", name, d.control(func(fd int) error { return unix.Mkdirat(fd, name, 0o700) }))
}

func (d *hostDir) Rename(from, to string) error {
	return d.fail("rename "+from+" to", to, d.control(func(fd int) error { return unix.Renameat(fd, from, fd, to) }))
}

func (d *hostDir) RenameNew(from, to string) error {
	return d.fail("rename "+from+" to", to, d.control(func(fd int) error { return unix.Renameat2(fd, from, fd, to, unix.RENAME_NOREPLACE) }))
}

func (d *hostDir) Exchange(one, other string) error {
	err := d.control(func(fd int) error { return unix.Renameat2(fd, one, fd, other, unix.RENAME_EXCHANGE) })
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // file systems that do not know the flag return this
		err = fmt.Errorf("%w: %w", unix.EOPNOTSUPP, err)
	}
	return d.fail("exchange "+one+" and", other, err)
}

func (d *hostDir) Unlink(name string) error {
	return d.fail("unlink", name, d.control(func(fd int) error { return unix.Unlinkat(fd, name, 0) }))
}

func (d *hostDir) Rmdir(name string) error {
	return d.fail("remove directory", name, d.control(func(fd int) error { return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) }))
}

// Names reads through a separate descriptor, because the held descriptor has only one position.
func (d *hostDir) Names() ([]string, error) {
	var names []string
	err := d.control(func(fd int) error {
		own, err := openat.Open(fd, ".", &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC})
		if err != nil {
			return err
		}
		defer unix.Close(own)
		names, err = readNames(own)
		return err
	})
	if err != nil {
		return nil, d.fail("list", "", err)
	}
	slices.Sort(names)
	return names, nil
}

func readNames(fd int) (names []string, err error) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := unix.ReadDirent(fd, buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return names, err
		}
		_, _, names = unix.ParseDirent(buffer[:n], -1, names) // without "." and ".."
	}
}

// AvailableBytes is what a process without privileges can use. Some file systems keep a part for root.
func (d *hostDir) AvailableBytes() (int64, error) {
	var st unix.Statfs_t
	if err := d.control(retried(func(fd int) error { return unix.Fstatfs(fd, &st) })); err != nil {
		return 0, d.fail("read the free space of", ".", err)
	}
	unit := st.Frsize
	if unit == 0 {
		unit = st.Bsize
	}
	return int64(st.Bavail) * unit, nil
}

func (d *hostDir) ID() (ID, error) {
	st, err := d.stat("")
	if err != nil {
		return ID{}, d.fail("stat", ".", err)
	}
	return ID{Device: st.Dev, Inode: st.Ino}, nil
}

// stat returns the attributes of a name, or of the directory.
func (d *hostDir) stat(name string) (st unix.Stat_t, err error) {
	err = d.control(func(fd int) error {
		if name == "" {
			return unix.Fstat(fd, &st)
		}
		return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	})
	return st, err
}

// WatchPath leads to the directory as long as it is open.
func (d *hostDir) WatchPath() string { return d.path() }

// IsMountPoint reports whether the directory is the root of a mount. If the kernel cannot say (before Linux 5.8), it is
// false.
func (d *hostDir) IsMountPoint() bool {
	var stx unix.Statx_t
	err := d.control(func(fd int) error { return unix.Statx(fd, "", unix.AT_EMPTY_PATH, 0, &stx) })
	return err == nil && stx.Attributes&stx.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// MountID implements Mounted. statx(2), STATX_MNT_ID_UNIQUE: the kernel guarantees that the number is not used again.
func (d *hostDir) MountID() (id uint64, known bool) {
	var stx unix.Statx_t
	err := d.control(func(fd int) error { return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID_UNIQUE, &stx) })
	return stx.Mnt_id, err == nil && stx.Mask&unix.STATX_MNT_ID_UNIQUE != 0
}

func (d *hostDir) Lookup(name string) (ID, error) {
	st, err := d.stat(name)
	if err != nil {
		return ID{}, d.fail("stat", name, err)
	}
	return ID{Device: st.Dev, Inode: st.Ino}, nil
}

func (d *hostDir) Sync() error {
	if err := d.control(retried(unix.Fsync)); err != nil {
		return fmt.Errorf("sync directory %s: %w", d.name(), err)
	}
	return nil
}

func (d *hostDir) TryLock() error {
	err := d.control(retried(func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) }))
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("lock directory %s: %w", d.name(), ErrLocked)
	}
	return d.fail("lock", ".", err)
}

func (d *hostDir) Close() error { return d.close() }

// retried returns a call that is repeated if a signal interrupts it.
func retried(call func(fd int) error) func(fd int) error {
	return func(fd int) error {
		for {
			if err := call(fd); !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	}
}
