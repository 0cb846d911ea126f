// Package fstrim reports to the block device of a mounted file system which blocks the file system does not use
// (FITRIM), like fstrim(8). It finds the mount by the device, in any mount namespace of the machine, and must not know
// the purpose of the device.
package fstrim

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/openat"
	"github.com/longhorn-lep/longhorn-manager/util/procs"
)

// The errors of Trim, in addition to errors of the kernel.
var (
	// ErrNoDevice: the path has no block device.
	ErrNoDevice = errors.New("the block device does not exist")
	// ErrNotMounted: no process of the machine has mounted a file system of the device.
	ErrNotMounted = errors.New("no file system of the device is mounted")
	// ErrBound: the node has bound the device itself to a file, for example for a pod that uses it as a block device.
	ErrBound = errors.New("the device is used as a block device")
	// ErrUnsupported: the file system, or its device, cannot trim.
	ErrUnsupported = errors.New("the file system cannot be trimmed")
)

// fitrim is the number of the ioctl, _IOWR('X', 121, struct fstrim_range).
const fitrim = 0xC0185879

// request is struct fstrim_range. The kernel writes the number of trimmed bytes to length.
type request struct{ start, length, shortest uint64 }

// Trim trims the file system on the device at path, and returns how many bytes of the device it does not use. root is
// the host's root directory, below which its /proc and the device lie. Trim takes as long as the device takes, and only
// SIGKILL stops it before. A caller that must not wait runs it in a separate process.
func Trim(root, path string) (int64, error) {
	device, err := openat.Stat(root, path)
	if errors.Is(err, unix.ENOENT) {
		return 0, ErrNoDevice
	}
	if err != nil {
		return 0, err
	}
	if device.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, ErrNoDevice
	}
	proc := filepath.Join(root, "proc")
	if isBound(proc, device.Rdev) {
		return 0, ErrBound
	}
	dir, err := open(proc, device.Rdev)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	r := request{length: math.MaxUint64}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), fitrim, uintptr(unsafe.Pointer(&r))); errno != 0 {
		if errno == unix.EOPNOTSUPP || errno == unix.ENOTTY {
			return 0, ErrUnsupported
		}
		return 0, fmt.Errorf("trim the file system at %s: %w", dir.Name(), errno)
	}
	return int64(min(r.length, math.MaxInt64)), nil
}

// open opens a directory where a file system of the device is mounted. It uses the first process that shows such a
// directory and can be examined. The host's first process has the mounts of the kubelet, and a container has its own
// mounts. The opened directory lies on the device, wherever a container's paths may lead.
func open(proc string, device uint64) (*os.File, error) {
	var last error
	for _, pid := range procs.IDs(proc) {
		points, err := procs.MountPoints(proc, pid, device)
		if err != nil {
			last = err
		}
		for _, at := range points {
			dir, err := openat.Dir(filepath.Join(procs.Dir(proc, pid), "root"), at)
			if err != nil {
				last = err // a bound file, a process that has exited
				continue
			}
			var st unix.Stat_t
			if err := unix.Fstat(int(dir.Fd()), &st); err == nil && st.Dev == device {
				return dir, nil
			}
			last = fmt.Errorf("another file system is mounted over %s", at)
			_ = dir.Close() // it was only examined
		}
	}
	if last != nil {
		return nil, fmt.Errorf("%w where it can be opened: %w", ErrNotMounted, last)
	}
	return nil, ErrNotMounted
}

// isBound reports whether the first process sees a file that is the device: its mounts include the kubelet's. A
// container's own device files are in none of the host's mounts.
func isBound(proc string, device uint64) bool {
	ids := procs.IDs(proc)
	if len(ids) == 0 {
		return false
	}
	// This checks only files on devtmpfs, because examining a file on a hanging file system would hang. Files that
	// could not be read have no effect here: the result decides about no permission.
	files, _ := procs.Mounts(proc, ids[0], func(i *mountinfo.Info) bool { return i.FSType == "devtmpfs" && i.Root != "/" })
	return slices.ContainsFunc(files, func(i *mountinfo.Info) bool {
		st, err := openat.Stat(filepath.Join(procs.Dir(proc, ids[0]), "root"), i.Mountpoint)
		return err == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK && st.Rdev == device
	})
}
