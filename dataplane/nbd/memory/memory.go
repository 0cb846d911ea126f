// Package memory is an nbd.Backend that stores its bytes sparsely in memory. It is for tests, examples and tools. It
// owns nothing durable, so Flush and FUA do nothing, and it does not model a disk in a crash.
package memory

import (
	"context"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// pageSize is the unit of allocation, and so of Extents, in bytes.
const pageSize = 4096

// Backend is a sparse array of bytes. A range that was never written reads as zeroes and is a hole.
type Backend struct {
	size int64

	mu    sync.RWMutex
	pages map[int64]*[pageSize]byte // guarded by mu; by offset / pageSize
}

var _ nbd.Backend = (*Backend)(nil)

// New creates a Backend of size bytes that is one hole.
func New(size int64) *Backend {
	return &Backend{size: size, pages: map[int64]*[pageSize]byte{}}
}

// Size returns the size in bytes.
func (b *Backend) Size() int64 { return b.size }

// Export returns an Export of b under a name.
func (b *Backend) Export(name string) *nbd.Export {
	return &nbd.Export{Name: name, Size: b.size, MultiConn: true, Backend: b}
}

func (b *Backend) check(off, length int64, past nbd.Errno) error {
	if off < 0 || length < 0 || off > b.size || length > b.size-off {
		return &nbd.Error{Errno: past, Msg: "the range is outside the memory"}
	}
	return nil
}

// each calls f for each page in the range: the page's number, the part of the page, and the position of that part in
// the range.
func each(off, length int64, f func(page, from, to, at int64)) {
	for at := int64(0); at < length; {
		page, from := (off+at)/pageSize, (off+at)%pageSize
		to := min(pageSize, from+length-at)
		f(page, from, to, at)
		at += to - from
	}
}

// ReadAt implements nbd.Backend.
func (b *Backend) ReadAt(_ context.Context, p []byte, off int64) error {
	if err := b.check(off, int64(len(p)), nbd.EINVAL); err != nil {
		return err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	each(off, int64(len(p)), func(page, from, to, at int64) {
		part := p[at : at+to-from]
		if data := b.pages[page]; data != nil {
			copy(part, data[from:to])
		} else {
			clear(part)
		}
	})
	return nil
}

// WriteAt implements nbd.Backend.
func (b *Backend) WriteAt(_ context.Context, p []byte, off int64, _ bool) error {
	if err := b.check(off, int64(len(p)), nbd.ENOSPC); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	each(off, int64(len(p)), func(page, from, to, at int64) {
		copy(b.allocateLocked(page)[from:to], p[at:])
	})
	return nil
}

func (b *Backend) allocateLocked(page int64) *[pageSize]byte {
	data := b.pages[page]
	if data == nil {
		data = new([pageSize]byte)
		b.pages[page] = data
	}
	return data
}

// Flush implements nbd.Backend.
func (b *Backend) Flush(context.Context) error { return nil }

// Trim implements nbd.Backend. Here a trimmed range reads as zeroes.
func (b *Backend) Trim(ctx context.Context, off, length int64, _ bool) error {
	return b.Zero(ctx, off, length, 0)
}

// Zero implements nbd.Backend.
func (b *Backend) Zero(_ context.Context, off, length int64, flags nbd.ZeroFlags) error {
	if err := b.check(off, length, nbd.ENOSPC); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	each(off, length, func(page, from, to, _ int64) {
		switch data := b.pages[page]; {
		case flags&nbd.ZeroNoHole != 0:
			clear(b.allocateLocked(page)[from:to])
		case to-from == pageSize:
			delete(b.pages, page)
		case data != nil:
			clear(data[from:to])
		}
	})
	return nil
}

// Extents implements nbd.Backend.
func (b *Backend) Extents(_ context.Context, off, length int64) ([]nbd.Extent, error) {
	if err := b.check(off, length, nbd.EINVAL); err != nil {
		return nil, err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	var out []nbd.Extent
	each(off, length, func(page, from, to, at int64) {
		var flags nbd.ExtentFlags
		if b.pages[page] == nil {
			flags = nbd.ExtentHole | nbd.ExtentZero
		}
		if n := len(out); n > 0 && out[n-1].Flags == flags {
			out[n-1].Length += to - from
			return
		}
		out = append(out, nbd.Extent{Offset: off + at, Length: to - from, Flags: flags})
	})
	return out, nil
}
