package nbd

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// How long a peer that fell silent without closing its connection keeps it: idle, 10 s + 3 probes of 5 s; with data unanswered by
// its kernel, unackedTimeout. Both are about dead machines and cut cables; a peer that is merely slow is never cut by them.
const (
	keepAliveIdle     = 10 * time.Second
	keepAliveInterval = 5 * time.Second
	keepAliveCount    = 3
	unackedTimeout    = 25 * time.Second
)

// tuneTCP sets what both sides want of a TCP connection: no delay, and notice of a dead peer. Other connections are left alone.
// Errors are ignored: a connection that refuses an option still works, and one that is gone says so at its first use.
func tuneTCP(conn net.Conn) {
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	_ = c.SetNoDelay(true)
	_ = c.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount,
	})
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unackedTimeout.Milliseconds()))
	})
}
