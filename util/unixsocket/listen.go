// Package unixsocket makes unix sockets that nobody but this user can connect to, at any moment. It must not know what is spoken through them.
package unixsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// Listen makes a socket of mode 0600. The socket of a process that has ended gives way, and so does that of one that runs: the caller must
// know. Any other file at the path stays, and is an error. Close removes the socket, unless another process has put its own in its place.
//
// The socket is made under another name and then put in place, so that no process can connect before its mode is set. That name begins with a
// dot: a kubelet that watches the directory for sockets of plugins ignores it.
func Listen(path string) (net.Listener, error) {
	l, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

func listen(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return nil, errors.New("a file that is not a socket has this name")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	fresh := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	own, err := os.Lstat(fresh)
	if err == nil {
		err = os.Chmod(fresh, 0o600)
	}
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(fresh))
	}
	return &listener{UnixListener: l, path: path, own: own}, nil
}

// listener removes its socket when it is closed.
type listener struct {
	*net.UnixListener
	path   string
	own    os.FileInfo
	remove sync.Once
}

// Addr is the socket's own name.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close removes the socket first: a caller that waits for the listener to end finds it gone.
func (l *listener) Close() error {
	l.remove.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.own) {
			_ = os.Remove(l.path) // what is left gives way to the next
		}
	})
	return l.UnixListener.Close()
}
