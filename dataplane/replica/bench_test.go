package replica

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func BenchmarkWrite4K(b *testing.B) {
	for _, parallel := range []int{1, 8} {
		b.Run(fmt.Sprintf("depth %d", parallel), func(b *testing.B) {
			const span = 512 * mib
			ctx := context.Background()
			s := admit(b, newHostReplica(b, span), 1, "s")
			b.SetBytes(4096)
			b.SetParallelism(parallel)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				p := make([]byte, 4096)
				for off := int64(0); pb.Next(); off = (off + 37*4096) % span {
					if err := s.WriteAt(ctx, p, off, false); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkRead4K reads while some data is not settled, as between two flushes, and when all data is settled.
func BenchmarkRead4K(b *testing.B) {
	for _, flushed := range []bool{true, false} {
		b.Run(fmt.Sprintf("flushed %t", flushed), func(b *testing.B) {
			const span = 16 * mib
			ctx := context.Background()
			s := admit(b, newHostReplica(b, span), 1, "s")
			require.NoError(b, s.WriteAt(ctx, make([]byte, span), 0, flushed))
			b.SetBytes(4096)
			b.SetParallelism(8)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				p := make([]byte, 4096)
				for off := int64(0); pb.Next(); off = (off + 37*4096) % span {
					if err := s.ReadAt(ctx, p, off); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
