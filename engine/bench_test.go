package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/nbd/memory"
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

// BenchmarkMirror measures what the engine itself adds: three members in memory, nothing between.
func BenchmarkMirror(b *testing.B) {
	for _, depth := range []int{1, 16} {
		b.Run(fmt.Sprintf("write 4k at depth %d", depth), func(b *testing.B) {
			const size = 64 << 20
			cfg := Config{SizeBytes: size}.withDefaults()
			m := newMirror(cfg, nil, func(m *member, err error) { b.Errorf("%s: %v", m.name, err) })
			var ro roster
			for _, name := range []string{"a", "b", "c"} {
				ro.serving = append(ro.serving, newMember(name, name == "a", instant{memory.New(size)}))
			}
			m.roster.Store(newRoster(ro))
			m.regions = newRegions(size, 1<<20)
			m.gate.serve()
			b.SetBytes(4096)
			b.SetParallelism(depth)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				p := make([]byte, 4096)
				for off := rand.Int64N(size / 4096); pb.Next(); off = (off + 37) % (size / 4096) {
					if err := m.WriteAt(background, p, off*4096, false); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// instant is a replica in memory that answers at once, also when asked not to wait.
type instant struct{ *memory.Backend }

func (instant) Control(context.Context, uint16, []byte) ([]byte, error) { return nil, nil }
func (instant) Done() <-chan struct{}                                   { return nil }
func (instant) Close() error                                            { return nil }

func (i instant) WriteAsync(p []byte, off int64, fua bool, done func(error)) {
	done(i.WriteAt(background, p, off, fua))
}
