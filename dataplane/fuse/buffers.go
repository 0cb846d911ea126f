package fuse

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// smallBytes is the longest data in a small buffer.
const smallBytes = 64 << 10

// These pools have the buffers of all servers of this process. Headers stand right before a page, and data starts at
// the page. The buffers are resident and locked. Suppose a process is killed while the kernel copies a request to a
// page that is not resident. Then the copy fails, and the kernel ends the request with EIO and does not save it for a
// successor. The same holds for the pages from which a reply is copied.
var (
	large = newPool(pageBytes+MaxWrite, 8, 32, 256)
	small = newPool(pageBytes+smallBytes, 16, 256, 2048)
)

// pool has buffers of one size.
type pool struct {
	size int
	keep int // the largest number of free buffers that stay mapped
	// most is how many buffers one server may have, and all is how many all servers may have together. A server that
	// has reached a limit waits, and so does its kernel. A server always gets its first buffer, so that no device waits
	// for another device with requests that hang.
	most, all int

	mu    sync.Mutex
	given *sync.Cond // on mu: a buffer was returned
	used  int        // guarded by mu
	free  [][]byte   // guarded by mu
}

func newPool(size, keep, most, all int) *pool {
	p := &pool{size: size, keep: keep, most: most, all: all}
	p.given = sync.NewCond(&p.mu)
	return p
}

// share is the part of a pool that one server uses.
type share struct {
	pool *pool
	used int // guarded by pool.mu
}

// get waits for a buffer.
func (s *share) get() (*buffer, error) {
	p := s.pool
	p.mu.Lock()
	for s.used >= p.most || p.used >= p.all && s.used > 0 {
		p.given.Wait()
	}
	s.used++
	p.used++
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		p.mu.Unlock()
		return &buffer{bytes: b, share: s}, nil
	}
	p.mu.Unlock()
	b, err := unix.Mmap(-1, 0, p.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		s.put(nil)
		return nil, fmt.Errorf("allocate a buffer: %w", err)
	}
	_ = unix.Mlock(b) // without the right to lock, a machine without swap also keeps them resident
	return &buffer{bytes: b, share: s}, nil
}

func (s *share) put(b []byte) {
	p := s.pool
	p.mu.Lock()
	s.used--
	p.used--
	if b != nil && len(p.free) < p.keep {
		p.free = append(p.free, b)
		b = nil
	}
	p.given.Broadcast()
	p.mu.Unlock()
	if b != nil {
		_ = unix.Munmap(b)
	}
}

// discount stops counting a buffer while a disk may still write to its memory, so that the server can take another
// buffer. The memory serves nothing else: its owner unmaps it, before or after.
func (b *buffer) discount() { b.share.put(nil) }

func (b *buffer) unmap() { _ = unix.Munmap(b.bytes) }

// buffer has one owner, which returns it once.
type buffer struct {
	bytes []byte
	share *share
}

func (b *buffer) release() { b.share.put(b.bytes) }

// reply returns room for a reply with n bytes of data: the header, right before the page, and the data.
func (b *buffer) reply(n int) (whole, data []byte) {
	return b.bytes[pageBytes-outHeaderBytes : pageBytes+n], b.bytes[pageBytes : pageBytes+n]
}
