package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

// BenchmarkMirror measures the cost of the engine itself: three members in memory, with no network.
func BenchmarkMirror(b *testing.B) {
	for _, depth := range []int{1, 16} {
		b.Run(fmt.Sprintf("write 4k at depth %d", depth), func(b *testing.B) {
			const size = 64 << 20
			cfg := Config{SizeBytes: size}.withDefaults()
			m := newMirror(cfg, nil, func(m *member, err error) { b.Errorf("%s: %v", m.name, err) })
			var ro roster
			for _, name := range []string{"a", "b", "c"} {
				ro.serving = append(ro.serving, newMember(Member{Name: name, Local: name == "a"}, instant{memory.New(size)}))
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

// instant is a replica in memory that answers at once, even to WriteAsync.
type instant struct{ *memory.Backend }

func (instant) Control(context.Context, uint16, []byte) ([]byte, error) { return nil, nil }
func (instant) Done() <-chan struct{}                                   { return nil }
func (instant) Close() error                                            { return nil }

func (i instant) WriteAsync(p []byte, off int64, fua bool, done func(error)) {
	done(i.WriteAt(background, p, off, fua))
}
