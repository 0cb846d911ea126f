package instance

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrRunning says that another process serves the same sockets.
var ErrRunning = errors.New("another data-plane process is running")

// lockFile takes a lock that ends with the process.
func lockFile(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the sockets' directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w: %w", path, ErrRunning, err)
	}
	return f, nil
}

// listenUnix makes a socket for this user alone. It is made under another name and then put in place, so that no process can
// connect before its mode is set, and a socket left by a dead process gives way.
func listenUnix(path string) (net.Listener, error) {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make socket %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(fresh, 0o600)
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make socket %s: %w", path, err), l.Close(), os.Remove(fresh))
	}
	return &unixListener{UnixListener: l, path: path}, nil
}

// unixListener removes its socket when it is closed.
type unixListener struct {
	*net.UnixListener
	path   string
	remove sync.Once
}

// Close removes the socket first: a caller that waits for the listener to end finds it gone.
func (l *unixListener) Close() error {
	l.remove.Do(func() { _ = os.Remove(l.path) }) // a dead socket does no harm
	return l.UnixListener.Close()
}

// setIOFlusher tells the kernel that this process does I/O on behalf of others' writeback, so that its own memory needs and
// writes are not held up by the very writeback that waits for it (prctl(2), PR_SET_IO_FLUSHER). It needs CAP_SYS_RESOURCE, and
// a program without cgo, for it concerns every thread.
func setIOFlusher() error {
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_IO_FLUSHER, 1, 0, 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("set I/O flusher: %w", errno)
	}
	return nil
}
