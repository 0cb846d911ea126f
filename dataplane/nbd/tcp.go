package nbd

import (
	"net"
	"time"
)

// The time after which a silent peer loses its connection while nothing is sent to it: 10 s + 3 probes of 5 s. While
// something is sent, keepalive rests and peerWatch takes its place. Both detect dead machines and cut cables. A peer
// that is merely slow, or that reads nothing, answers with its kernel, and neither mechanism ever cuts it. So
// TCP_USER_TIMEOUT is not used: it also counts the time during which the peer's window is closed.
const (
	keepAliveIdle     = 10 * time.Second
	keepAliveInterval = 5 * time.Second
	keepAliveCount    = 3
)

// tuneTCP sets the TCP options that both sides need: no delay, and detection of a dead peer. It does not change other
// connections. It ignores errors: a connection that refuses an option still works, and a dead connection fails at its
// first use.
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
