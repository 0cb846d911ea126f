// Package openat opens files by openat2(2) (Linux 5.6), so that the kernel decides in one step where a path may lead. A
// link, rename or mount between a check and an open cannot redirect it.
//
// It knows paths, not disks: the caller decides which paths to open, and how to handle a refusal.
package openat

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// attempts limits how often a name is looked up again when a rename or mount happened at the same time (EAGAIN,
// openat2(2)).
const attempts = 32

// ErrRelative is returned for a path that does not start with a slash.
var ErrRelative = errors.New("the path must be absolute")

// Dir opens the directory path as seen by a process with the root directory root. Absolute symbolic links and ".." stay
// beneath root, and links that the kernel generates (/proc/*/fd) are refused. A later mount or rename cannot redirect
// the returned file, which the caller must close. Errors wrap ErrRelative or the errno.
func Dir(root, path string) (*os.File, error) {
	fd, err := DirFD(root, path)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Stat returns the state of the file to which path leads, as seen by a process with the root directory root; see Dir.
// It opens nothing, so it does not wake a device.
func Stat(root, path string) (unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := beneath(root, path, unix.O_PATH)
	if err != nil {
		return st, fmt.Errorf("examine %s: %w", path, err)
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &st); err != nil {
		return st, fmt.Errorf("examine %s: %w", path, err)
	}
	return st, nil
}

// DirFD is Dir for a caller that needs the bare descriptor.
func DirFD(root, path string) (int, error) {
	fd, err := beneath(root, path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return -1, fmt.Errorf("open directory %s: %w", path, err)
	}
	return fd, nil
}

func beneath(root, path string, flags uint64) (int, error) {
	if !strings.HasPrefix(path, "/") {
		return -1, ErrRelative
	}
	rootFD, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open root directory %s: %w", root, err)
	}
	defer unix.Close(rootFD)

	below := strings.TrimLeft(path, "/")
	if below == "" {
		below = "."
	}
	return Open(rootFD, below, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// Open is openat2(2), repeated when a signal interrupted it or a rename or mount happened at the same time. The error
// is the errno.
func Open(dirFD int, name string, how *unix.OpenHow) (int, error) {
	return repeat(func() (int, error) { return unix.Openat2(dirFD, name, how) })
}

// repeat calls open until it returns another result than EINTR or EAGAIN, at most attempts times.
func repeat(open func() (int, error)) (int, error) {
	for attempt := 1; ; attempt++ {
		fd, err := open()
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) || attempt == attempts {
			return fd, err
		}
	}
}
