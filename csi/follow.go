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
	"github.com/longhorn-lep/longhorn-manager/util/repeat"
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
	// abortedPause is how long a request of Linux's NFS client waits if the connection that it was opening is closed
	// (call_connect_status in net/sunrpc/clnt.c). Its other requests connect again at once, but the client returns only
	// with this request.
	abortedPause = 3 * time.Second
	// soonRetry is the time between the first tries of a connection, since Linux 6.5. Earlier kernels try 1, 3, 7 and
	// 15 s after the first try. A try within tryUnderWay may be sent before the follower has changed where it leads.
	soonRetry   = time.Second
	tryUnderWay = 20 * time.Millisecond
	// acceptedTimeout is how long the follower waits for an answer at a pod that has accepted its connection. Each
	// connection takes a place among those that wait for the pod's next server.
	acceptedTimeout = time.Second
)

// follower redirects the node's connections from the former pod of a share to the next one.
//
// If the old pod is gone, the kernel's NFS client follows a share without help: its connection breaks. In two cases
// only the client's node can redirect it:
//
//   - Node and kubelet are frozen. The old pod's kernel continues to acknowledge the client's data, so the client waits
//     for an answer that does not come. At the same time the next server gives its locks to others.
//   - The old pod's node has lost its power. The client opens a connection to it while the Service leads there, and
//     tries that for many seconds.
//
// How the follower finds such connections:
//
//	a connection of the follower's ─► the Service's address ──► the pod to which the Service leads now: it accepted
//	the kernel client's connection ─► the same address      ──► another pod: the former one
//
// What it does depends on the connection:
//
//	state                    leads to the former pod                  leads to the next pod
//	---------------------------------------------------------------------------------------
//	established              closed when the next pod's server        -
//	                         has answered
//	opening, retry in 1 s    forgotten when the next pod accepts:     -
//	                         the retry goes there
//	opening, retry in 3 s    closed when the next pod accepts         -
//	opening, a later retry   closed when the next pod accepts         closed: its last try was lost
//
// A client whose connection was closed while it was being opened returns after 3 s (abortedPause), so that is done while
// the next server starts. An established connection may lead to a server that works: the leader may be wrong about its
// node, and the Service may lead to two pods for a moment. So it is closed only after an answer.
//
// A share's next pod accepts connections before its server runs, and keeps the requests for the server. While no pod
// accepts connections, the follower changes nothing. Without an endpoint, the Service would refuse the client's next
// connection, and after refusals a client waits longer and longer.
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
	failed       repeat.Filter                 // the last error of listing or asking
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
	// Connect opens a connection to a share before ctx is done. It returns the address of the pod that has accepted it.
	// If the error is flow.ErrNoPeer, the connection is open, and its pod is not known.
	Connect(ctx context.Context, server netip.AddrPort) (netip.AddrPort, net.Conn, error)
	// Ask asks the NFS server at the other end of a connection for any answer, until ctx is done. A connection that
	// answered is closed when the server exits.
	Ask(ctx context.Context, conn net.Conn) error
	// Connections lists the connections to a share. It omits a connection if its pod is not known.
	Connections(server netip.AddrPort) ([]shareConnection, error)
	Break(s flow.Socket) error
	Forget(f flow.Flow) error
}

// shareConnection is a connection of the kernel's NFS client, with the pod's address to which it leads.
type shareConnection struct {
	flow.Socket
	pod netip.AddrPort
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
	if f.failed.NoteError(err) {
		f.log.WithError(err).Warn("Cannot redirect connections to the next pod of a share")
	}
}

// follow redirects the connections to a share that lead to another pod than the Service does, and asks that pod's
// server. It is no error if no pod accepts connections now, or if the network's kernel does not know where connections
// lead.
func (f *follower) follow(ctx context.Context, server netip.AddrPort, p *followedShare, timeout time.Duration) (answered bool, err error) {
	log := f.log.WithField("server", server)
	// one limit for both steps: no share delays another one for longer than followTimeout
	askCtx, asked := context.WithTimeout(ctx, max(timeout, acceptedTimeout))
	defer asked()
	connectCtx, connected := context.WithTimeout(askCtx, timeout)
	defer connected()
	pod, conn, err := f.network.Connect(connectCtx, server)
	isKnown := err == nil
	if err != nil && !errors.Is(err, flow.ErrNoPeer) {
		log.WithError(err).Debug("No pod of the share accepts connections")
		return false, nil
	}
	err = nil
	if isKnown {
		err = f.redirect(server, pod, false)
	}
	if silent := f.network.Ask(askCtx, conn); silent != nil {
		log.WithError(silent).Debug("The share's server does not answer")
		if conn != nil {
			_ = conn.Close()
		}
		return false, err
	}
	if isKnown {
		err = f.redirect(server, pod, true)
	}
	if f.isNewServer(p, pod, conn) {
		f.touch(server.Addr())
	}
	return true, err
}

// redirect makes the connections to a share that lead to another pod lead to this one. hasAnswered: the pod's server has
// just answered.
func (f *follower) redirect(server, pod netip.AddrPort, hasAnswered bool) error {
	connections, err := f.network.Connections(server)
	if err != nil {
		return err
	}
	var failed error
	for _, c := range connections {
		log := f.log.WithFields(logrus.Fields{"server": server, "local": c.Local, "former": c.pod, "pod": pod})
		act := c.actionFor(pod, hasAnswered)
		switch act {
		case leaveIt:
			continue
		case forgetIt:
			err = f.network.Forget(c.Flow)
		case closeIt, closeLate:
			err = f.network.Break(c.Socket)
		}
		if err != nil {
			failed = errors.Join(failed, err) // a mount may have several connections, and all must lead to this pod
			continue
		}
		log.Warn(actionTexts[act])
	}
	return failed
}

// followAction is what the follower does with a connection.
type followAction int

const (
	leaveIt followAction = iota
	forgetIt
	closeIt
	closeLate
)

var actionTexts = map[followAction]string{
	forgetIt:  "A connection that was being opened to the former pod of a share now leads to the next pod",
	closeIt:   "Closed a connection to the former pod of a share",
	closeLate: "Closed a connection to a share that would be tried again too late",
}

// actionFor decides what to do with a connection when the Service leads to a pod that accepts connections. The table
// at follower has the reasons.
func (c shareConnection) actionFor(pod netip.AddrPort, hasAnswered bool) followAction {
	switch {
	case c.pod == pod && c.Opening && c.Retry > abortedPause:
		return closeLate
	case c.pod == pod, !c.Opening && !hasAnswered, c.Opening && c.Retry < tryUnderWay:
		return leaveIt
	case c.Opening && c.Retry <= soonRetry:
		return forgetIt
	default:
		return closeIt
	}
}

// nodeNetwork is a network, named by a file such as /host/proc/1/ns/net.
type nodeNetwork string

// Connect implements shareNetwork.
func (n nodeNetwork) Connect(ctx context.Context, server netip.AddrPort) (pod netip.AddrPort, conn net.Conn, err error) {
	err = netns.In(string(n), func() (err error) {
		// one address: the socket is created in this thread
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", server.String())
		if err != nil {
			return err
		}
		local := conn.LocalAddr().(*net.TCPAddr).AddrPort()
		pod, err = flow.Flow{Local: netip.AddrPortFrom(local.Addr().Unmap(), local.Port()), Remote: server}.Peer()
		if err != nil && !errors.Is(err, flow.ErrNoPeer) {
			_ = conn.Close()
		}
		return err
	})
	return pod, conn, err
}

// Ask implements shareNetwork.
func (n nodeNetwork) Ask(ctx context.Context, conn net.Conn) error {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if err := nfsclient.Null(conn); err != nil {
		return fmt.Errorf("calling NULL at the NFS server at %s: %w", conn.RemoteAddr(), err)
	}
	return nil
}

// Connections implements shareNetwork.
func (n nodeNetwork) Connections(server netip.AddrPort) (connections []shareConnection, err error) {
	return connections, netns.In(string(n), func() error {
		sockets, err := flow.To(server)
		for _, s := range sockets {
			pod, peerErr := s.Peer()
			switch {
			case peerErr == nil:
				connections = append(connections, shareConnection{s, pod})
			case !errors.Is(peerErr, flow.ErrNoPeer):
				err = errors.Join(err, peerErr)
			}
		}
		return err
	})
}

// Break implements shareNetwork.
func (n nodeNetwork) Break(s flow.Socket) error { return netns.In(string(n), s.Break) }

// Forget implements shareNetwork.
func (n nodeNetwork) Forget(f flow.Flow) error { return netns.In(string(n), f.Forget) }
