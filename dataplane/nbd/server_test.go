package nbd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

// rawClient speaks the protocol byte by byte, with numbers from the specification and not from the code under test.
type rawClient struct {
	t    *testing.T
	conn net.Conn
}

func rawDial(t *testing.T, path string) *rawClient {
	t.Helper()
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	c := &rawClient{t, conn}
	require.Equal(t, "NBDMAGICIHAVEOPT\x00\x03", string(c.read(18)))
	c.write("\x00\x00\x00\x03")
	return c
}

func (c *rawClient) write(s string) {
	c.t.Helper()
	_, err := io.WriteString(c.conn, s)
	require.NoError(c.t, err)
}

func (c *rawClient) read(n int) []byte {
	c.t.Helper()
	b := make([]byte, n)
	_, err := io.ReadFull(c.conn, b)
	require.NoError(c.t, err)
	return b
}

func (c *rawClient) expectEnd() {
	c.t.Helper()
	n, err := c.conn.Read(make([]byte, 1))
	require.Zero(c.t, n)
	require.Error(c.t, err)
}

func u16(v uint16) string { return string(binary.BigEndian.AppendUint16(nil, v)) }
func u32(v uint32) string { return string(binary.BigEndian.AppendUint32(nil, v)) }
func u64(v uint64) string { return string(binary.BigEndian.AppendUint64(nil, v)) }

// option sends an option and returns the first reply to it.
func (c *rawClient) option(opt uint32, data string) (reply uint32, payload string) {
	c.t.Helper()
	c.write("IHAVEOPT" + u32(opt) + u32(uint32(len(data))) + data)
	return c.optionReply(opt)
}

func (c *rawClient) optionReply(opt uint32) (reply uint32, payload string) {
	c.t.Helper()
	h := c.read(20)
	require.Equal(c.t, "\x00\x03\xe8\x89\x04\x55\x65\xa9", string(h[:8]), "option reply % x", h)
	require.Equal(c.t, opt, binary.BigEndian.Uint32(h[8:]))
	return binary.BigEndian.Uint32(h[12:]), string(c.read(int(binary.BigEndian.Uint32(h[16:]))))
}

func (c *rawClient) command(flags, kind uint16, cookie, off uint64, length uint32, payload string) {
	c.t.Helper()
	c.write("\x25\x60\x95\x13" + u16(flags) + u16(kind) + u64(cookie) + u64(off) + u32(length) + payload)
}

func (c *rawClient) expect(what, want string) {
	c.t.Helper()
	require.Equal(c.t, want, string(c.read(len(want))), what)
}

// openOld opens an export by EXPORT_NAME: simple replies.
func (c *rawClient) openOld(name string, size uint64, flags uint16) {
	c.t.Helper()
	c.write("IHAVEOPT" + u32(1) + u32(uint32(len(name))) + name)
	c.expect("export", u64(size)+u16(flags))
}

func TestOldStyleOpenServesSimpleReplies(t *testing.T) {
	x := serving(memory.New(1 << 20).Export("vol"))
	_, path := listen(t, x, nbd.ServerOptions{})
	c := rawDial(t, path)
	c.openOld("vol", 1<<20, 1|4|8|32|64|256)
	c.command(0, 1, 11, 510, 4, "abcd")
	c.expect("write", "\x67\x44\x66\x98"+u32(0)+u64(11))
	c.command(0, 0, 12, 509, 6, "")
	c.expect("read", "\x67\x44\x66\x98"+u32(0)+u64(12)+"\x00abcd\x00")
	c.command(0, 0, 13, 1<<20, 1, "")
	c.expect("read past the end", "\x67\x44\x66\x98"+u32(22)+u64(13))
	c.command(0, 1, 14, 1<<20, 3, "xyz")
	c.expect("write past the end, its payload skipped", "\x67\x44\x66\x98"+u32(28)+u64(14))
	c.command(0, 7, 15, 0, 512, "")
	c.expect("block status without structured replies", "\x67\x44\x66\x98"+u32(22)+u64(15))
	c.command(0, 2, 0, 0, 0, "")
	c.expectEnd()
	assert.Zero(t, x.stillOpen("vol"), "opens not closed when the connection had ended")
}

func TestStructuredRepliesOnTheWire(t *testing.T) {
	_, path := listen(t, serving(memory.New(1<<20).Export("vol")), nbd.ServerOptions{})
	c := rawDial(t, path)
	rep, _ := c.option(10, u32(3)+"vol"+u32(0))
	require.Equal(t, uint32(1<<31+3), rep)
	rep, _ = c.option(8, "")
	require.Equal(t, uint32(1), rep)
	rep, data := c.option(9, u32(3)+"vol"+u32(1)+u32(5)+"base:")
	require.Equal(t, uint32(4), rep, "list of contexts answered %#x %q", rep, data)
	require.Equal(t, "base:allocation", data[4:])
	c.optionReply(9)
	rep, id := c.option(10, u32(3)+"vol"+u32(2)+u32(3)+"x:y"+u32(15)+"base:allocation")
	require.Equal(t, uint32(4), rep, "set context answered %#x %q", rep, id)
	require.Equal(t, "base:allocation", id[4:])
	c.optionReply(10)
	rep, data = c.option(7, u32(3)+"vol"+u16(1)+u16(3))
	require.Equal(t, uint32(3), rep)
	require.Equal(t, u16(0)+u64(1<<20)+u16(1|4|8|32|64|128|256), data)
	rep, data = c.optionReply(7)
	require.Equal(t, uint32(3), rep)
	require.Equal(t, u16(3)+u32(1)+u32(4096)+u32(32<<20), data)
	c.optionReply(7)

	const magic = "\x66\x8e\x33\xef"
	c.command(1, 1, 21, 4096, 4, "abcd")
	c.expect("write", magic+u16(1)+u16(0)+u64(21)+u32(0))
	c.command(4, 0, 22, 4096, 4, "")
	c.expect("read", magic+u16(1)+u16(1)+u64(22)+u32(12)+u64(4096)+"abcd")
	c.command(0, 7, 23, 0, 16384, "")
	c.expect("block status", magic+u16(1)+u16(5)+u64(23)+u32(28)+id[:4]+u32(4096)+u32(3)+u32(4096)+u32(0)+u32(8192)+u32(3))
	c.command(8, 7, 24, 0, 16384, "")
	c.expect("block status of one", magic+u16(1)+u16(5)+u64(24)+u32(12)+id[:4]+u32(4096)+u32(3))
	c.command(16, 6, 25, 0, 4096, "")
	h := c.read(20 + 6)
	require.Equal(t, magic+u16(1)+u16(0x8001)+u64(25), string(h[:16]), "fast zero answered % x", h)
	require.Equal(t, uint32(95), binary.BigEndian.Uint32(h[20:]))
	c.read(int(binary.BigEndian.Uint16(h[24:])))
}

func TestOptionsAreAnswered(t *testing.T) {
	x := serving(memory.New(1<<20).Export("a"), memory.New(1<<20).Export("b"))
	x.err["shut"] = nbd.ESHUTDOWN
	x.err["odd"] = errors.New("the text of this is for the log")
	x.err["no"] = nbd.ErrPolicy("generation 3 is over")
	_, path := listen(t, x, nbd.ServerOptions{})
	const errBit = 1 << 31
	info := func(name string) string { return u32(uint32(len(name))) + name + u16(0) }
	for _, c := range []struct {
		name  string
		opt   uint32
		data  string
		reply uint32
		text  string // of an error, if it matters
	}{
		{"TLS → unsupported", 5, "", errBit + 1, ""},
		{"an option nobody knows → unsupported", 4711, "data", errBit + 1, ""},
		{"authentication where none is wanted → unsupported", 0x4c480001, "", errBit + 1, ""},
		{"list with data → invalid", 3, "x", errBit + 3, ""},
		{"structured reply with data → invalid", 8, "x", errBit + 3, ""},
		{"go cut short → invalid", 7, "\x00\x00", errBit + 3, ""},
		{"go for an unknown name → unknown", 7, info("z"), errBit + 6, "unknown export"},
		{"go against policy → policy, with the reason", 7, info("no"), errBit + 2, "generation 3 is over"},
		{"go while shutting down → shutdown", 7, info("shut"), errBit + 7, ""},
		{"go that fails inside → platform, without the reason", 7, info("odd"), errBit + 4, "the export cannot be opened"},
		{"info for an unknown name → unknown", 6, info("z"), errBit + 6, ""},
		{"more data than an option has → too big", 7, string(make([]byte, 100<<10)), errBit + 9, ""},
		{"list → the first name", 3, "", 2, ""},
		{"abort → acknowledged", 2, "", 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			rep, text := rawDial(t, path).option(c.opt, c.data)
			assert.Equal(t, c.reply, rep)
			if c.text != "" {
				assert.Equal(t, c.text, text)
			}
		})
	}
}

func TestInfoOpensAndClosesWithoutServing(t *testing.T) {
	x := serving(memory.New(1 << 20).Export("vol"))
	_, path := listen(t, x, nbd.ServerOptions{})
	c := rawDial(t, path)
	rep, _ := c.option(6, u32(3)+"vol"+u16(0))
	require.Equal(t, uint32(3), rep)
	rep, _ = c.optionReply(6)
	require.Equal(t, uint32(1), rep)
	rep, _ = c.option(8, "")
	require.Equal(t, uint32(1), rep, "the handshake does not go on after info")
	o := x.opens()
	require.Len(t, o, 1)
	assert.True(t, o[0].InfoOnly)
	assert.Zero(t, x.stillOpen("vol"))
}

func TestOversizedWriteIsAnsweredAndEndsTheConnection(t *testing.T) {
	_, path := listen(t, serving(memory.New(1<<32).Export("vol")), nbd.ServerOptions{})
	c := rawDial(t, path)
	c.openOld("vol", 1<<32, 1|4|8|32|64|256)
	c.command(0, 1, 1, 0, 32<<20+1, "")
	c.expect("write", "\x67\x44\x66\x98"+u32(22)+u64(1))
	c.expectEnd()
}

// gated serves "vol". Operations that match wait at a gate. The caller must open the gate before the test ends.
func gated(t *testing.T, match func(faulty.Op) bool) (*exports, *faulty.Backend, *faulty.Gate) {
	f := faulty.Wrap(memory.New(1<<20), clocktesting.NewFakeClock(time.Unix(0, 0)))
	g := faulty.NewGate()
	f.Inject(faulty.Rule{Match: match, Gate: g})
	return serving(&nbd.Export{Name: "vol", Size: 1 << 20, Backend: f}), f, g
}

func TestDisconnectWaitsForWhatIsUnderWay(t *testing.T) {
	x, _, gate := gated(t, faulty.Of(faulty.Write))
	defer gate.Open()
	_, path := listen(t, x, nbd.ServerOptions{})
	c := rawDial(t, path)
	c.openOld("vol", 1<<20, 1|4|8|32|64)
	c.command(0, 1, 7, 0, 4, "abcd")
	c.command(0, 2, 0, 0, 0, "")
	receive(t, gate.Arrived(), "the write")
	assert.Equal(t, 1, x.stillOpen("vol"), "opens while a write is under way")
	gate.Open()
	c.expect("write", "\x67\x44\x66\x98"+u32(0)+u64(7))
	c.expectEnd()
	assert.Zero(t, x.stillOpen("vol"), "opens after the end")
}

func TestShutdownAnswersWhatIsUnderWay(t *testing.T) {
	x, _, gate := gated(t, faulty.Of(faulty.Write))
	defer gate.Open()
	s, path := listen(t, x, nbd.ServerOptions{})
	c := dial(t, path, "vol", nbd.DialOptions{})
	wrote := make(chan error, 1)
	go func() { wrote <- c.WriteAt(context.Background(), []byte("abcd"), 0, false) }()
	receive(t, gate.Arrived(), "the write")
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(within(t)) }()
	gate.Open()
	assert.NoError(t, receive(t, wrote, "the reply"))
	err := receive(t, down, "the shutdown")
	require.NoError(t, err)
	assert.Zero(t, x.stillOpen("vol"))
	receive(t, c.Done(), "the client to notice")
	assert.ErrorIs(t, c.Flush(within(t)), nbd.ErrNotSent, "flush after the end")
}

func TestAShutdownThatTimesOutCancelsBackends(t *testing.T) {
	x, _, gate := gated(t, faulty.Of(faulty.Write))
	defer gate.Open()
	s, path := listen(t, x, nbd.ServerOptions{})
	c := dial(t, path, "vol", nbd.DialOptions{})
	wrote := make(chan error, 1)
	go func() { wrote <- c.WriteAt(context.Background(), []byte("abcd"), 0, false) }()
	receive(t, gate.Arrived(), "the write")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	assert.ErrorIs(t, s.Shutdown(ctx), context.Canceled)
	assert.ErrorIs(t, receive(t, wrote, "the writer"), nbd.ErrUnknownOutcome)
	assert.Zero(t, x.stillOpen("vol"), "opens after shutdown")
}

// lastWord is a connection that records, at its first close, whether requests had been cancelled.
type lastWord struct {
	net.Conn
	isCancelled func() bool
	closed      *sync.Once
	cancelled   *bool
}

func (l lastWord) Close() error {
	l.closed.Do(func() { *l.cancelled = l.isCancelled() })
	return l.Conn.Close()
}

// cancellable is a backend on which writes wait until they are cancelled.
type cancellable struct {
	nbd.Backend
	arrived chan context.Context
}

func (c cancellable) WriteAt(ctx context.Context, _ []byte, _ int64, _ bool) error {
	c.arrived <- ctx
	<-ctx.Done()
	return ctx.Err()
}

// TestNoClientGetsACancellationAsItsAnswer checks this because the outcome of such a request is unknown.
func TestNoClientGetsACancellationAsItsAnswer(t *testing.T) {
	backend := cancellable{arrived: make(chan context.Context, 1)}
	s := nbd.NewServer(serving(&nbd.Export{Name: "vol", Size: 1 << 20, Backend: backend}), nbd.ServerOptions{})
	ours, theirs := net.Pipe()
	var request context.Context
	cancelled := false
	ended := make(chan struct{})
	go func() {
		s.ServeConn(lastWord{theirs, func() bool { return request.Err() != nil }, &sync.Once{}, &cancelled})
		close(ended)
	}()
	c, err := nbd.NewClient(within(t), ours, "vol", nbd.DialOptions{})
	require.NoError(t, err)
	wrote := make(chan error, 1)
	c.WriteAsync(make([]byte, 512), 0, false, func(err error) { wrote <- err })
	request = receive(t, backend.arrived, "the write")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	assert.ErrorIs(t, s.Shutdown(ctx), context.Canceled)
	receive(t, ended, "the end of the connection")
	assert.False(t, cancelled, "the write was cancelled while its client could be told")
	assert.Error(t, request.Err(), "the write was not cancelled at all")
	assert.ErrorIs(t, receive(t, wrote, "the writer"), nbd.ErrUnknownOutcome)
	_ = c.Close()
}

func TestALostClientDoesNotCancelItsRequests(t *testing.T) {
	x, f, gate := gated(t, faulty.Of(faulty.Write))
	defer gate.Open()
	_, path := listen(t, x, nbd.ServerOptions{})
	c := rawDial(t, path)
	c.openOld("vol", 1<<20, 1|4|8|32|64)
	c.command(0, 1, 7, 0, 4, "abcd")
	receive(t, gate.Arrived(), "the write")
	_ = c.conn.Close()
	gate.Open()
	other := dial(t, path, "vol", nbd.DialOptions{})
	got, ctx := make([]byte, 4), within(t)
	for !bytes.Equal(got, []byte("abcd")) { // the write has no reply to wait for; each turn is a round trip
		require.NoError(t, other.ReadAt(ctx, got, 0))
	}
	ops := f.Ops()
	assert.Equal(t, faulty.Write, ops[0].Kind)
}

func TestDropCutsTheConnection(t *testing.T) {
	x := serving(memory.New(1 << 20).Export("vol"))
	_, path := listen(t, x, nbd.ServerOptions{})
	c := dial(t, path, "vol", nbd.DialOptions{})
	x.opens()[0].Drop()
	receive(t, c.Done(), "the client to notice")
	assert.Error(t, c.Err(), "no reason given")
}

func TestRequestsInFlightAreBounded(t *testing.T) {
	x, f, gate := gated(t, faulty.Of(faulty.Read))
	defer gate.Open()
	_, path := listen(t, x, nbd.ServerOptions{MaxInFlight: 3})
	c := rawDial(t, path)
	c.openOld("vol", 1<<20, 1|4|8|32|64)
	for i := range uint64(10) {
		c.command(0, 0, i, 0, 1, "")
	}
	for range 3 {
		receive(t, gate.Arrived(), "a read")
	}
	assert.Len(t, f.Ops(), 3, "requests reached the backend")
	gate.Open()
	c.read(10 * (16 + 1))
	assert.Len(t, f.Ops(), 10, "requests reached the backend in the end")
}
