package device

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/nbd/memory"
)

// BenchmarkDevice measures what a device adds: its users ask with direct I/O, and the backend is memory. The processor's time is that of
// users and server together, without the kernel's loop threads.
func BenchmarkDevice(b *testing.B) {
	const size = 64 << 20
	_, path := blockDevice(b, size, memory.New(size))
	for _, w := range []struct {
		name          string
		length, depth int
		write         bool
	}{
		{"write 4k depth 1", 4096, 1, true},
		{"write 4k depth 16", 4096, 16, true},
		{"read 4k depth 1", 4096, 1, false},
		{"read 4k depth 16", 4096, 16, false},
		{"write 1m depth 4", 1 << 20, 4, true},
		{"read 1m depth 4", 1 << 20, 4, false},
	} {
		b.Run(w.name, func(b *testing.B) {
			file, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
			if err != nil {
				b.Fatal(err)
			}
			defer file.Close()
			b.SetBytes(int64(w.length))
			before := processorTime(b)
			b.ResetTimer()
			var next atomic.Int64
			var users sync.WaitGroup
			for range w.depth {
				users.Go(func() {
					p, err := unix.Mmap(-1, 0, w.length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
					if err != nil {
						b.Error(err)
						return
					}
					defer unix.Munmap(p)
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						at := n * 37 % int64(size/w.length) * int64(w.length)
						if w.write {
							_, err = unix.Pwrite(int(file.Fd()), p, at)
						} else {
							_, err = unix.Pread(int(file.Fd()), p, at)
						}
						if err != nil {
							b.Error(fmt.Errorf("at %d: %w", at, err))
							return
						}
					}
				})
			}
			users.Wait()
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
