package share

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// Bounds of the health service. A kubelet opens a connection for each probe and the leader one for each question, and both end it after the
// answer; any pod may reach the port where no network policy is enforced.
const (
	maxHealthConns        = 64
	maxHealthConnsFromOne = 8
	maxHealthStreams      = 16
	healthHandshake       = 5 * time.Second  // in which a connection must begin to speak gRPC
	healthIdle            = 30 * time.Second // after which a connection without a call is ended
	healthAge             = 5 * time.Minute  // after which any connection is
	healthAgeGrace        = 10 * time.Second // in which its calls, a watch for instance, must end
)

// healthOptions bound what one connection may cost.
func healthOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(maxHealthStreams),
		grpc.ConnectionTimeout(healthHandshake),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: healthIdle, MaxConnectionAge: healthAge, MaxConnectionAgeGrace: healthAgeGrace,
		}),
	}
}

// boundListener ends connections at once that are more than total, or more than fromOne of one address, so that a client that holds many
// neither exhausts the process nor keeps the kubelet away.
type boundListener struct {
	net.Listener
	total, fromOne int

	mu   sync.Mutex         // guards open
	open map[netip.Addr]int // connections by address of the client
}

func newBoundListener(inner net.Listener, total, fromOne int) *boundListener {
	return &boundListener{Listener: inner, total: total, fromOne: fromOne, open: map[netip.Addr]int{}}
}

// Accept returns the next connection that is within bounds.
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

// addressOf is the address of a connection's client, without its port; what has none counts as one client.
func addressOf(conn net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}

// boundConn gives its place back once.
type boundConn struct {
	net.Conn
	once  sync.Once
	leave func()
}

// Close ends the connection.
func (c *boundConn) Close() error {
	c.once.Do(c.leave)
	return c.Conn.Close()
}
