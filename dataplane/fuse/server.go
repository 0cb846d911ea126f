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

// Backend has the bytes of the file. Offsets and lengths are inside the file. Calls may be concurrent, in any order,
// and may overlap. If an error does not contain a syscall.Errno, the kernel gets EIO.
type Backend interface {
	// ReadAt fills all of p or returns an error. It must not keep p.
	ReadAt(ctx context.Context, p []byte, off int64) error
	// WriteAt writes all of p or returns an error. It must not keep or change p.
	WriteAt(ctx context.Context, p []byte, off int64) error
	// Flush makes every write durable that returned before Flush was called.
	Flush(ctx context.Context) error
	// Zero makes the range read as zeroes; with keep it stays allocated.
	Zero(ctx context.Context, off, length int64, keep bool) error
}

// LateReader is a Backend that answers reads even while a disk hangs.
type LateReader interface {
	// ReadLate is like ReadAt, unless the disk that it reads from hangs. In that case it calls elsewhere once, from
	// another goroutine, with the data in other memory or with the error. When the disk has finally answered, if ever,
	// ReadLate returns left; the call of elsewhere may also come after that. p is not used after ReadLate has returned.
	ReadLate(ctx context.Context, p []byte, off int64, elsewhere func(got []byte, err error)) (left bool, err error)
}

// Server serves one connection.
type Server struct {
	size    atomic.Int64 // only grows
	backend Backend
	fd      int

	large, small share
	poll         *poll
	warm         time.Duration // the constant of that name, except in tests

	readers sync.WaitGroup // and goroutines that answer reads which a reader left behind
	changes sync.RWMutex   // held for reading while a change of the file is answered; see HoldChanges
	taken   atomic.Int64   // number of requests that were read
	closing sync.Mutex
	closed  bool // guarded by closing; then fd may belong to another file
	mu      sync.Mutex
	spare   []*waiter // guarded by mu; waiters that no reader uses

	ended    chan struct{}
	err      error // of Serve; set once, before ended is closed
	stopping chan struct{}
	stop     sync.Once
}

// NewServer returns a server of a file of size bytes for the connection of a descriptor, which it takes over. maxWrite
// is the limit that was negotiated with the kernel: MaxWrite for a new connection, otherwise the limit of its first
// server.
func NewServer(conn int, size int64, maxWrite uint32, b Backend) (*Server, error) {
	if maxWrite > MaxWrite {
		_ = unix.Close(conn)
		return nil, fmt.Errorf("the negotiated request size of %d bytes exceeds the maximum of %d", maxWrite, MaxWrite)
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

// Serve reads and serves requests until the kernel has closed the file system, which is no error, or Stop was called.
// It returns when all requests that it read are answered.
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

// Stop makes Serve read no further requests; those that it has read are answered. The requests in the kernel's queue
// wait for a successor.
func (s *Server) Stop() { s.stopFor(nil) }

// stopFor stops all readers; err is the result of Serve, if this is the first call that stops them.
func (s *Server) stopFor(err error) {
	s.stop.Do(func() {
		s.err = err
		close(s.stopping)
		s.poll.wakeAll()
	})
}

// Grow makes the file longer, after its backend has grown. The kernel asks for the new size when a program next reads
// the attributes of the file; until that time it uses the old size. Grow fails after the service has ended.
func (s *Server) Grow(size int64) error {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.closed {
		return errors.New("tell the kernel that the file has grown: the server has stopped")
	}
	if size > s.size.Load() {
		s.size.Store(size)
	}
	p := make([]byte, outHeaderBytes+invalInodeBytes)
	le.PutUint32(p, uint32(len(p)))
	le.PutUint32(p[4:], notifyInvalInode)
	le.PutUint64(p[outHeaderBytes:], imageNode)
	le.PutUint64(p[outHeaderBytes+8:], ^uint64(0))                                 // below 0: only the attributes
	if _, err := unix.Write(s.fd, p); err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT: it knows no attributes
		return fmt.Errorf("tell the kernel that the file has grown: %w", err)
	}
	return nil
}

// holdLimit limits HoldChanges.
const holdLimit = time.Second

// HoldChanges delays the answers to changes until resume is called, for a second at most. The kernel discards the new
// size (Grow) if a change of the file is answered between the kernel's question and the answer. Then it continues with
// the old size.
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

// requestAt is the offset of a request in a buffer. It is chosen so that the data of a WRITE starts at a page.
const requestAt = pageBytes - inHeaderBytes - writeInBytes

// request is a request that was read. Its handler answers it and returns its buffer.
type request struct {
	buffer *buffer
	length int
}

func (r request) bytes() []byte { return r.buffer.bytes[requestAt : requestAt+r.length] }

// receive reads one request. It moves a short request to a small buffer, so that it can return the large buffer at
// once.
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

// reply answers a request; p starts with room for the header. If the kernel has abandoned the request, the reply has no
// effect.
func (s *Server) reply(unique uint64, status syscall.Errno, p []byte) {
	le.PutUint32(p, uint32(len(p)))
	le.PutUint32(p[4:], uint32(-int32(status)))
	le.PutUint64(p[8:], unique)
	_, _ = unix.Write(s.fd, p)
}
