// Package unixsocket creates unix sockets to which only this user can connect, at any moment. It must not know the
// protocol on them.
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

// Listen creates a socket with mode 0600. It replaces the socket of a process that has exited, and also the socket of a
// running process: the caller must know. Any other file at the path stays, and is an error. Close removes the socket,
// unless another process has replaced it by its own.
//
// The socket is created under another name and then renamed, so that no process can connect before its mode is set.
// That name starts with a dot: a kubelet that watches the directory for plugin sockets ignores it.
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
		return nil, errors.New("a file with this name exists and is not a socket")
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

// Close removes the socket first: a caller that waits until the listener has stopped finds it gone.
func (l *listener) Close() error {
	l.remove.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.own) {
			_ = os.Remove(l.path) // the next Listen replaces a leftover
		}
	})
	return l.UnixListener.Close()
}
