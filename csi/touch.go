package csi

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// The kernel's NFS client of a mount that nobody uses learns that its server began anew when it renews its lease: after two thirds of that, 10 s.
// Until it is back the server's grace period goes on, and all other clients wait. So the node keeps a connection to each server, which ends with the
// server, asks for the next one at once, and then asks the kernel for something that only the server knows.
//
//	the connection ends ──► a question each followSoon ──► an answer ──► statfs of the mount ──► the kernel's client claims its state

// line is a connection to a server, kept to see that the server ends. A nil line has not ended.
type line struct {
	conn  net.Conn
	pod   netip.AddrPort
	ended atomic.Bool
}

func (l *line) hasEnded() bool { return l != nil && l.ended.Load() }

func (l *line) close() {
	if l != nil && l.conn != nil {
		_ = l.conn.Close()
	}
}

// watch waits for the line's end. A server sends nothing that was not asked for.
func (l *line) watch(news chan<- struct{}) {
	_, _ = l.conn.Read(make([]byte, 1))
	_ = l.conn.Close()
	l.ended.Store(true)
	select {
	case news <- struct{}{}:
	default: // a look is due anyway
	}
}

// isAnew takes over the connection to the server that has just answered, and tells whether it is another one than that of before: its connection
// has ended, it gave no answer meanwhile, or another pod serves.
func (f *follower) isAnew(p *pursuit, pod netip.AddrPort, conn net.Conn) bool {
	isFirst := p.next.IsZero()
	if p.line != nil && !p.line.hasEnded() && p.line.pod == pod {
		if conn != nil {
			_ = conn.Close()
		}
		return false
	}
	p.line.close()
	p.line = &line{conn: conn, pod: pod}
	if conn != nil {
		_ = conn.SetDeadline(time.Time{})
		go p.line.watch(f.news)
	}
	return !isFirst
}

// maxTouches is how many touches may be under way: one of a server that ends again waits in the kernel for the next one.
const maxTouches = 32

// toucher touches mounts below a directory.
type toucher struct {
	mounts *mount.System
	dir    string
	log    *logrus.Entry
	free   chan struct{} // has as many as touches may begin
}

func newToucher(mounts *mount.System, dir string, log *logrus.Entry) *toucher {
	t := &toucher{mounts: mounts, dir: dir, log: log, free: make(chan struct{}, maxTouches)}
	for range maxTouches {
		t.free <- struct{}{}
	}
	return t
}

// touch has the kernel's client ask a server for something, without waiting for that. One mount stands for all of the server's.
func (t *toucher) touch(server netip.Addr) {
	path, err := t.mounts.MountOf(t.dir, server)
	if err != nil || path == "" {
		return // it is not mounted any more
	}
	select {
	case <-t.free:
	default:
		return // the clients come back when they renew their lease
	}
	go func() {
		defer func() { t.free <- struct{}{} }()
		if err := t.mounts.Answers(path); err != nil {
			t.log.WithError(err).WithField("server", server).Debug("A share that serves anew was touched")
		}
	}()
}
