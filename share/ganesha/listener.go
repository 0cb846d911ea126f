package ganesha

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// Listener is the listening socket of the NFS port. The share manager owns it and each of its servers inherits it, so
// the port is open while no server runs. The kernel accepts connections then, and keeps the clients' requests until the
// next server reads them:
//
//	           share manager starts     server starts    server is killed    next server starts
//	                  │                      │                  │                    │
//	a client       connects               answered          connects again        answered
//	               at once, waits                            at once, waits
//
// Without it, a client that finds no server tries again 1, 3 and 7 s later.
//
// It answers nothing itself: while no server runs, a client gets neither data nor a lock. The rules of package firewall
// for the port must be in force before it exists. A nil Listener is closed, and each server opens the port itself.
type Listener struct{ file *os.File }

// backlog is how many connections wait for a server, as many as Ganesha itself allows. The kernel may have a lower
// limit.
const backlog = 4096

// Listen opens a port for the servers of this process. library is the file that makes a server use the Listener.
// Without the file, Listen returns nil.
func Listen(port int, library string) (*Listener, error) {
	if !isLibrary(library) {
		return nil, nil
	}
	l, err := listen(unix.AF_INET6, &unix.SockaddrInet6{Port: port})
	if errors.Is(err, unix.EAFNOSUPPORT) { // as Ganesha does if the kernel has no IPv6
		l, err = listen(unix.AF_INET, &unix.SockaddrInet4{Port: port})
	}
	if err != nil {
		return nil, fmt.Errorf("listening at port %d: %w", port, err)
	}
	return l, nil
}

// listen opens a port for all addresses of a family. A socket for IPv6 accepts IPv4, too.
func listen(family int, address unix.Sockaddr) (*Listener, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	l := &Listener{file: os.NewFile(uintptr(fd), "the NFS port")}
	// as Ganesha does with a socket of its own; connections inherit SO_KEEPALIVE
	for _, option := range []int{unix.SO_REUSEADDR, unix.SO_KEEPALIVE} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	if err := unix.Bind(fd, address); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Close closes the port, unless a server still has it. The kernel resets connections that wait for a server.
func (l *Listener) Close() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}

// pass gives the port to a server that has not been started. The server must have the library.
func (l *Listener) pass(cmd *exec.Cmd) {
	if l != nil {
		cmd.Env = append(cmd.Env, fmt.Sprintf("LONGHORN_LISTEN_FD=%d", extraFile(cmd, l.file)))
	}
}

// extraFile adds a file that a command inherits, and returns its number there.
func extraFile(cmd *exec.Cmd, file *os.File) int {
	const first = 3 // the number of the first of ExtraFiles
	cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	return first + len(cmd.ExtraFiles) - 1
}

// isLibrary reports whether a file that can be preloaded exists.
func isLibrary(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
