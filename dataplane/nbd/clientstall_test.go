package nbd_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// tcpPair returns the two ends of a TCP connection.
func tcpPair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	ours, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	theirs, err = l.Accept()
	require.NoError(t, err)
	return ours, theirs
}

// transports are connections on which a client can send without blocking, and one on which it cannot.
var transports = map[string]func(t *testing.T) (ours, theirs net.Conn){
	"tcp":  tcpPair,
	"pipe": func(*testing.T) (net.Conn, net.Conn) { return net.Pipe() },
}

// large is more than the kernel accepts for a peer that does not read.
const large = 24 << 20

func TestARequestDoesNotSendThoseOfOthers(t *testing.T) {
	s := newStub(t, false, nbd.DialOptions{})
	flushed, wrote := make(chan error, 1), make(chan error, 1)
	go func() { flushed <- s.client.Flush(context.Background()) }()
	s.read(1) // the flush is being sent; the write waits behind it
	asked := make(chan struct{})
	go func() {
		s.client.WriteAsync(make([]byte, 4096), 0, false, func(err error) { wrote <- err })
		close(asked)
	}()
	receive(t, asked, "the write to be asked for")
	rest := s.read(27)
	s.write(chunkMagic + u16(1) + u16(0) + string(rest[7:15]) + u32(0))
	assert.NoError(t, receive(t, flushed, "the flush, which was answered, while nobody reads the write"))
	s.client.Cut(errors.New("over"))
	if err := receive(t, wrote, "the write"); !errors.Is(err, nbd.ErrUnknownOutcome) {
		assert.ErrorIs(t, err, nbd.ErrNotSent)
	}
}

func TestWriteAsyncNeverBlocks(t *testing.T) {
	for name, pair := range transports {
		for _, fua := range []bool{false, true} { // the stub does not know FUA, so that is a flush after it
			t.Run(name, func(t *testing.T) {
				ours, theirs := pair(t)
				s := newStubOn(t, ours, theirs, false, nbd.DialOptions{})
				wrote, asked := make(chan error, 1), make(chan struct{})
				go func() {
					s.client.WriteAsync(make([]byte, large), 0, fua, func(err error) { wrote <- err })
					close(asked)
				}()
				receive(t, asked, "a write to a peer that reads nothing to be asked for")
				kind, cookie := s.request()
				s.read(large)
				s.write(chunkMagic + u16(1) + u16(0) + cookie + u32(0))
				if fua {
					flush, cookie := s.request()
					assert.Equal(t, byte(3), flush)
					assert.Empty(t, wrote, "the write has ended already")
					s.write(chunkMagic + u16(1) + u16(0) + cookie + u32(0))
				}
				err := receive(t, wrote, "the write")
				require.NoError(t, err)
				assert.Equal(t, byte(1), kind)
			})
		}
	}
}

// stalls are the states in which a peer can leave a client. Each starts a call and passes its outcome on.
var stalls = []struct {
	name  string
	stall func(s *stub, result chan<- error)
}{
	{"nothing read", func(s *stub, result chan<- error) {
		s.client.WriteAsync(make([]byte, large), 0, false, func(err error) { result <- err })
		s.read(1)
	}},
	{"no reply", func(s *stub, result chan<- error) {
		go func() { result <- s.client.Flush(context.Background()) }()
		s.request()
	}},
	{"half a reply to a read", func(s *stub, result chan<- error) {
		go func() { result <- s.client.ReadAt(context.Background(), make([]byte, 4096), 0) }()
		_, cookie := s.request()
		s.write(chunkMagic + u16(1) + u16(1) + cookie + u32(8+4096) + u64(0) + "the rest of this never comes")
	}},
	{"half a reply to a control", func(s *stub, result chan<- error) {
		go func() {
			_, err := s.client.Control(context.Background(), 1, nil)
			result <- err
		}()
		_, cookie := s.request()
		s.write(chunkMagic + u16(1) + u16(0x4c48) + cookie + u32(8) + "half")
	}},
}

func TestCutEndsEverythingAtOnce(t *testing.T) {
	for name, pair := range transports {
		for _, c := range stalls {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				ours, theirs := pair(t)
				s := newStubOn(t, ours, theirs, false, nbd.DialOptions{CloseTimeout: time.Hour})
				result, cause := make(chan error, 1), errors.New("expelled")
				c.stall(s, result)
				s.client.Cut(cause)
				err := receive(t, result, "the call")
				assert.ErrorIs(t, err, nbd.ErrUnknownOutcome)
				assert.ErrorIs(t, err, cause)
				assert.ErrorIs(t, s.client.Flush(context.Background()), nbd.ErrNotSent, "a flush after the cut")
				closed := make(chan error, 1)
				go func() { closed <- s.client.Close() }()
				err = receive(t, closed, "the close")
				require.NoError(t, err)
				assert.ErrorIs(t, s.client.Err(), cause)
			})
		}
	}
}

func TestCloseHasATimeLimitForEveryPeer(t *testing.T) {
	for name, pair := range transports {
		for _, c := range stalls {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				ours, theirs := pair(t)
				s := newStubOn(t, ours, theirs, false, nbd.DialOptions{CloseTimeout: time.Millisecond})
				result, closed := make(chan error, 1), make(chan error, 1)
				c.stall(s, result)
				go func() { closed <- s.client.Close() }()
				err := receive(t, closed, "the close")
				require.NoError(t, err)
				assert.ErrorIs(t, s.client.Err(), nbd.ErrClosed)
				assert.ErrorIs(t, receive(t, result, "the call"), nbd.ErrUnknownOutcome)
			})
		}
	}
}

// TestACancelledRequestWithoutPayloadDoesNotWaitForTheSocket queues a flush behind a write that the peer does not read.
// The socket holds no memory of the flush's caller, so cancelling the flush costs neither time nor the connection.
func TestACancelledRequestWithoutPayloadDoesNotWaitForTheSocket(t *testing.T) {
	s := newStub(t, false, nbd.DialOptions{CancelGrace: time.Hour})
	ctx, cancel := context.WithCancel(context.Background())
	flushed := make(chan error, 1)
	go func() { flushed <- s.client.Flush(ctx) }()
	s.read(1)
	cancel()
	err := receive(t, flushed, "the flush")
	assert.ErrorIs(t, err, nbd.ErrUnknownOutcome)
	assert.ErrorIs(t, err, context.Canceled)
	rest := s.read(27)
	s.write(chunkMagic + u16(1) + u16(0) + string(rest[7:15]) + u32(0)) // no call waits for it
	go func() { flushed <- s.client.Flush(context.Background()) }()
	_, cookie := s.request()
	s.write(chunkMagic + u16(1) + u16(0) + cookie + u32(0))
	assert.NoError(t, receive(t, flushed, "the next flush"))
}
