package nbd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

// BenchmarkUnixSocket measures only the wire: client and server in one process, with a memory backend.
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

// BenchmarkFlushBesideWriters measures how long a flush takes while eight other goroutines write 1 MiB each, over TCP
// on loopback. The flush waits for the requests that were queued before it, and must not wait for later ones.
func BenchmarkFlushBesideWriters(b *testing.B) {
	const writers, size = 8, 1 << 20
	s := nbd.NewServer(serving(memory.New(writers*size).Export("vol")), nbd.ServerOptions{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), l) }()
	c, err := nbd.Dial(context.Background(), "tcp", l.Addr().String(), "vol", nbd.DialOptions{})
	require.NoError(b, err)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for i := range int64(writers) {
		wg.Go(func() {
			p := make([]byte, size)
			for !stop.Load() {
				if err := c.WriteAt(context.Background(), p, i*size, false); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	took := make([]time.Duration, b.N)
	b.ResetTimer()
	for i := range took {
		began := time.Now()
		require.NoError(b, c.Flush(context.Background()))
		took[i] = time.Since(began)
	}
	b.StopTimer()
	stop.Store(true)
	wg.Wait()
	_ = c.Close()
	require.NoError(b, errors.Join(s.Shutdown(within(b)), <-served))
	slices.Sort(took)
	b.ReportMetric(float64(took[(len(took)*99-1)/100].Microseconds()), "µs-p99")
	b.ReportMetric(float64(took[len(took)-1].Microseconds()), "µs-max")
}

// BenchmarkTLS measures the wire with and without TLS over the loopback device, and the cost of a handshake.
func BenchmarkTLS(b *testing.B) {
	const span = 64 << 20
	address := listenTCP(b, serving(memory.New(span).Export("vol")), securing(false, "vol"))
	for _, overTLS := range []bool{false, true} {
		opts := nbd.DialOptions{Secret: secretNamed("vol"), TLS: overTLS}
		open := func(b *testing.B) *nbd.Client {
			c, err := nbd.Dial(b.Context(), "tcp", address, "vol", opts)
			require.NoError(b, err)
			return c
		}
		for _, size := range []int{4 << 10, 1 << 20} {
			for _, write := range []bool{false, true} {
				for _, depth := range []int{1, 16} {
					op := "read"
					if write {
						op = "write"
					}
					b.Run(fmt.Sprintf("tls=%v/%dk/%s/QD%d", overTLS, size>>10, op, depth), func(b *testing.B) {
						c := open(b)
						measure(b, b.Context(), c, write, depth, size, span)
						require.NoError(b, c.Close())
					})
				}
			}
		}
		b.Run(fmt.Sprintf("tls=%v/handshake", overTLS), func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, open(b).Close())
			}
		})
	}
}
