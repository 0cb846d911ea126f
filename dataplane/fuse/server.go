package fuse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Backend has the bytes of the file. Offsets and lengths are inside of the file. Calls arrive concurrently, in any order, and
// overlapping. An error that is not a syscall.Errno, wrapped or not, is EIO to the kernel.
type Backend interface {
	// ReadAt fills p whole or returns an error. It must not keep p.
	ReadAt(ctx context.Context, p []byte, off int64) error
	// WriteAt writes p whole or returns an error. It must not keep or change p.
	WriteAt(ctx context.Context, p []byte, off int64) error
	// Flush makes durable every write that returned before Flush was called.
	Flush(ctx context.Context) error
	// Zero makes the range read as zeroes; with keep it stays allocated.
	Zero(ctx context.Context, off, length int64, keep bool) error
}

// LateReader is a Backend whose reads are answered though a disk hangs.
type LateReader interface {
	// ReadLate is ReadAt, unless the disk hangs that it reads from. Then the answer comes by elsewhere, once and from another goroutine:
	// what was read in other memory, or why nothing could be. When the disk has answered at last, if ever, ReadLate returns left; the
	// call of elsewhere may come after that too. p is not used any more when ReadLate returns.
	ReadLate(ctx context.Context, p []byte, off int64, elsewhere func(got []byte, err error)) (left bool, err error)
}

// Server serves one connection.
type Server struct {
	size    atomic.Int64 // grows only
	backend Backend
	fd      int

	large, small share
	poll         *poll
	warm         time.Duration // the constant of that name, but in tests

	readers sync.WaitGroup // and those who answer what a reader left behind
	changes sync.RWMutex   // held for reading while a change of the file is answered; see HoldChanges
	taken   atomic.Int64   // requests that were read
	closing sync.Mutex
	closed  bool // guarded by closing; fd may be another file's
	mu      sync.Mutex
	spare   []*waiter // guarded by mu; those with which no reader waits

	ended    chan struct{}
	err      error // of Serve; set once, before ended is closed
	stopping chan struct{}
	stop     sync.Once
}

// NewServer returns a server of a file of size bytes for the connection of a descriptor, which it takes over. maxWrite is what was agreed on
// with the kernel: MaxWrite for a new connection, what its first server agreed on for one that is taken over.
func NewServer(conn int, size int64, maxWrite uint32, b Backend) (*Server, error) {
	if maxWrite > MaxWrite {
		_ = unix.Close(conn)
		return nil, fmt.Errorf("requests of %d bytes were agreed on, and %d are the most here", maxWrite, MaxWrite)
	}
	if err := unix.SetNonblock(conn, true); err != nil {
		_ = unix.Close(conn)
		return nil, fmt.Errorf("serve a FUSE connection: %w", err)
	}
	p, err := newPoll(conn)
	if err != nil {
		_ = unix.Close(conn)
		return nil, fmt.Errorf("serve a FUSE connection: %w", err)
	}
	s := &Server{
		backend: b, fd: conn, large: share{pool: large}, small: share{pool: small}, poll: p, spare: slices.Clone(p.waiters[:]), warm: warm,
		ended: make(chan struct{}), stopping: make(chan struct{}),
	}
	s.size.Store(size)
	return s, nil
}

// Serve reads and serves requests until the kernel has let go of the file system, which is no error, or Stop was called. It returns when all
// requests that it read are answered.
func (s *Server) Serve() error {
	defer close(s.ended)
	s.readers.Add(1)
	go s.read(s.takeWaiter(), false)
	s.readers.Wait()
	s.poll.close()
	s.closing.Lock()
	defer s.closing.Unlock()
	s.closed = true
	_ = unix.Close(s.fd)
	return s.err
}

// Ended is closed when Serve returns.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// Stop makes Serve read no more requests; those that it read are answered. What the kernel queues waits for a successor.
func (s *Server) Stop() { s.stopFor(nil) }

// stopFor stops all readers; err is what Serve returns, if it is the first to stop them.
func (s *Server) stopFor(err error) {
	s.stop.Do(func() {
		s.err = err
		close(s.stopping)
		s.poll.wakeAll()
	})
}

// Grow makes the file longer, for a backend that is. The kernel asks for the new size when the file is looked at the next time; until then
// it goes on with the old one. It fails when the service has ended.
func (s *Server) Grow(size int64) error {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.closed {
		return errors.New("tell the kernel that the file has grown: the service has ended")
	}
	if size > s.size.Load() {
		s.size.Store(size)
	}
	p := make([]byte, outHeaderBytes+invalInodeBytes)
	le.PutUint32(p, uint32(len(p)))
	le.PutUint32(p[4:], notifyInvalInode)
	le.PutUint64(p[outHeaderBytes:], imageNode)
	le.PutUint64(p[outHeaderBytes+8:], ^uint64(0))                                 // an offset below 0: the attributes alone
	if _, err := unix.Write(s.fd, p); err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT: it knows no attributes
		return fmt.Errorf("tell the kernel that the file has grown: %w", err)
	}
	return nil
}

// holdLimit bounds HoldChanges.
const holdLimit = time.Second

// HoldChanges keeps back the answers to changes until resume is called, for a second at most. The kernel throws away the size that it is
// told (Grow) when a change of the file is answered between its question and the answer; then it goes on with the old one.
func (s *Server) HoldChanges() (resume func()) {
	s.changes.Lock()
	unlock := sync.OnceFunc(s.changes.Unlock)
	timer := time.AfterFunc(holdLimit, unlock)
	return func() {
		timer.Stop()
		unlock()
	}
}

func (s *Server) isStopping() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// requestAt is where a request begins in a buffer: so that the data of a WRITE begins at a page.
const requestAt = pageBytes - inHeaderBytes - writeInBytes

// request is one that was read. Its handler answers it and gives its buffer back.
type request struct {
	buffer *buffer
	length int
}

func (r request) bytes() []byte { return r.buffer.bytes[requestAt : requestAt+r.length] }

// receive reads one request. A short one is moved to a small buffer, so that the large one goes back at once.
func (s *Server) receive() (request, error) {
	b, err := s.large.get()
	if err != nil {
		return request{}, err
	}
	n, err := unix.Read(s.fd, b.bytes[requestAt:])
	if err == nil && n == 0 {
		err = unix.ENODEV
	}
	if err != nil {
		b.release()
		return request{}, err
	}
	r := request{buffer: b, length: n}
	if requestAt+n > small.size {
		return r, nil
	}
	short, err := s.small.get()
	if err != nil {
		return r, nil
	}
	defer b.release()
	copy(short.bytes[requestAt:], r.bytes())
	return request{buffer: short, length: n}, nil
}

// reply answers a request; p begins with room for the header. If the kernel has given the request up meanwhile, the reply goes nowhere.
func (s *Server) reply(unique uint64, status syscall.Errno, p []byte) {
	le.PutUint32(p, uint32(len(p)))
	le.PutUint32(p[4:], uint32(-int32(status)))
	le.PutUint64(p[8:], unique)
	_, _ = unix.Write(s.fd, p)
}
