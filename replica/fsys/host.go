package fsys

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/openat"
)

// Host is the file system as seen by a process whose root directory is Root; "" is "/". Absolute symbolic links and ".."
// stay beneath Root, and links that the kernel makes up (/proc/*/fd) are refused. It needs openat2 (Linux 5.6).
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
	return &hostDir{file: dir}, nil
}

// beneath is how every name in an open directory is resolved: one element, no link, no other file system.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV

type hostDir struct{ file *os.File }

func (d *hostDir) fd() int { return int(d.file.Fd()) }

// fail wraps what a call on a name said.
func (d *hostDir) fail(what, name string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENXIO) {
		err = fmt.Errorf("%w: %w", ErrNotRegular, err)
	}
	return fmt.Errorf("%s %s/%s: %w", what, d.file.Name(), name, err)
}

func isElement(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.Contains(name, "/")
}

func (d *hostDir) open(name string, flags uint64, perm uint64) (*os.File, error) {
	if !isElement(name) {
		return nil, d.fail("open", name, unix.EINVAL)
	}
	fd, err := openat.Open(d.fd(), name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC | unix.O_NOFOLLOW, Mode: perm, Resolve: beneath})
	if err != nil {
		return nil, d.fail("open", name, err)
	}
	return os.NewFile(uintptr(fd), d.file.Name()+"/"+name), nil
}

func (d *hostDir) OpenDir(name string) (Dir, error) {
	f, err := d.open(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &hostDir{file: f}, nil
}

func (d *hostDir) OpenFile(name string, mode Mode) (File, error) {
	flags, perm := uint64(unix.O_RDONLY), uint64(0)
	switch mode {
	case ReadWrite:
		flags = unix.O_RDWR
	case CreateNew:
		flags, perm = unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600
	}
	// O_NONBLOCK: a pipe by that name must not make the open wait.
	f, err := d.open(name, flags|unix.O_NONBLOCK, perm)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = d.fail("open", name, ErrNotRegular)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &hostFile{file: f}, nil
}

func (d *hostDir) Mkdir(name string) error {
	return d.fail("make directory", name, unix.Mkdirat(d.fd(), name, 0o700))
}

func (d *hostDir) Rename(from, to string) error {
	return d.fail("rename "+from+" to", to, unix.Renameat(d.fd(), from, d.fd(), to))
}

func (d *hostDir) RenameNew(from, to string) error {
	return d.fail("rename "+from+" to", to, unix.Renameat2(d.fd(), from, d.fd(), to, unix.RENAME_NOREPLACE))
}

func (d *hostDir) Exchange(one, other string) error {
	err := unix.Renameat2(d.fd(), one, d.fd(), other, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // what file systems say that do not know the flag
		err = fmt.Errorf("%w: %w", unix.EOPNOTSUPP, err)
	}
	return d.fail("exchange "+one+" and", other, err)
}

func (d *hostDir) Unlink(name string) error {
	return d.fail("unlink", name, unix.Unlinkat(d.fd(), name, 0))
}

func (d *hostDir) Rmdir(name string) error {
	return d.fail("remove directory", name, unix.Unlinkat(d.fd(), name, unix.AT_REMOVEDIR))
}

// Names reads through a descriptor of its own, for the held one has but one position.
func (d *hostDir) Names() ([]string, error) {
	fd, err := openat.Open(d.fd(), ".", &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC})
	if err != nil {
		return nil, d.fail("list", "", err)
	}
	f := os.NewFile(uintptr(fd), d.file.Name())
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list directory: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

func (d *hostDir) ID() (ID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd(), &st); err != nil {
		return ID{}, d.fail("stat", ".", err)
	}
	return ID{Device: st.Dev, Inode: st.Ino}, nil
}

// Descriptor is the directory's, as long as it is open.
func (d *hostDir) Descriptor() int { return d.fd() }

// IsMountPoint tells whether the directory is the root of a mount. Where the kernel does not say (before Linux 5.8), it is false.
func (d *hostDir) IsMountPoint() bool {
	var stx unix.Statx_t
	err := unix.Statx(d.fd(), "", unix.AT_EMPTY_PATH, 0, &stx)
	return err == nil && stx.Attributes&stx.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// Lookup may be called while another goroutine closes the directory: it keeps the descriptor, whose number would be another file's soon.
func (d *hostDir) Lookup(name string) (ID, error) {
	var st unix.Stat_t
	conn, err := d.file.SyscallConn()
	if err == nil {
		var said error
		err = conn.Control(func(fd uintptr) { said = unix.Fstatat(int(fd), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
		err = errors.Join(err, said)
	}
	if err != nil {
		return ID{}, d.fail("stat", name, err)
	}
	return ID{Device: st.Dev, Inode: st.Ino}, nil
}

func (d *hostDir) Sync() error {
	if err := d.file.Sync(); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}

func (d *hostDir) TryLock() error {
	for {
		err := unix.Flock(d.fd(), unix.LOCK_EX|unix.LOCK_NB)
		switch err {
		case unix.EINTR:
			continue
		case unix.EWOULDBLOCK:
			return fmt.Errorf("lock directory %s: %w", d.file.Name(), ErrLocked)
		}
		return d.fail("lock", ".", err)
	}
}

func (d *hostDir) Close() error { return d.file.Close() }
