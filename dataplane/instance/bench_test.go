package instance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkVolume measures the path of a tool's request: unix socket, engine, one replica by direct call and two over
// TCP.
func BenchmarkVolume(b *testing.B) {
	c := newCluster(b)
	c.startEngine(c[0], c.engineSpec(1, nil))
	v, err := c[0].dialTool("engine/" + volume)
	require.NoError(b, err)
	for _, w := range []struct {
		name        string
		size, depth int
		do          func(ctx context.Context, p []byte, off int64) error
	}{
		{"write 4k depth 1", 4096, 1, func(ctx context.Context, p []byte, off int64) error { return v.WriteAt(ctx, p, off, false) }},
		{"write 4k depth 16", 4096, 16, func(ctx context.Context, p []byte, off int64) error { return v.WriteAt(ctx, p, off, false) }},
		{"read 4k depth 16", 4096, 16, v.ReadAt},
		{"write 1m depth 4", mib, 4, func(ctx context.Context, p []byte, off int64) error { return v.WriteAt(ctx, p, off, false) }},
		{"read 1m depth 4", mib, 4, v.ReadAt},
	} {
		b.Run(w.name, func(b *testing.B) { run(b, w.size, w.depth, w.do) })
	}
	require.NoError(b, v.Close())
	c[0].stopEngine()
}

func run(b *testing.B, size, depth int, do func(ctx context.Context, p []byte, off int64) error) {
	b.SetBytes(int64(size))
	var next atomic.Int64
	var workers sync.WaitGroup
	b.ResetTimer()
	for range depth {
		workers.Go(func() {
			p := make([]byte, size)
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				off := (i * 7919 % (testSize / int64(size))) * int64(size)
				if err := do(context.Background(), p, off); err != nil {
					b.Error(fmt.Errorf("at %d: %w", off, err))
					return
				}
			}
		})
	}
	workers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}
