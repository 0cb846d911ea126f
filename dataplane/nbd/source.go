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

// source is where a connection's bytes are read. Its methods do what those of bufio.Reader of the same names do.
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

// rawOf returns how a connection is read and written without blocking, nil if that cannot be: by these types and no others, for what
// embeds one of them may have a Read or a Write of its own. It is nil too for one that is closed already: the first use says so.
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

// socketSource reads a socket. It has a buffer only while there are bytes in it, or a read that does not block is under way: a connection
// that waits for its peer holds none.
type socketSource struct {
	raw  syscall.RawConn
	buf  *[readBuffer]byte // nil: none
	r, w int               // buf[r:w] was read and not taken

	fillOnce, readOnce func(fd uintptr) bool
	direct             []byte // where readOnce reads to
	n                  int    // what the last of either read
	err                error
}

var readBuffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// Buffered implements source.
func (s *socketSource) Buffered() int { return s.w - s.r }

// tryFill reads once into the buffer. It returns false when there is nothing to read yet.
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

// await runs one of the reads as soon as there is something to read, and returns how much it read, or why nothing.
func (s *socketSource) await(once func(fd uintptr) bool) (int, error) {
	s.n, s.err = 0, nil
	err := s.raw.Read(once)
	if err == nil {
		err = s.err
	}
	return max(s.n, 0), err
}

// drop gives the buffer back, which must be empty.
func (s *socketSource) drop() {
	if s.buf != nil {
		readBuffers.Put(s.buf)
	}
	s.buf, s.r, s.w = nil, 0, 0
}

// fill reads something into the buffer, which must not be full of what was not taken.
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

// Peek implements source. n must be readBuffer at most.
func (s *socketSource) Peek(n int) ([]byte, error) {
	for s.Buffered() < n {
		if err := s.fill(); err != nil {
			return nil, err
		}
	}
	return s.buf[s.r : s.r+n], nil
}

// Read implements io.Reader. What is at least as long as the buffer is read where it belongs.
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
