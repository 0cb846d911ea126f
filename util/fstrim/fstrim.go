// Package fstrim tells the block device of a mounted file system which blocks the file system does not use (FITRIM), as fstrim(8) does.
// It finds the mount by the device, in whatever mount namespace of the machine it is, and must not know what the device is.
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

// What Trim may fail with, beside errors of the kernel.
var (
	// ErrNoDevice: there is no block device at the path.
	ErrNoDevice = errors.New("there is no such block device")
	// ErrNotMounted: no process of the machine has a file system of the device mounted.
	ErrNotMounted = errors.New("no file system of the device is mounted")
	// ErrBound: the node has the device itself bound to a file, as for a pod that uses it as a block device.
	ErrBound = errors.New("the device is used as a block device")
	// ErrUnsupported: the file system, or its device, cannot trim.
	ErrUnsupported = errors.New("the file system cannot be trimmed")
)

// fitrim is the number of the ioctl, _IOWR('X', 121, struct fstrim_range).
const fitrim = 0xC0185879

// request is struct fstrim_range. The kernel writes to length how many bytes it has trimmed.
type request struct{ start, length, shortest uint64 }

// Trim trims the file system on the device at path, and returns how many bytes of the device it does not use. root is the host's root
// directory, below which its /proc and the device lie. Trim takes as long as the device does, and only SIGKILL ends it before: whoever
// must not wait runs it in a process of its own.
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

// open opens a directory where a file system of the device is mounted, as the first process sees it that can be looked at: the host's
// first process has the mounts of the kubelet, a container those that it made for itself. What is opened lies on the device, wherever a
// container's paths may lead.
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
				last = err // a bound file, a process that has ended
				continue
			}
			var st unix.Stat_t
			if err := unix.Fstat(int(dir.Fd()), &st); err == nil && st.Dev == device {
				return dir, nil
			}
			last = fmt.Errorf("another file system is mounted over %s", at)
			_ = dir.Close() // it was only looked at
		}
	}
	if last != nil {
		return nil, fmt.Errorf("%w where it can be opened: %w", ErrNotMounted, last)
	}
	return nil, ErrNotMounted
}

// isBound tells whether the first process sees a file that is the device: the kubelet's mounts are among its. A container's own device
// files are in no mount of the host's.
func isBound(proc string, device uint64) bool {
	ids := procs.IDs(proc)
	if len(ids) == 0 {
		return false
	}
	// Files of devtmpfs alone, as looking at one of a file system that hangs would hang. What could not be read has no effect here: it is
	// no right that this decides about.
	files, _ := procs.Mounts(proc, ids[0], func(i *mountinfo.Info) bool { return i.FSType == "devtmpfs" && i.Root != "/" })
	return slices.ContainsFunc(files, func(i *mountinfo.Info) bool {
		st, err := openat.Stat(filepath.Join(procs.Dir(proc, ids[0]), "root"), i.Mountpoint)
		return err == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK && st.Rdev == device
	})
}
