package csi

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// If no process uses a mount, the kernel's NFS client notices a restart of the server only when it renews its lease,
// after up to 10 s. Until this client has returned, the server's grace period continues and all other clients wait. So
// the node keeps a connection to each server, which breaks when the server exits. Then the node tries to reach the next
// server at once, and calls statfs on the mount, which makes the client return.
//
//	the connection breaks ──► a question every 300 ms ──► an answer ──► statfs of the mount ──► the client returns

// serverConn is a connection to a server, kept open to detect that the server exits. A nil serverConn has not ended.
type serverConn struct {
	conn  net.Conn
	pod   netip.AddrPort
	ended atomic.Bool
}

func (l *serverConn) hasEnded() bool { return l != nil && l.ended.Load() }

func (l *serverConn) close() {
	if l != nil && l.conn != nil {
		_ = l.conn.Close()
	}
}

// watch waits until the connection breaks. A server sends nothing without a request.
func (l *serverConn) watch(exited chan<- struct{}) {
	_, _ = l.conn.Read(make([]byte, 1))
	_ = l.conn.Close()
	l.ended.Store(true)
	select {
	case exited <- struct{}{}:
	default: // a check is due anyway
	}
}

// isNewServer keeps the connection to the server that has just answered. It returns true if this is a new server. This
// is so if the connection to the last server has ended, if there was a time without an answer, or if another pod
// serves.
func (f *follower) isNewServer(p *followedShare, pod netip.AddrPort, conn net.Conn) bool {
	isFirst := p.next.IsZero()
	if p.conn != nil && !p.conn.hasEnded() && p.conn.pod == pod {
		if conn != nil {
			_ = conn.Close()
		}
		return false
	}
	p.conn.close()
	p.conn = &serverConn{conn: conn, pod: pod}
	if conn != nil {
		_ = conn.SetDeadline(time.Time{})
		go p.conn.watch(f.serverExited)
	}
	return !isFirst
}

// maxTouches is how many touches may run at the same time: if a server exits again, a touch waits in the kernel for the
// next server.
const maxTouches = 32

// toucher touches mounts below a directory.
type toucher struct {
	mounts *mount.System
	dir    string
	log    *logrus.Entry
	free   chan struct{} // has as many elements as touches may start
}

func newToucher(mounts *mount.System, dir string, log *logrus.Entry) *toucher {
	t := &toucher{mounts: mounts, dir: dir, log: log, free: make(chan struct{}, maxTouches)}
	for range maxTouches {
		t.free <- struct{}{}
	}
	return t
}

// touch makes the kernel's client send a request to a server, without waiting for the answer. One mount is enough for
// all mounts of the server.
func (t *toucher) touch(server netip.Addr) {
	path, err := t.mounts.MountOf(t.dir, server)
	if err != nil || path == "" {
		return // it is no longer mounted
	}
	select {
	case <-t.free:
	default:
		return // the clients come back when they renew their lease
	}
	go func() {
		defer func() { t.free <- struct{}{} }()
		if err := t.mounts.Answers(path); err != nil {
			t.log.WithError(err).WithField("server", server).Debug("The mount of a restarted share did not answer")
		}
	}()
}
