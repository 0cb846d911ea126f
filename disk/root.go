package disk

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// resolveRetries bounds how often a path is looked up again when the kernel saw
// a rename or mount race with it (EAGAIN, openat2(2)).
const resolveRetries = 32

// errRelativePath is returned for a disk path that does not start with a slash.
var errRelativePath = errors.New("a disk path must be absolute")

// openDir opens the directory path as seen by a process whose root directory is
// root: absolute symbolic links and ".." stay beneath root, and links that the
// kernel makes up (/proc/*/fd) are refused. It needs openat2 (Linux 5.6). The
// caller works on the returned file only, so a mount or rename that happens
// afterwards cannot redirect it, and must close it.
func openDir(root, path string) (*os.File, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("open directory %q: %w", path, errRelativePath)
	}
	rootFD, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open root directory %s: %w", root, err)
	}
	defer unix.Close(rootFD)

	below := strings.TrimLeft(path, "/")
	if below == "" {
		below = "."
	}
	fd, err := openat2(rootFD, below, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("open directory %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openat2 is openat2(2), repeated when interrupted or overtaken by a rename.
func openat2(dirFD int, name string, how *unix.OpenHow) (int, error) {
	for attempt := 0; ; attempt++ {
		fd, err := unix.Openat2(dirFD, name, how)
		retry := err == unix.EINTR || err == unix.EAGAIN
		if !retry || attempt == resolveRetries {
			return fd, err
		}
	}
}
