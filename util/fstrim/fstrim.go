// Package fstrim tells the block device of a mounted file system which blocks the file system does not use (FITRIM), as fstrim(8) does.
// It finds the mount by the device, in whatever mount namespace of the machine it is, and must not know what the device is.
package fstrim

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/openat"
)

// What Trim may fail with, beside errors of the kernel.
var (
	// ErrNoDevice: there is no block device at the path.
	ErrNoDevice = errors.New("there is no such block device")
	// ErrNotMounted: no process of the machine has a file system of the device mounted.
	ErrNotMounted = errors.New("no file system of the device is mounted")
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
	var device unix.Stat_t
	if err := unix.Stat(filepath.Join(root, path), &device); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return 0, ErrNoDevice
		}
		return 0, fmt.Errorf("look at device %s: %w", path, err)
	}
	if device.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, ErrNoDevice
	}
	dir, err := open(filepath.Join(root, "proc"), device.Rdev)
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
	for _, pid := range processes(proc) {
		for _, at := range mountPoints(filepath.Join(proc, pid, "mountinfo"), device) {
			dir, err := openat.Dir(filepath.Join(proc, pid, "root"), at)
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

// processes are the names of the processes' directories, in the order of their numbers.
func processes(proc string) []string {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	var numbers []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	names := make([]string, len(numbers))
	for i, n := range numbers {
		names[i] = strconv.Itoa(n)
	}
	return names
}

// unescape is how mountinfo writes blanks and backslashes of a path.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// mountPoints are those in a mountinfo file whose file system is on the device.
func mountPoints(mountinfo string, device uint64) []string {
	file, err := os.Open(mountinfo)
	if err != nil {
		return nil
	}
	defer file.Close()
	number := fmt.Sprintf("%d:%d", unix.Major(device), unix.Minor(device))
	var points []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && fields[2] == number {
			points = append(points, unescape.Replace(fields[4]))
		}
	}
	return points
}
