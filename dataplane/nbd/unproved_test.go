package nbd

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTooManyUnprovedConnectionsCutTheOldestOfTheAddressWithTheMost(t *testing.T) {
	for _, c := range []struct {
		name   string
		arrive []string // address and name; "-name" leaves
		cut    []string
	}{
		{"places enough → nobody", []string{"a1", "b1", "a2"}, nil},
		{"a flood → its own oldest, one for each newcomer", []string{"b1", "a1", "a2", "a3", "a4", "a5"}, []string{"a1", "a2", "a3"}},
		{"a newcomer from elsewhere in a flood → stays", []string{"a1", "a2", "a3", "b1", "a4"}, []string{"a1", "a2"}},
		{"all from different addresses → the oldest", []string{"a1", "b1", "c1", "d1", "e1"}, []string{"a1", "b1"}},
		{"a peer that proved itself → takes no place and is not cut", []string{"a1", "-a1", "a2", "a3", "a4", "a5"}, []string{"a2"}},
		{"one that was cut leaves → no place is free that was not", []string{"a1", "a2", "a3", "a4", "-a1", "a5"}, []string{"a1", "a2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := unprovedConns{limit: 3}
			var cut []string
			guests := map[string]*unprovedConn{}
			for _, name := range c.arrive {
				if name[0] == '-' {
					l.leave(guests[name[1:]])
					l.leave(guests[name[1:]]) // may be repeated
					continue
				}
				g := &unprovedConn{from: name[:1], cut: func() { cut = append(cut, name) }}
				guests[name] = g
				before := len(cut)
				told := l.enter(g)
				assert.Equal(t, len(cut) > before, told)
			}
			assert.Equal(t, c.cut, cut)
		})
	}
}

func TestUnprovedConnectionsAreCountedByHost(t *testing.T) {
	for want, a := range map[string]net.Addr{
		"10.1.2.3": &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 4711},
		"fd00::1":  &net.TCPAddr{IP: net.ParseIP("fd00::1"), Port: 4711},
		"unix":     &net.UnixAddr{Net: "unix"},
		"pipe":     pipeAddr(),
	} {
		assert.Equal(t, want, hostOf(a), a)
	}
}

func pipeAddr() net.Addr {
	a, b := net.Pipe()
	_, _ = a.Close(), b.Close()
	return a.RemoteAddr()
}

func TestSparseLog(t *testing.T) {
	now := time.Unix(0, 0)
	l := newSparseLog()
	l.now = func() time.Time { return now }
	logger, hook := logrustest.NewNullLogger()
	logger.SetLevel(logrus.InfoLevel)
	e := logrus.NewEntry(logger)
	for range 1000 {
		l.log(e, logrus.WarnLevel, "one")
		l.log(e, logrus.InfoLevel, "another")
		l.log(e, logrus.DebugLevel, "a third, which nobody wants to see")
	}
	require.Len(t, hook.AllEntries(), 2)
	now = now.Add(sparseEvery)
	l.log(e, logrus.WarnLevel, "one")
	last := hook.LastEntry()
	assert.Equal(t, "one", last.Message)
	assert.Equal(t, logrus.WarnLevel, last.Level)
	assert.Equal(t, 999, last.Data["leftOut"])
	now = now.Add(sparseEvery)
	l.log(e, logrus.WarnLevel, "one")
	last = hook.LastEntry()
	assert.Nil(t, last.Data["leftOut"], "lines counted again")
}

// slowExporter delays its answer.
type slowExporter struct {
	zeroExporter
	took time.Duration
}

func (x *slowExporter) Open(ctx context.Context, name string, c ConnInfo) (*Export, error) {
	began := time.Now()
	for x.took < time.Millisecond {
		x.took = time.Since(began)
	}
	return x.zeroExporter.Open(ctx, name, c)
}

// deadlines is a scriptConn that records its deadlines.
type deadlines struct {
	scriptConn
	set []time.Time
}

func (d *deadlines) SetDeadline(t time.Time) error { d.set = append(d.set, t); return nil }

func TestTheTimeOfTheExporterIsNotThePeers(t *testing.T) {
	x := &slowExporter{}
	s := NewServer(x, ServerOptions{HandshakeTimeout: time.Hour})
	conn := &deadlines{scriptConn: scriptConn{in: &script{serverScript(appendOption(nil, optGo, goOption{Name: "zero"}.encode()))}}}
	began := time.Now()
	s.ServeConn(conn)
	require.Len(t, conn.set, 3)
	assert.False(t, conn.set[0].Before(began.Add(time.Hour)))
	assert.GreaterOrEqual(t, conn.set[1].Sub(conn.set[0]), x.took)
	assert.True(t, conn.set[2].IsZero())
	assert.NoError(t, s.Shutdown(t.Context()))
}

// script is a reader of bytes.
type script struct{ rest []byte }

func (s *script) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func TestOptionsOfOneHandshakeAreBounded(t *testing.T) {
	var options []byte
	for range maxOptions + 1 {
		options = appendOption(options, optList, nil)
	}
	in := &script{serverScript(options)}
	s := NewServer(zeroExporter{}, ServerOptions{})
	c := newServerConn(s, &scriptConn{in: in})
	_, exp := c.negotiate()
	assert.Nil(t, exp)
	assert.Equal(t, optionLen, len(in.rest)+c.in.Buffered(), "bytes of options are left")
}

// TestAPeerThatTakesNoRepliesAfterItsDisconnectIsCut has a peer that requests more than the kernel holds, disconnects,
// and reads nothing.
func TestAPeerThatTakesNoRepliesAfterItsDisconnectIsCut(t *testing.T) {
	ours, theirs := unixPair(t)
	closed := make(chan struct{})
	s := NewServer(closing{closed}, ServerOptions{})
	s.lastWriteTimeout = time.Millisecond
	served := make(chan struct{})
	go func() { s.ServeConn(theirs); close(served) }()
	requests := make([]request, 32)
	for i := range requests {
		requests[i] = request{Type: cmdRead, Length: 1 << 20, Cookie: uint64(i)}
	}
	_, err := ours.Write(serverScript(appendOption(nil, optGo, goOption{Name: "zero"}.encode()), append(requests, request{Type: cmdDisc})...))
	require.NoError(t, err)
	for _, ended := range []<-chan struct{}{closed, served} {
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatal("the export is held by a peer that takes no replies")
		}
	}
	assert.NoError(t, s.Shutdown(t.Context()))
}

// closing reports when its export was closed.
type closing struct{ closed chan struct{} }

func (x closing) List(context.Context) []string { return nil }

func (x closing) Open(ctx context.Context, name string, c ConnInfo) (*Export, error) {
	e, err := zeroExporter{}.Open(ctx, name, c)
	e.Closed = func() { close(x.closed) }
	return e, err
}

// waitsToOpen is an exporter that waits for the test.
type waitsToOpen struct {
	zeroExporter
	arrived, open chan struct{}
}

func (x waitsToOpen) Open(ctx context.Context, name string, c ConnInfo) (*Export, error) {
	x.arrived <- struct{}{}
	<-x.open
	return x.zeroExporter.Open(ctx, name, c)
}

// TestAPeerThatHasProvedItselfIsNotCut fills the only slot while an engine that has proved the secret waits
// for the gate.
func TestAPeerThatHasProvedItselfIsNotCut(t *testing.T) {
	x := waitsToOpen{arrived: make(chan struct{}, 1), open: make(chan struct{})}
	s := NewServer(x, ServerOptions{Secret: func(string) ([]byte, bool) { return []byte("s"), true }})
	s.unproved.limit = 1
	ended := make(chan struct{}, 3)
	connect := func() net.Conn {
		ours, theirs := net.Pipe()
		_ = ours.SetDeadline(time.Now().Add(20 * time.Second))
		go func() { s.ServeConn(theirs); ended <- struct{}{} }()
		return ours
	}
	type dialed struct {
		c   *Client
		err error
	}
	opened := make(chan dialed, 1)
	go func() {
		conn := connect()
		_ = conn.SetDeadline(time.Time{})
		c, err := NewClient(context.Background(), conn, "zero", DialOptions{Secret: []byte("s"), Timeout: 20 * time.Second})
		opened <- dialed{c, err}
	}()
	<-x.arrived
	for range 2 {
		_, err := io.ReadFull(connect(), make([]byte, 18))
		require.NoError(t, err)
	}
	<-ended // of the two that proved nothing, the first
	close(x.open)
	d := <-opened
	require.NoError(t, d.err)
	assert.NoError(t, d.c.Flush(context.Background()))
	_ = d.c.Close()
	assert.NoError(t, s.Shutdown(t.Context()))
}
