package share

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// dialFrom opens a connection from a local address.
func dialFrom(t *testing.T, local, to string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}, Timeout: time.Minute}).DialContext(t.Context(), "tcp", to)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// isEnded reports whether the server has closed a connection. It waits until the server closes it, or sends something,
// which a gRPC server does first.
func isEnded(t *testing.T, conn net.Conn) bool {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := conn.Read(make([]byte, 1))
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server neither speaks nor ends the connection")
	return err != nil
}

func TestConnectionsOfTheHealthServiceAreBounded(t *testing.T) {
	h, err := serveHealth(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer h.close()
	for i := range maxHealthConnsFromOne {
		require.False(t, isEnded(t, dialFrom(t, "127.0.0.2", h.address)), "connection %d", i)
	}
	assert.True(t, isEnded(t, dialFrom(t, "127.0.0.2", h.address)), "one address has more than its part")

	conn, err := grpc.NewClient(h.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	assert.NoError(t, err, "another client is kept away")
}

func TestABoundListenerCountsConnections(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := newBoundListener(inner, 3, 2)
	defer l.Close()
	accepted := make(chan net.Conn)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	defer func() { _ = l.Close(); <-over }()
	to := inner.Addr().String()
	dialFrom(t, "127.0.0.2", to)
	first := <-accepted
	dialFrom(t, "127.0.0.2", to)
	second := <-accepted
	assert.True(t, isEnded(t, dialFrom(t, "127.0.0.2", to)), "the third of one address")
	dialFrom(t, "127.0.0.3", to)
	third := <-accepted
	assert.True(t, isEnded(t, dialFrom(t, "127.0.0.4", to)), "the fourth of all")
	require.NoError(t, first.Close())
	_ = first.Close() // a second Close releases no second place
	dialFrom(t, "127.0.0.4", to)
	fourth := <-accepted
	assert.True(t, isEnded(t, dialFrom(t, "127.0.0.5", to)), "the place was given twice")
	for _, conn := range []net.Conn{second, third, fourth} {
		require.NoError(t, conn.Close())
	}
	assert.Empty(t, l.open, "addresses that left are kept")
}
