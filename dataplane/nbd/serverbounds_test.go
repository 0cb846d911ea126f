package nbd_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

// TestPeersThatProveNothingAreBounded floods a server with silent peers. They cost a limited number of goroutines and
// log lines. An engine with the secret gets in, from the flood's own address and from another address.
func TestPeersThatProveNothingAreBounded(t *testing.T) {
	const flood, bound = 1500, 300
	secret := []byte("0123456789abcdef")
	logger, hook := logrustest.NewNullLogger()
	logger.SetLevel(logrus.DebugLevel)
	s := nbd.NewServer(serving(memory.New(1<<20).Export("vol")), nbd.ServerOptions{
		Secret: func(string) ([]byte, bool) { return secret, true }, HandshakeTimeout: time.Hour, Log: logrus.NewEntry(logger),
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), l) }()
	before := runtime.NumGoroutine()
	for range flood {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		// each gets a greeting: the server does not cut a newcomer
		_, err = io.ReadFull(c, make([]byte, 18))
		require.NoError(t, err)
	}
	for end := time.Now().Add(patience); runtime.NumGoroutine() > before+bound; runtime.Gosched() {
		require.False(t, time.Now().After(end), "%d silent peers cost %d goroutines", flood, runtime.NumGoroutine()-before)
	}
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := nbd.Dial(within(t), "tcp", l.Addr().String(), "vol", nbd.DialOptions{Secret: secret, DialContext: d.DialContext})
		require.NoError(t, err, "an engine at %s is kept out", from)
		assert.NoError(t, c.Flush(within(t)))
		_ = c.Close()
	}
	failed := 0
	for _, e := range hook.AllEntries() {
		if strings.Contains(e.Message, "Closed an unauthenticated connection") || strings.Contains(e.Message, "A handshake ended") {
			failed++
		}
	}
	// a few kinds, each once in ten seconds
	assert.NotZero(t, failed)
	assert.LessOrEqual(t, failed, 20)
	assert.NoError(t, errors.Join(s.Shutdown(within(t)), <-served))
}

func TestAPeerThatDoesNotFinishItsHandshakeIsCut(t *testing.T) {
	_, path := listen(t, serving(memory.New(1<<20).Export("vol")), nbd.ServerOptions{HandshakeTimeout: 50 * time.Millisecond})
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err = io.Copy(io.Discard, conn)
	assert.NoError(t, err)
}

// stuck is a backend on which writes hang, whatever their context says.
type stuck struct {
	nbd.Backend
	arrived chan struct{}
	answer  chan struct{}
}

func newStuck() *stuck {
	return &stuck{memory.New(1 << 20), make(chan struct{}, 10), make(chan struct{})}
}

func (s *stuck) WriteAt(context.Context, []byte, int64, bool) error {
	s.arrived <- struct{}{}
	<-s.answer
	return nil
}

func TestShutdownLeavesABackendThatHangsBehind(t *testing.T) {
	hung := newStuck()
	x := serving(&nbd.Export{Name: "vol", Size: 1 << 20, Backend: hung})
	s := nbd.NewServer(x, nbd.ServerOptions{CutGrace: time.Millisecond})
	ours, theirs := net.Pipe()
	ended := make(chan struct{})
	go func() { s.ServeConn(theirs); close(ended) }()
	c, err := nbd.NewClient(within(t), ours, "vol", nbd.DialOptions{})
	require.NoError(t, err)
	wrote := make(chan error, 2)
	for range cap(wrote) {
		c.WriteAsync(make([]byte, 512), 0, false, func(err error) { wrote <- err })
		receive(t, hung.arrived, "a write")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(ctx) }()
	err = receive(t, down, "the shutdown")
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "1 connections")
	assert.ErrorContains(t, err, "2 requests")
	for range cap(wrote) {
		assert.ErrorIs(t, receive(t, wrote, "a write"), nbd.ErrUnknownOutcome)
	}
	assert.Equal(t, 1, x.stillOpen("vol"), "an export was closed under a request")
	close(hung.answer) // the disk answers again; no client gets that answer, and the export is released
	receive(t, ended, "the end of the connection")
	assert.Zero(t, x.stillOpen("vol"), "opens after the last request")
	assert.NoError(t, s.Shutdown(ctx), "shutdown with nothing left")
	_ = c.Close()
}

// slowToOpen is an exporter that hangs.
type slowToOpen struct {
	*exports
	arrived, answer chan struct{}
}

func (x slowToOpen) Open(ctx context.Context, name string, c nbd.ConnInfo) (*nbd.Export, error) {
	x.arrived <- struct{}{}
	<-x.answer
	return x.exports.Open(ctx, name, c)
}

func TestShutdownLeavesAnExporterThatHangsBehind(t *testing.T) {
	x := slowToOpen{serving(memory.New(1 << 20).Export("vol")), make(chan struct{}, 1), make(chan struct{})}
	s := nbd.NewServer(x, nbd.ServerOptions{CutGrace: time.Millisecond})
	ours, theirs := net.Pipe()
	ended, dialed := make(chan struct{}), make(chan error, 1)
	go func() { s.ServeConn(theirs); close(ended) }()
	go func() {
		_, err := nbd.NewClient(within(t), ours, "vol", nbd.DialOptions{})
		dialed <- err
	}()
	receive(t, x.arrived, "the open")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(ctx) }()
	err := receive(t, down, "the shutdown")
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "1 connections")
	assert.Error(t, receive(t, dialed, "the client"), "the client got in")
	close(x.answer)
	receive(t, ended, "the end of the connection")
	assert.Zero(t, x.stillOpen("vol"), "opens after the end")
}

// Messages that unproved peers cause repeatedly are logged once in a while.
func TestPeersThatProveNothingFillNoLog(t *testing.T) {
	logger, hook := logrustest.NewNullLogger()
	logger.SetLevel(logrus.DebugLevel)
	_, path := listen(t, serving(memory.New(1<<20).Export("vol")), nbd.ServerOptions{
		Secret: func(name string) ([]byte, bool) { return []byte("0123456789abcdef"), name == "vol" }, Log: logrus.NewEntry(logger),
	})
	for range 5 {
		_, err := nbd.Dial(within(t), "unix", path, "vol", nbd.DialOptions{Secret: []byte("a guess")})
		require.Error(t, err)
		_, err = nbd.Dial(within(t), "unix", path, "no such export", nbd.DialOptions{})
		require.ErrorIs(t, err, nbd.ErrUnknownExport)
	}
	lines := map[string]int{}
	for _, e := range hook.AllEntries() {
		lines[e.Message]++
	}
	assert.Equal(t, 1, lines["Refused a wrong proof of an export's secret"], lines)
	assert.Equal(t, 1, lines["Refused an unknown export"], lines)
}
