package device

import (
	"context"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

// slowFlush is a disk that flushes as slowly as a cheap disk.
type slowFlush struct{ nbd.Backend }

func (s slowFlush) Flush(ctx context.Context) error {
	time.Sleep(5 * time.Millisecond)
	return s.Backend.Flush(ctx)
}

// BenchmarkWriteBesideAFlush measures how long writes of 4 KiB at depth 1 take alone, and while another program flushes
// without pause. The disk can do both at once, so the device causes any loss. The ratio compares the two p99 values.
func BenchmarkWriteBesideAFlush(b *testing.B) {
	_, path := blockDevice(b, 64<<20, slowFlush{memory.New(64 << 20)})
	file, err := os.OpenFile(path, os.O_WRONLY|unix.O_DIRECT, 0)
	require.NoError(b, err)
	defer file.Close()
	page := alignedPage()
	p99 := func() time.Duration {
		took := make([]time.Duration, b.N)
		for i := range took {
			began := time.Now()
			_, err := file.WriteAt(page, int64(i%4096)*4096)
			took[i] = time.Since(began)
			require.NoError(b, err)
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	p99() // warm
	alone := p99()
	var stop atomic.Bool
	var flushing sync.WaitGroup
	flushing.Go(func() {
		for !stop.Load() {
			if err := unix.Fdatasync(int(file.Fd())); err != nil {
				b.Errorf("flush: %v", err)
				return
			}
		}
	})
	beside := p99()
	stop.Store(true)
	flushing.Wait()
	b.ReportMetric(float64(alone.Microseconds()), "µs-p99-alone")
	b.ReportMetric(float64(beside.Microseconds()), "µs-p99-beside")
	b.ReportMetric(float64(beside)/float64(alone), "ratio")
	b.ReportMetric(0, "ns/op")
}
