package forward

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

// The target answers only after the client has closed its half. So the end of one direction must be passed on while the
// other direction stays open.
func TestServePassesBothDirectionsAndHalfClose(t *testing.T) {
	defer goleak.VerifyNone(t)
	target := listen(t)
	defer target.Close()
	answered := make(chan error, 1)
	go func() {
		conn, err := target.Accept()
		if err != nil {
			answered <- err
			return
		}
		defer conn.Close()
		got, err := io.ReadAll(conn)
		if err == nil {
			_, err = conn.Write(append([]byte("got "), got...))
		}
		answered <- err
	}()
	ctx, cancel := context.WithCancel(context.Background())
	door := listen(t)
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, door, To(target.Addr().String())) }()

	conn, err := net.Dial("tcp", door.Addr().String())
	require.NoError(t, err)
	_, err = conn.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, "got hello", string(got))
	_ = conn.Close()
	assert.NoError(t, <-answered)
	cancel()
	assert.NoError(t, <-served)
}

func TestServeClosesTheConnectionWhenNobodyAnswers(t *testing.T) {
	defer goleak.VerifyNone(t)
	gone := listen(t)
	address := gone.Addr().String()
	_ = gone.Close()
	ctx, cancel := context.WithCancel(context.Background())
	door := listen(t)
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, door, To(address)) }()
	conn, err := net.Dial("tcp", door.Addr().String())
	require.NoError(t, err)
	n, err := conn.Read(make([]byte, 1))
	assert.Zero(t, n)
	assert.Error(t, err)
	_ = conn.Close()
	cancel()
	assert.NoError(t, <-served)
}
