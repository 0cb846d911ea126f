package mount

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/kmod"
)

// NodeNFS is the NFS client of a node's kernel, used from the node's network. A network file system keeps the network in which it was mounted:
// that of this process may end with its pod, and its mounts would hang.
//
//	plugin's pod ── mount(2) in a thread that has entered ──► node's network ──► server
type NodeNFS struct {
	// Proc is /proc/1 of the node, as this process sees it.
	Proc string
}

// Connect implements NFSClient.
func (n NodeNFS) Connect(server netip.AddrPort, limit time.Duration) (netip.Addr, error) {
	var local netip.Addr
	err := n.inNetwork(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", server.String()) // one address: the socket is made in this thread
		if err != nil {
			return err
		}
		local = conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		return conn.Close()
	})
	return local, err
}

// Mount implements NFSClient.
func (n NodeNFS) Mount(source, target string, flags uintptr, data string) error {
	return n.inNetwork(func() error { return unix.Mount(source, target, typeNFS4, flags, data) })
}

// loadTimeout bounds the loading of a module.
const loadTimeout = 10 * time.Second

// Load implements NFSClient, with the node's own modprobe.
func (n NodeNFS) Load() error {
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	return kmod.Load(ctx, filepath.Join(n.Proc, "root"), "nfsv4")
}

// inNetwork calls act in a thread of its own that has entered the node's network. Threads that act starts have not.
func (n NodeNFS) inNetwork(act func() error) error {
	done := make(chan error, 1)
	go entered(filepath.Join(n.Proc, "ns/net"), act, done)
	return <-done
}

func entered(file string, act func() error, done chan<- error) {
	runtime.LockOSThread() // and never unlocks: the runtime ends the thread with the goroutine
	if unix.Gettid() == unix.Getpid() {
		// The first thread of a process cannot end, and would stay in the node's network.
		again := make(chan error, 1)
		go entered(file, act, again)
		err := <-again
		runtime.UnlockOSThread()
		done <- err
		return
	}
	done <- func() error {
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening the node's network %s: %w", file, err)
		}
		err = unix.Setns(fd, unix.CLONE_NEWNET)
		_ = unix.Close(fd) // the thread is there, or is not
		if err != nil {
			return fmt.Errorf("entering the node's network %s: %w", file, err)
		}
		return act()
	}()
}
