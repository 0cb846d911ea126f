package mount

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/kmod"
	"github.com/longhorn-lep/longhorn-manager/util/netns"
)

// NodeNFS is the NFS client of a node's kernel, used from the node's network. A network file system keeps the network
// in which it was mounted. The network of this process may end with its pod, and its mounts would hang.
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
		// one address: the socket is created in this thread
		conn, err := dialer.DialContext(ctx, "tcp", server.String())
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

// loadTimeout limits the loading of a module.
const loadTimeout = 10 * time.Second

// Load implements NFSClient, with the node's own modprobe.
func (n NodeNFS) Load() error {
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	return kmod.Load(ctx, filepath.Join(n.Proc, "root"), "nfsv4")
}

// inNetwork calls act in a thread that has entered the node's network. Threads that act starts have not entered it.
func (n NodeNFS) inNetwork(act func() error) error {
	return netns.In(filepath.Join(n.Proc, "ns/net"), act)
}
