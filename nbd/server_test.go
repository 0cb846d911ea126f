package nbd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/nbd/faulty"
	"github.com/longhorn-lep/longhorn-manager/nbd/memory"
)

// rawClient speaks the protocol byte by byte, with numbers taken from the specification and not from the code under test.
type rawClient struct {
	t    *testing.T
	conn net.Conn
}

func rawDial(t *testing.T, path string) *rawClient {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	c := &rawClient{t, conn}
	if got := string(c.read(18)); got != "NBDMAGICIHAVEOPT\x00\x03" {
		t.Fatalf("greeting %q", got)
	}
	c.write("\x00\x00\x00\x03")
	return c
}

func (c *rawClient) write(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, s); err != nil {
		c.t.Fatal(err)
	}
}

func (c *rawClient) read(n int) []byte {
	c.t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(c.conn, b); err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *rawClient) expectEnd() {
	c.t.Helper()
	if n, err := c.conn.Read(make([]byte, 1)); n != 0 || err == nil {
		c.t.Fatalf("read %d bytes, %v, where the connection should have ended", n, err)
	}
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
	if string(h[:8]) != "\x00\x03\xe8\x89\x04\x55\x65\xa9" || binary.BigEndian.Uint32(h[8:]) != opt {
		c.t.Fatalf("option reply % x", h)
	}
	return binary.BigEndian.Uint32(h[12:]), string(c.read(int(binary.BigEndian.Uint32(h[16:]))))
}

func (c *rawClient) command(flags, kind uint16, cookie, off uint64, length uint32, payload string) {
	c.t.Helper()
	c.write("\x25\x60\x95\x13" + u16(flags) + u16(kind) + u64(cookie) + u64(off) + u32(length) + payload)
}

func (c *rawClient) expect(what, want string) {
	c.t.Helper()
	if got := string(c.read(len(want))); got != want {
		c.t.Fatalf("%s: got % x, want % x", what, got, want)
	}
}

// openOld enters by EXPORT_NAME: simple replies.
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
	if n := x.stillOpen("vol"); n != 0 {
		t.Errorf("%d opens not closed when the connection had ended", n)
	}
}

func TestStructuredRepliesOnTheWire(t *testing.T) {
	_, path := listen(t, serving(memory.New(1<<20).Export("vol")), nbd.ServerOptions{})
	c := rawDial(t, path)
	if rep, _ := c.option(10, u32(3)+"vol"+u32(0)); rep != 1<<31+3 {
		t.Fatalf("context before structured replies answered %#x", rep)
	}
	if rep, _ := c.option(8, ""); rep != 1 {
		t.Fatalf("structured replies answered %#x", rep)
	}
	if rep, data := c.option(9, u32(3)+"vol"+u32(1)+u32(5)+"base:"); rep != 4 || data[4:] != "base:allocation" {
		t.Fatalf("list of contexts answered %#x %q", rep, data)
	}
	c.optionReply(9)
	rep, id := c.option(10, u32(3)+"vol"+u32(2)+u32(3)+"x:y"+u32(15)+"base:allocation")
	if rep != 4 || id[4:] != "base:allocation" {
		t.Fatalf("set context answered %#x %q", rep, id)
	}
	c.optionReply(10)
	if rep, data := c.option(7, u32(3)+"vol"+u16(1)+u16(3)); rep != 3 || data != u16(0)+u64(1<<20)+u16(1|4|8|32|64|128|256) {
		t.Fatalf("go answered %#x % x", rep, data)
	}
	if rep, data := c.optionReply(7); rep != 3 || data != u16(3)+u32(1)+u32(4096)+u32(32<<20) {
		t.Fatalf("block sizes %#x % x", rep, data)
	}
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
	if string(h[:16]) != magic+u16(1)+u16(0x8001)+u64(25) || binary.BigEndian.Uint32(h[20:]) != 95 {
		t.Fatalf("fast zero answered % x", h)
	}
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
			if rep != c.reply || c.text != "" && text != c.text {
				t.Errorf("answered %#x %q", rep, text)
			}
		})
	}
}

func TestInfoOpensAndClosesWithoutServing(t *testing.T) {
	x := serving(memory.New(1 << 20).Export("vol"))
	_, path := listen(t, x, nbd.ServerOptions{})
	c := rawDial(t, path)
	if rep, _ := c.option(6, u32(3)+"vol"+u16(0)); rep != 3 {
		t.Fatalf("info answered %#x", rep)
	}
	if rep, _ := c.optionReply(6); rep != 1 {
		t.Fatalf("info ended with %#x", rep)
	}
	if rep, _ := c.option(8, ""); rep != 1 {
		t.Fatalf("the handshake does not go on after info: %#x", rep)
	}
	if o := x.opens(); len(o) != 1 || !o[0].InfoOnly || x.stillOpen("vol") != 0 {
		t.Errorf("opened %+v, still open %d", o, x.stillOpen("vol"))
	}
}

func TestOversizedWriteIsAnsweredAndEndsTheConnection(t *testing.T) {
	_, path := listen(t, serving(memory.New(1<<32).Export("vol")), nbd.ServerOptions{})
	c := rawDial(t, path)
	c.openOld("vol", 1<<32, 1|4|8|32|64|256)
	c.command(0, 1, 1, 0, 32<<20+1, "")
	c.expect("write", "\x67\x44\x66\x98"+u32(22)+u64(1))
	c.expectEnd()
}

// gated serves "vol" with operations that match held at a gate. The caller must open it before the test ends.
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
	if n := x.stillOpen("vol"); n != 1 {
		t.Errorf("%d opens while a write is under way", n)
	}
	gate.Open()
	c.expect("write", "\x67\x44\x66\x98"+u32(0)+u64(7))
	c.expectEnd()
	if n := x.stillOpen("vol"); n != 0 {
		t.Errorf("%d opens after the end", n)
	}
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
	if err := receive(t, wrote, "the reply"); err != nil {
		t.Errorf("write: %v", err)
	}
	if err := receive(t, down, "the shutdown"); err != nil || x.stillOpen("vol") != 0 {
		t.Errorf("shutdown: %v, still open %d", err, x.stillOpen("vol"))
	}
	receive(t, c.Done(), "the client to notice")
	if err := c.Flush(within(t)); !errors.Is(err, nbd.ErrNotSent) {
		t.Errorf("flush after the end: %v", err)
	}
}

func TestShutdownOutOfPatienceCancelsBackends(t *testing.T) {
	x, _, gate := gated(t, faulty.Of(faulty.Write))
	defer gate.Open()
	s, path := listen(t, x, nbd.ServerOptions{})
	c := dial(t, path, "vol", nbd.DialOptions{})
	wrote := make(chan error, 1)
	go func() { wrote <- c.WriteAt(context.Background(), []byte("abcd"), 0, false) }()
	receive(t, gate.Arrived(), "the write")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("shutdown: %v", err)
	}
	if err := receive(t, wrote, "the writer"); !errors.Is(err, nbd.ErrUnknownOutcome) {
		t.Errorf("write: %v", err)
	}
	if n := x.stillOpen("vol"); n != 0 {
		t.Errorf("%d opens after shutdown", n)
	}
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
		if err := other.ReadAt(ctx, got, 0); err != nil {
			t.Fatal(err)
		}
	}
	if ops := f.Ops(); ops[0].Kind != faulty.Write {
		t.Errorf("operations %+v", ops)
	}
}

func TestDropCutsTheConnection(t *testing.T) {
	x := serving(memory.New(1 << 20).Export("vol"))
	_, path := listen(t, x, nbd.ServerOptions{})
	c := dial(t, path, "vol", nbd.DialOptions{})
	x.opens()[0].Drop()
	receive(t, c.Done(), "the client to notice")
	if c.Err() == nil {
		t.Error("no reason given")
	}
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
	if n := len(f.Ops()); n != 3 {
		t.Errorf("%d requests reached the backend", n)
	}
	gate.Open()
	c.read(10 * (16 + 1))
	if n := len(f.Ops()); n != 10 {
		t.Errorf("%d requests reached the backend in the end", n)
	}
}
