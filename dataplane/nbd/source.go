package nbd

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// source reads the bytes of a connection. Its methods behave like the methods of bufio.Reader with the same names.
type source interface {
	io.Reader
	Peek(n int) ([]byte, error)
	Discard(n int) (int, error)
	Buffered() int
}

// readBuffer is how many bytes a busy connection reads at once: several requests with a few KiB each.
const readBuffer = 64 << 10

// newSource returns the source of a connection.
func newSource(conn net.Conn) source {
	raw := rawOf(conn)
	if raw == nil {
		return bufio.NewReaderSize(conn, readBuffer)
	}
	s := &socketSource{raw: raw}
	s.fillOnce = s.tryFill
	s.readOnce = s.tryRead
	return s
}

// rawOf returns the raw connection for reading and writing without blocking, or nil if that is impossible. It knows
// only these types, because a type that embeds one of them may have its own Read or Write. It also returns nil for a
// closed connection: the first use of that reports the error.
func rawOf(conn net.Conn) syscall.RawConn {
	var sc syscall.Conn
	switch c := conn.(type) {
	case *net.TCPConn:
		sc = c
	case *net.UnixConn:
		sc = c
	default:
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// socketSource reads a socket. It has a buffer only while the buffer contains bytes, or while a read that does not
// block is under way. A connection that waits for its peer has none.
type socketSource struct {
	raw  syscall.RawConn
	buf  *[readBuffer]byte // nil if there is none
	r, w int               // buf[r:w] was read and not yet taken

	fillOnce, readOnce func(fd uintptr) bool
	direct             []byte // destination of readOnce
	n                  int    // result of the last read of either kind
	err                error
}

var readBuffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// Buffered implements source.
func (s *socketSource) Buffered() int { return s.w - s.r }

// tryFill reads once into the buffer. It returns false if there is nothing to read yet.
func (s *socketSource) tryFill(fd uintptr) bool {
	if s.buf == nil {
		s.buf = readBuffers.Get().(*[readBuffer]byte)
	}
	if s.try(fd, s.buf[s.w:]) {
		return true
	}
	if s.w == 0 {
		s.drop()
	}
	return false
}

func (s *socketSource) tryRead(fd uintptr) bool { return s.try(fd, s.direct) }

func (s *socketSource) try(fd uintptr, p []byte) bool {
	for {
		s.n, s.err = unix.Read(int(fd), p)
		switch {
		case errors.Is(s.err, unix.EINTR):
			continue
		case errors.Is(s.err, unix.EAGAIN):
			return false
		case s.err == nil && s.n == 0:
			s.err = io.EOF
		}
		return true
	}
}

// await runs one of the reads as soon as there is something to read. It returns the number of bytes, or the reason why
// there are none.
func (s *socketSource) await(once func(fd uintptr) bool) (int, error) {
	s.n, s.err = 0, nil
	err := s.raw.Read(once)
	if err == nil {
		err = s.err
	}
	return max(s.n, 0), err
}

// drop releases the buffer, which must be empty.
func (s *socketSource) drop() {
	if s.buf != nil {
		readBuffers.Put(s.buf)
	}
	s.buf, s.r, s.w = nil, 0, 0
}

// fill reads some bytes into the buffer, which must not be full of bytes that were not taken.
func (s *socketSource) fill() error {
	if s.r > 0 {
		s.w = copy(s.buf[:], s.buf[s.r:s.w])
		s.r = 0
	}
	n, err := s.await(s.fillOnce)
	s.w += n
	if err != nil && s.w == 0 {
		s.drop()
	}
	return err
}

// Peek implements source. n must be at most readBuffer.
func (s *socketSource) Peek(n int) ([]byte, error) {
	for s.Buffered() < n {
		if err := s.fill(); err != nil {
			return nil, err
		}
	}
	return s.buf[s.r : s.r+n], nil
}

// Read implements io.Reader. If p is at least as long as the buffer, Read bypasses the buffer.
func (s *socketSource) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if s.Buffered() == 0 {
		if len(p) >= readBuffer {
			s.direct = p
			n, err := s.await(s.readOnce)
			s.direct = nil
			return n, err
		}
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.buf[s.r:s.w])
	s.r += n
	return n, nil
}

// Discard implements source.
func (s *socketSource) Discard(n int) (int, error) {
	for left := n; ; {
		taken := min(left, s.Buffered())
		s.r += taken
		if left -= taken; left == 0 {
			return n, nil
		}
		if err := s.fill(); err != nil {
			return n - left, err
		}
	}
}
