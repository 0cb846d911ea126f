package engine

import (
	"context"
	"sync/atomic"
	"unsafe"

	"github.com/longhorn-lep/longhorn-manager/nbd"
)

// recorder counts what passes.
type recorder struct {
	nbd.Backend
	zeroes, flushes atomic.Int64
}

func (r *recorder) Zero(ctx context.Context, off, length int64, flags nbd.ZeroFlags) error {
	r.zeroes.Add(1)
	return r.Backend.Zero(ctx, off, length, flags)
}

func (r *recorder) Flush(ctx context.Context) error {
	r.flushes.Add(1)
	return r.Backend.Flush(ctx)
}

// alignedPage returns a page that direct I/O accepts.
func alignedPage() []byte {
	p := make([]byte, 8192)
	at := 4096 - int(uintptr(unsafe.Pointer(&p[0]))%4096)
	return p[at : at+4096]
}
