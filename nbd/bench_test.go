package nbd_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/nbd/memory"
)

// BenchmarkUnixSocket measures the wire alone: client and server in one process, a memory backend behind them.
func BenchmarkUnixSocket(b *testing.B) {
	const span = 64 << 20
	m := memory.New(span)
	_, path := listen(b, serving(m.Export("vol")), nbd.ServerOptions{})
	for _, size := range []int{4 << 10, 1 << 20} {
		for _, write := range []bool{false, true} {
			for _, depth := range []int{1, 16} {
				for _, cancellable := range []bool{false, true} {
					op := "read"
					if write {
						op = "write"
					}
					b.Run(fmt.Sprintf("%dk/%s/QD%d/cancellable=%v", size>>10, op, depth, cancellable), func(b *testing.B) {
						ctx, cancel := context.Background(), func() {}
						if cancellable {
							ctx, cancel = context.WithCancel(ctx)
						}
						defer cancel()
						measure(b, ctx, dial(b, path, "vol", nbd.DialOptions{}), write, depth, size, span)
					})
				}
			}
		}
	}
}

func measure(b *testing.B, ctx context.Context, c *nbd.Client, write bool, depth, size, span int) {
	b.SetBytes(int64(size))
	b.ReportAllocs()
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range depth {
		wg.Go(func() {
			p := make([]byte, size)
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				off := i * int64(size) % int64(span)
				var err error
				if write {
					err = c.WriteAt(ctx, p, off, false)
				} else {
					err = c.ReadAt(ctx, p, off)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "IOPS")
}
