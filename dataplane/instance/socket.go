package instance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrRunning means that another process serves the same sockets.
var ErrRunning = errors.New("another data-plane process is running on this node")

// lockFile takes a lock that ends with the process.
func lockFile(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create the sockets' directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w: %w", path, ErrRunning, err)
	}
	return f, nil
}

// setIOFlusher tells the kernel that this process does I/O for the writeback of other processes. So its own memory
// needs and writes are not delayed by the same writeback that waits for it (prctl(2), PR_SET_IO_FLUSHER). It needs
// CAP_SYS_RESOURCE. It also needs a program without cgo, because it concerns every thread.
func setIOFlusher() error {
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_IO_FLUSHER, 1, 0, 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("mark the process as an I/O flusher: %w", errno)
	}
	return nil
}
