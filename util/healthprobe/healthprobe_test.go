package healthprobe

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counted is a listener that counts its connections.
type counted struct {
	net.Listener
	conns atomic.Int32
}

func (c *counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.conns.Add(1)
	}
	return conn, err
}

func serve(t testing.TB, s healthpb.HealthServer, o ...grpc.ServerOption) *counted {
	t.Helper()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &counted{Listener: inner}
	server := grpc.NewServer(o...)
	if s != nil {
		healthpb.RegisterHealthServer(server, s)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() { server.Stop(); <-done })
	return l
}

func newProber(t testing.TB) *Prober {
	p := New()
	t.Cleanup(p.Close)
	return p
}

// ask asks once and returns when an answer has come.
func ask(t *testing.T, p *Prober, address string) {
	t.Helper()
	answered := make(chan struct{})
	p.Ask(address, func() { close(answered) })
	select {
	case <-answered:
	case <-time.After(time.Minute):
		require.Fail(t, "no answer")
	}
}

func TestQuestionsShareAConnection(t *testing.T) {
	l, p := serve(t, health.NewServer()), newProber(t)
	for range 5 {
		ask(t, p, l.Addr().String())
	}
	assert.EqualValues(t, 1, l.conns.Load())
	p.Renew(l.Addr().String())
	ask(t, p, l.Addr().String())
	assert.EqualValues(t, 2, l.conns.Load())
	p.Keep(map[string]bool{l.Addr().String(): true})
	ask(t, p, l.Addr().String())
	assert.EqualValues(t, 2, l.conns.Load())
	p.Keep(map[string]bool{"another": true})
	ask(t, p, l.Addr().String())
	assert.EqualValues(t, 3, l.conns.Load())
}

// A server closes each connection after a while, as share managers do every five minutes: no question is lost by that.
func TestAConnectionThatTheServerEndsCostsNoAnswer(t *testing.T) {
	l, p := serve(t, health.NewServer(), grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: time.Millisecond})), newProber(t)
	for l.conns.Load() < 5 {
		ask(t, p, l.Addr().String())
	}
}

// refusing answers each question with an error.
type refusing struct {
	healthpb.UnimplementedHealthServer
	code codes.Code
}

func (r refusing) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return nil, status.Error(r.code, "no")
}

func TestAnyReplyIsAnAnswer(t *testing.T) {
	p := newProber(t)
	notServing := health.NewServer()
	notServing.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	for name, s := range map[string]healthpb.HealthServer{
		"it does not serve": notServing, "no such service": nil, "an error": refusing{code: codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) { ask(t, p, serve(t, s).Addr().String()) })
	}
}

// unanswered asks, stops the prober, and expects that nothing counted as an answer.
func unanswered(t *testing.T, address string, until func()) {
	t.Helper()
	p := New()
	var answers atomic.Int32
	p.Ask(address, func() { answers.Add(1) })
	until()
	p.Close()
	assert.Zero(t, answers.Load())
	p.Ask(address, func() { answers.Add(1) })
	assert.Zero(t, answers.Load(), "it has ended")
}

// hanging receives the question and does not answer before the client has disconnected.
type hanging struct {
	healthpb.UnimplementedHealthServer
	asked chan struct{}
}

func (h hanging) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	h.asked <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestFailuresAreNotTakenForAnAnswer(t *testing.T) {
	t.Run("the server hangs", func(t *testing.T) {
		h := hanging{asked: make(chan struct{}, 1)}
		unanswered(t, serve(t, h).Addr().String(), func() { <-h.asked })
	})
	t.Run("the server says that it is not available", func(t *testing.T) {
		assert.False(t, isAnswer(status.Error(codes.Unavailable, "")))
	})
	t.Run("the connection is refused", func(t *testing.T) {
		closed, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, closed.Close())
		p := newProber(t)
		var answers atomic.Int32
		p.Ask(closed.Addr().String(), func() { answers.Add(1) })
		p.asking.Wait() // it fails at once
		assert.Zero(t, answers.Load())
	})
	t.Run("nothing is answered at all", func(t *testing.T) { unanswered(t, blackHole(t), func() {}) })
	t.Run("it is no address", func(t *testing.T) { unanswered(t, "\x00", func() {}) })
}

// The prober asks a server again that was away, without help: the same address answers when the server is back.
func TestAServerThatComesBackIsFound(t *testing.T) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := first.Addr().String()
	require.NoError(t, first.Close())
	p := newProber(t)
	p.Ask(address, func() {})
	p.asking.Wait()

	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	defer func() { server.Stop(); <-done }()
	answered := make(chan struct{}, 1000)
	require.Eventually(t, func() bool {
		p.Ask(address, func() { answered <- struct{}{} })
		return len(answered) > 0
	}, time.Minute, 50*time.Millisecond)
}

// blackHole is an address with a kernel that answers nothing: its queue of connections is full.
func blackHole(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, unix.Listen(fd, 0))
	name, err := unix.Getsockname(fd)
	require.NoError(t, err)
	at := name.(*unix.SockaddrInet4)
	address := (&net.TCPAddr{IP: at.Addr[:], Port: at.Port}).String()
	for {
		conn, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { conn.Close() })
	}
}

// BenchmarkQuestions asks 300 servers once per loop, as the leader does twice a second. The servers run in the same
// process, so the result is the cost of both sides.
func BenchmarkQuestions(b *testing.B) {
	const shares = 300
	p := newProber(b)
	addresses := make([]string, shares)
	for i := range addresses {
		addresses[i] = serve(b, health.NewServer()).Addr().String()
	}
	round := func() {
		answers := make(chan struct{}, shares)
		for _, a := range addresses {
			p.Ask(a, func() { answers <- struct{}{} })
		}
		for range shares {
			<-answers
		}
	}
	round()
	var before, after unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &before))
	for b.Loop() {
		round()
	}
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &after))
	cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N)/shares, "cpu-µs/question")
}

func TestServing(t *testing.T) {
	states := health.NewServer()
	l := serve(t, states)
	got, err := Serving(t.Context(), l.Addr().String())
	require.NoError(t, err)
	assert.True(t, got)
	states.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	got, err = Serving(t.Context(), l.Addr().String())
	require.NoError(t, err)
	assert.False(t, got, "it is there, and says that it does not serve")
	assert.Equal(t, int32(2), l.conns.Load(), "each question has a connection of its own")

	got, err = Serving(t.Context(), serve(t, nil).Addr().String())
	require.NoError(t, err)
	assert.False(t, got, "it knows no such service")

	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // as for a frozen process
	require.NoError(t, err)
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = Serving(ctx, silent.Addr().String())
	require.Error(t, err)
}
