package nbd_test

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// stub is a server on the other end of a pipe or socket. The test sends its messages one by one.
type stub struct {
	*rawClient
	client *nbd.Client
}

// newStub performs a handshake up to the transmission phase. With plain it does so without structured replies.
func newStub(t *testing.T, plain bool, opts nbd.DialOptions) *stub {
	t.Helper()
	ours, theirs := net.Pipe()
	return newStubOn(t, ours, theirs, plain, opts)
}

// newStubOn is newStub on the two ends of a connection.
func newStubOn(t *testing.T, ours, theirs net.Conn, plain bool, opts nbd.DialOptions) *stub {
	t.Helper()
	_ = ours.SetDeadline(time.Now().Add(patience))
	s := &stub{rawClient: &rawClient{t, ours}}
	type dialed struct {
		c   *nbd.Client
		err error
	}
	done := make(chan dialed, 1)
	go func() {
		c, err := nbd.NewClient(within(t), theirs, "vol", opts)
		done <- dialed{c, err}
	}()
	s.write("NBDMAGICIHAVEOPT\x00\x03")
	s.read(4)
	structured := u32(1)
	if plain {
		structured = u32(1<<31 + 1)
	}
	s.answer(8, structured, "")
	if !plain {
		s.answer(10, u32(1), "")
	}
	s.answer(7, u32(3), u16(0)+u64(1<<30)+u16(1|4|32|64))
	s.write("\x00\x03\xe8\x89\x04\x55\x65\xa9" + u32(7) + u32(1) + u32(0))
	d := <-done
	require.NoError(t, d.err)
	s.client = d.c
	t.Cleanup(func() { _ = ours.Close(); _ = d.c.Close() })
	return s
}

func (s *stub) answer(opt byte, reply, data string) {
	s.t.Helper()
	h := s.read(16)
	require.Equal(s.t, opt, h[11])
	s.read(int(h[14])<<8 + int(h[15]))
	s.write("\x00\x03\xe8\x89\x04\x55\x65\xa9" + u32(uint32(opt)) + reply + u32(uint32(len(data))) + data)
}

// request reads a request's header and returns its cookie.
func (s *stub) request() (kind byte, cookie string) {
	s.t.Helper()
	h := s.read(28)
	return h[7], string(h[8:16])
}

const chunkMagic = "\x66\x8e\x33\xef"

func TestClientTakesRepliesInAllForms(t *testing.T) {
	for _, c := range []struct {
		name  string
		plain bool
		reply func(cookie string) string
		want  string // result of an 8 byte read at 64; empty: EIO
	}{
		{"simple reply", true, func(k string) string { return "\x67\x44\x66\x98" + u32(0) + k + "abcdefgh" }, "abcdefgh"},
		{"simple error", true, func(k string) string { return "\x67\x44\x66\x98" + u32(5) + k }, ""},
		{"simple error although structured", false, func(k string) string { return "\x67\x44\x66\x98" + u32(5) + k }, ""},
		{"data in two chunks, backwards", false, func(k string) string {
			return chunkMagic + u16(0) + u16(1) + k + u32(12) + u64(68) + "efgh" + chunkMagic + u16(1) + u16(1) + k + u32(12) + u64(64) + "abcd"
		}, "abcdefgh"},
		{"data, a hole, and an end", false, func(k string) string {
			return chunkMagic + u16(0) + u16(1) + k + u32(12) + u64(64) + "abcd" + chunkMagic + u16(0) + u16(2) + k + u32(12) + u64(68) + u32(4) +
				chunkMagic + u16(1) + u16(0) + k + u32(0)
		}, "abcd\x00\x00\x00\x00"},
		{"data, then an error with an offset", false, func(k string) string {
			return chunkMagic + u16(0) + u16(1) + k + u32(12) + u64(64) + "abcd" + chunkMagic + u16(1) + u16(0x8002) + k + u32(17) + u32(5) + u16(3) + "bad" + u64(68)
		}, ""},
		{"an error of a kind nobody knows", false, func(k string) string {
			return chunkMagic + u16(1) + u16(0x8077) + k + u32(6) + u32(5) + u16(0)
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStub(t, c.plain, nbd.DialOptions{})
			got, result := []byte("????????"), make(chan error, 1)
			go func() { result <- s.client.ReadAt(context.Background(), got, 64) }()
			_, cookie := s.request()
			s.write(c.reply(cookie))
			err := receive(t, result, "the read")
			if c.want == "" {
				assert.ErrorIs(t, err, syscall.EIO)
			} else {
				require.NoError(t, err)
				assert.Equal(t, c.want, string(got))
			}
			assert.NoError(t, s.client.Err(), "the connection was given up")
		})
	}
}

func TestAClientDisconnectsFromAServerThatBreaksTheProtocol(t *testing.T) {
	for _, c := range []struct {
		name  string
		plain bool
		reply func(cookie string) string
	}{
		{"another magic", false, func(k string) string { return "????????????????????" }},
		{"a reply to nothing", false, func(k string) string { return chunkMagic + u16(1) + u16(0) + u64(4711) + u32(0) }},
		{"a simple reply to a read although structured", false, func(k string) string { return "\x67\x44\x66\x98" + u32(0) + k }},
		{"a structured reply although plain", true, func(k string) string { return chunkMagic + u16(1) + u16(0) + k + u32(0) }},
		{"an end without data", false, func(k string) string { return chunkMagic + u16(1) + u16(0) + k + u32(0) }},
		{"data outside the range", false, func(k string) string { return chunkMagic + u16(1) + u16(1) + k + u32(16) + u64(65) }},
		{"data before the range", false, func(k string) string { return chunkMagic + u16(1) + u16(1) + k + u32(16) + u64(63) }},
		{"the same data twice", false, func(k string) string {
			part := chunkMagic + u16(0) + u16(1) + k + u32(12) + u64(64) + "abcd"
			return part + part
		}},
		{"a status for a read", false, func(k string) string { return chunkMagic + u16(1) + u16(5) + k + u32(12) }},
		{"an error chunk without an error", false, func(k string) string { return chunkMagic + u16(1) + u16(0x8001) + k + u32(6) + u32(0) + u16(0) }},
		{"a very long error", false, func(k string) string { return chunkMagic + u16(1) + u16(0x8001) + k + u32(1<<30) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStub(t, c.plain, nbd.DialOptions{})
			result := make(chan error, 1)
			go func() { result <- s.client.ReadAt(context.Background(), make([]byte, 8), 64) }()
			_, cookie := s.request()
			_, _ = io.WriteString(s.conn, c.reply(cookie)) // the client may hang up before it has read all of it
			err := receive(t, result, "the read")
			assert.ErrorIs(t, err, nbd.ErrUnknownOutcome)
			assert.ErrorIs(t, err, nbd.ErrProtocol)
			assert.ErrorIs(t, s.client.Err(), nbd.ErrProtocol)
		})
	}
}

func TestCancelBeforeSendingIsCertain(t *testing.T) {
	s := newStub(t, false, nbd.DialOptions{})
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- s.client.WriteAt(context.Background(), make([]byte, 4096), 0, false) }()
	s.read(1) // the first write is stuck in the pipe; later writes queue behind it
	ctx, cancel := context.WithCancel(context.Background())
	go func() { second <- s.client.WriteAt(ctx, make([]byte, 4096), 8192, false) }()
	cancel()
	err := receive(t, second, "the second write")
	assert.ErrorIs(t, err, nbd.ErrNotSent)
	assert.NotErrorIs(t, err, nbd.ErrUnknownOutcome)
	assert.ErrorIs(t, err, context.Canceled)
	rest := s.read(27 + 4096)
	s.write(chunkMagic + u16(1) + u16(0) + string(rest[7:15]) + u32(0))
	assert.NoError(t, receive(t, first, "the first write"))
	go func() { first <- s.client.Flush(context.Background()) }()
	kind, _ := s.request()
	assert.Equal(t, byte(3), kind)
}

func TestCancelInTheMiddleOfAPayloadEndsTheConnection(t *testing.T) {
	for _, c := range []struct {
		name  string
		start func(ctx context.Context, s *stub) error
		stall func(s *stub)
	}{
		{
			"half sent", func(ctx context.Context, s *stub) error { return s.client.WriteAt(ctx, make([]byte, 4096), 0, false) },
			func(s *stub) { s.read(100) },
		},
		{
			"half received", func(ctx context.Context, s *stub) error { return s.client.ReadAt(ctx, make([]byte, 4096), 0) },
			func(s *stub) {
				_, cookie := s.request()
				s.write(chunkMagic + u16(1) + u16(1) + cookie + u32(8+4096) + u64(0))
				s.write("the rest of this never comes")
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStub(t, false, nbd.DialOptions{CancelGrace: time.Millisecond})
			ctx, cancel := context.WithCancel(context.Background())
			result := make(chan error, 1)
			go func() { result <- c.start(ctx, s) }()
			c.stall(s)
			cancel()
			err := receive(t, result, "the request")
			assert.ErrorIs(t, err, nbd.ErrUnknownOutcome)
			assert.ErrorIs(t, err, context.Canceled)
			receive(t, s.client.Done(), "the end of the connection")
		})
	}
}
