package nbd

import (
	"net"
	"time"
)

// How long a peer that fell silent without closing its connection keeps it while nothing is sent to it: 10 s + 3 probes of 5 s.
// While something is, keepalive rests and peerWatch takes its place. Both are about dead machines and cut cables; a peer that is
// merely slow, or does not read at all, answers with its kernel and is never cut by them. So TCP_USER_TIMEOUT is not used: it also
// counts the time in which the peer's window is closed.
const (
	keepAliveIdle     = 10 * time.Second
	keepAliveInterval = 5 * time.Second
	keepAliveCount    = 3
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
}
