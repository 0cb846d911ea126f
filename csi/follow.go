package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/share/nfsclient"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/flow"
	"github.com/longhorn-lep/longhorn-manager/util/mount"
	"github.com/longhorn-lep/longhorn-manager/util/netns"
)

const (
	// followInterval is how often a node asks each of its shares. followRetryInterval is how often it asks a share that
	// gave no answer: the next server's grace period ends when all clients are back.
	followInterval      = 2 * time.Second
	followRetryInterval = 300 * time.Millisecond
	// followRetryPeriod is how long a share without an answer is asked so often. It may give no answer for days, and
	// its clients' kernels then rarely try.
	followRetryPeriod = 5 * time.Minute
	// followTimeout limits the question to one share's server. While no server listens there, nothing answers, and the
	// kernel tries again after 1 s. So a share that stopped answering a moment ago is asked again every
	// followRetryInterval, for followShortTimeoutPeriod.
	followTimeout            = 2 * time.Second
	followShortTimeoutPeriod = 30 * time.Second
)

// follower closes the node's connections to the former pod of a share when another pod serves it.
//
// If the old pod is gone, the kernel's NFS client follows a share without help: its connection breaks. In two cases
// only the client's node can close the connection:
//
//   - Node and kubelet are frozen. The old pod's kernel continues to acknowledge the client's data, so the client waits
//     for an answer that does not come. At the same time the next server gives its locks to others.
//   - The old pod's node has lost its power. The client opens a connection to it while the Service leads there, and
//     tries that for many seconds.
//
// How the follower finds such connections:
//
//	a question of the node's own ──► the Service's address ──► the pod that serves now: it answered
//	the kernel client's connection ► the same address      ──► another pod: the former one
//
// The follower closes a connection only when an NFS server has answered at another pod than the one to which the
// connection leads. A share has one pod at a time, named after the volume, so a node's Service rules never lead to two
// of them. A frozen server answers nothing. While no server answers, the follower closes nothing. Without an endpoint,
// the Service would refuse the client's next connection, and after refusals a client waits longer and longer.
//
// A server of an earlier release may be stopped for some seconds soon after its first answers. A client that connects
// before that may get an error and try again later, within the grace period. It loses time and no lock.
//
// When a new server of a share answers, the follower also makes this node's client return to it (touch.go).
type follower struct {
	// servers lists the addresses of the shares that are mounted on this node.
	servers      func() ([]netip.Addr, error)
	network      shareNetwork
	log          *logrus.Entry
	now          func() time.Time
	shares       map[netip.Addr]*followedShare // the mounted shares
	failed       string                        // the last error of listing or asking; "": none
	touch        func(server netip.Addr)       // makes the kernel's client return; it must not block
	serverExited chan struct{}                 // a server has exited; it has one element
}

// followedShare is a follower's knowledge of one share.
type followedShare struct {
	next   time.Time   // when it is asked again; zero: it was never asked
	silent time.Time   // since when it gives no answer; zero: it gave one
	err    error       // the last error of following it
	conn   *serverConn // to the server that last answered; nil if no connection is open
}

// newFollower watches the shares that this driver has staged: the kubelet has a directory for each.
func newFollower(o NodeOptions, mounts *mount.System) *follower {
	staged := stagedBelow(o)
	return &follower{
		servers: func() ([]netip.Addr, error) { return mounts.Servers(staged) },
		network: nodeNetwork(filepath.Join(o.HostProc, "1/ns/net")), log: o.Log, now: time.Now,
		touch: newToucher(mounts, staged, o.Log).touch, serverExited: make(chan struct{}, 1),
	}
}

// stagedBelow is the directory in which the kubelet stages this driver's volumes.
func stagedBelow(o NodeOptions) string {
	return filepath.Join(o.KubeletDir, "plugins/kubernetes.io/csi", o.DriverName)
}

// shareNetwork is the node's network. nodeNetwork is the real implementation.
type shareNetwork interface {
	// Serving returns, before ctx is done, the pod's address at which an NFS server has just answered, and the
	// connection, which is closed when the server exits. If the error is flow.ErrNoPeer, the server has answered, and
	// the connection is returned too.
	Serving(ctx context.Context, server netip.AddrPort) (netip.AddrPort, net.Conn, error)
	// Connections lists the connections to a share, with the pods' addresses to which they lead. It includes
	// connections that are being opened. It omits a connection if its pod is not known.
	Connections(server netip.AddrPort) (map[flow.Flow]netip.AddrPort, error)
	Break(f flow.Flow) error
}

// run checks the shares until ctx is done.
func (f *follower) run(ctx context.Context) error {
	timer := time.NewTimer(followInterval)
	defer timer.Stop()
	defer f.keep(nil)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-f.serverExited:
		}
		timer.Reset(f.checkShares(ctx))
	}
}

// checkShares asks all shares that are due, concurrently: none delays another for longer than followTimeout. It returns
// when to call checkShares again.
func (f *follower) checkShares(ctx context.Context) time.Duration {
	servers, err := f.servers()
	if err == nil {
		f.keep(servers)
	}
	var each sync.WaitGroup
	for server, p := range f.shares {
		if !p.next.After(f.now()) || p.conn.hasEnded() {
			each.Go(func() { f.checkShare(ctx, server, p) })
		}
	}
	each.Wait()
	errs, now, again := []error{err}, f.now(), followInterval
	for _, server := range slices.SortedFunc(maps.Keys(f.shares), netip.Addr.Compare) {
		p := f.shares[server]
		errs, again = append(errs, p.err), min(again, p.next.Sub(now))
	}
	f.tell(errors.Join(errs...))
	return max(0, again)
}

// keep sets the list of known shares.
func (f *follower) keep(servers []netip.Addr) {
	shares := map[netip.Addr]*followedShare{}
	for _, server := range servers {
		shares[server] = cmp.Or(f.shares[server], &followedShare{})
	}
	for server, p := range f.shares {
		if shares[server] == nil {
			p.conn.close()
		}
	}
	f.shares = shares
}

// checkShare follows a share and plans when to do so again.
func (f *follower) checkShare(ctx context.Context, server netip.Addr, p *followedShare) {
	began := f.now()
	timeout := followTimeout
	if p.conn.hasEnded() || !p.silent.IsZero() && began.Sub(p.silent) < followShortTimeoutPeriod {
		timeout = followRetryInterval
	}
	answered, err := f.follow(ctx, netip.AddrPortFrom(server, types.NFSPort), p, timeout)
	now := f.now()
	p.err, p.next = err, now.Add(followInterval)
	switch {
	case answered:
		p.silent = time.Time{}
		return
	case p.silent.IsZero():
		p.conn.close()
		p.conn = nil
		p.silent = now
	}
	if now.Sub(p.silent) < followRetryPeriod {
		p.next = began.Add(followRetryInterval)
	}
}

// tell logs an error once.
func (f *follower) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != f.failed {
		f.log.WithError(err).Warn("Cannot close the connections to the former pod of a share")
	}
	f.failed = text
}

// follow closes the connections to a share that lead to another pod than the one that serves it. It is no error if no
// pod serves the share now, or if the network's kernel does not know where connections lead.
func (f *follower) follow(ctx context.Context, server netip.AddrPort, p *followedShare, timeout time.Duration) (answered bool, err error) {
	askCtx, done := context.WithTimeout(ctx, timeout)
	defer done()
	serving, conn, err := f.network.Serving(askCtx, server)
	if err != nil {
		f.log.WithError(err).WithField("server", server).Debug("The share's server does not answer, or its pod is not known")
		if !errors.Is(err, flow.ErrNoPeer) {
			return false, nil
		}
		if f.isNewServer(p, netip.AddrPort{}, conn) {
			f.touch(server.Addr())
		}
		return true, nil
	}
	if f.isNewServer(p, serving, conn) {
		defer f.touch(server.Addr()) // when the connections to the former pod are closed
	}
	former, err := f.toOthers(server, serving)
	if err != nil {
		return true, err
	}
	var failed error
	for c, pod := range former {
		if err := f.network.Break(c); err != nil {
			failed = errors.Join(failed, err) // a mount may have several connections, and all must lead to the pod that serves
			continue
		}
		f.log.WithFields(logrus.Fields{"server": server, "local": c.Local, "former": pod, "pod": serving}).Warn("Closed a connection to the former pod of a share")
	}
	return true, failed
}

// toOthers lists the connections to a share that lead to another pod than the one that serves it.
func (f *follower) toOthers(server, serving netip.AddrPort) (map[flow.Flow]netip.AddrPort, error) {
	connections, err := f.network.Connections(server)
	maps.DeleteFunc(connections, func(_ flow.Flow, pod netip.AddrPort) bool { return pod == serving })
	return connections, err
}

// nodeNetwork is a network, named by a file such as /host/proc/1/ns/net.
type nodeNetwork string

// Serving implements shareNetwork.
func (n nodeNetwork) Serving(ctx context.Context, server netip.AddrPort) (pod netip.AddrPort, conn net.Conn, err error) {
	err = netns.In(string(n), func() (err error) {
		// one address: the socket is created in this thread
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", server.String())
		if err != nil {
			return err
		}
		defer func() {
			if err != nil && !errors.Is(err, flow.ErrNoPeer) {
				_ = conn.Close()
			}
		}()
		deadline, _ := ctx.Deadline()
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
		if err := nfsclient.Null(conn); err != nil {
			return fmt.Errorf("calling NULL at the NFS server at %s: %w", server, err)
		}
		local := conn.LocalAddr().(*net.TCPAddr).AddrPort()
		pod, err = flow.Flow{Local: netip.AddrPortFrom(local.Addr().Unmap(), local.Port()), Remote: server}.Peer()
		return err
	})
	return pod, conn, err
}

// Connections implements shareNetwork.
func (n nodeNetwork) Connections(server netip.AddrPort) (map[flow.Flow]netip.AddrPort, error) {
	connections := map[flow.Flow]netip.AddrPort{}
	return connections, netns.In(string(n), func() error {
		flows, err := flow.To(server)
		for _, c := range flows {
			pod, peerErr := c.Peer()
			switch {
			case peerErr == nil:
				connections[c] = pod
			case !errors.Is(peerErr, flow.ErrNoPeer):
				err = errors.Join(err, peerErr)
			}
		}
		return err
	})
}

// Break implements shareNetwork.
func (n nodeNetwork) Break(f flow.Flow) error { return netns.In(string(n), f.Break) }
