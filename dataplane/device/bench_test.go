package device

import (
	"encoding/json"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

// BenchmarkDevice measures the cost that a device adds: its user is fio, and the backend is memory. The processor time
// counts the server only. Run it with -benchtime 1x.
func BenchmarkDevice(b *testing.B) {
	if _, err := exec.LookPath("fio"); err != nil {
		b.Skip("needs fio")
	}
	const size = 64 << 20
	m := memory.New(size)
	require.NoError(b, m.WriteAt(b.Context(), pattern(1, size), 0, false))
	_, path := blockDevice(b, size, m)
	for _, w := range []struct{ name, rw, length, depth string }{
		{"write 4k depth 1", "randwrite", "4k", "1"},
		{"write 4k depth 16", "randwrite", "4k", "16"},
		{"read 4k depth 1", "randread", "4k", "1"},
		{"read 4k depth 16", "randread", "4k", "16"},
		{"write 1m depth 4", "write", "1m", "4"},
		{"read 1m depth 4", "read", "1m", "4"},
	} {
		b.Run(w.name, func(b *testing.B) {
			var ops, seconds float64
			before := processorTime(b)
			for range b.N {
				out, err := exec.Command("fio", "--name=x", "--filename="+path, "--rw="+w.rw, "--bs="+w.length, "--iodepth="+w.depth,
					"--ioengine=libaio", "--direct=1", "--runtime=1", "--time_based", "--output-format=json").Output()
				require.NoError(b, err, "%s", out)
				type direction struct {
					Ops     float64 `json:"total_ios"`
					Runtime float64 `json:"runtime"` // milliseconds
				}
				var result struct {
					Jobs []struct{ Read, Write direction }
				}
				require.NoError(b, json.Unmarshal(out, &result))
				j := result.Jobs[0]
				ops += j.Read.Ops + j.Write.Ops
				seconds += (j.Read.Runtime + j.Write.Runtime) / 1000
			}
			b.ReportMetric(ops/seconds, "ops/s")
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/ops, "cpu-µs/op")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// processorTime returns the processor time of this process, without its children.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
