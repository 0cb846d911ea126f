package share

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// Limits of the health service. A kubelet opens a connection for each probe, and the leader one for each question. Both
// close it after the answer. If no network policy is enforced, any pod may reach the port.
const (
	maxHealthConns        = 64
	maxHealthConnsFromOne = 8
	maxHealthStreams      = 16
	healthHandshake       = 5 * time.Second  // within which a connection must start to speak gRPC
	healthIdle            = 30 * time.Second // after which a connection without a call is closed
	healthAge             = 5 * time.Minute  // after which any connection is closed
	healthAgeGrace        = 10 * time.Second // in which its calls, for example a watch, must finish
)

// healthOptions limit the cost of one connection.
func healthOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(maxHealthStreams),
		grpc.ConnectionTimeout(healthHandshake),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: healthIdle, MaxConnectionAge: healthAge, MaxConnectionAgeGrace: healthAgeGrace,
		}),
	}
}

// boundListener closes a connection at once if more than total are open, or more than fromOne from one address. So a
// client that holds many connections neither exhausts the process nor keeps the kubelet away.
type boundListener struct {
	net.Listener
	total, fromOne int

	mu   sync.Mutex         // guards open
	open map[netip.Addr]int // connections by address of the client
}

func newBoundListener(inner net.Listener, total, fromOne int) *boundListener {
	return &boundListener{Listener: inner, total: total, fromOne: fromOne, open: map[netip.Addr]int{}}
}

// Accept returns the next connection that is within the limits.
func (l *boundListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := addressOf(conn)
		if l.enter(from) {
			return &boundConn{Conn: conn, leave: func() { l.leave(from) }}, nil
		}
		_ = conn.Close()
	}
}

func (l *boundListener) enter(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := 0
	for _, n := range l.open {
		sum += n
	}
	if sum >= l.total || l.open[from] >= l.fromOne {
		return false
	}
	l.open[from]++
	return true
}

func (l *boundListener) leave(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

// addressOf is the address of a connection's client, without its port. All connections without an address count as one
// client.
func addressOf(conn net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}

// boundConn releases its place in the count once.
type boundConn struct {
	net.Conn
	once  sync.Once
	leave func()
}

// Close closes the connection.
func (c *boundConn) Close() error {
	c.once.Do(c.leave)
	return c.Conn.Close()
}
