package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	pb "github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

func TestParseFio(t *testing.T) {
	const report = `fio: a note
{"jobs": [{"jobname": "bench", "error": 0,
  "read":  {"iops": 11.5, "bw_bytes": 47104, "clat_ns": {"percentile": {"50.000000": 1, "99.000000": 2000}}},
  "write": {"iops": 22.5, "bw_bytes": 92160, "clat_ns": {"percentile": {"99.000000": 3000}}}}]}`
	for _, c := range []struct {
		name    string
		out     string
		write   bool
		want    figures
		failure string
	}{
		{"a read → the read side", report, false, figures{IOPS: 11.5, BytesPerSecond: 47104, P50: time.Nanosecond, P99: 2 * time.Microsecond}, ""},
		{"a write → the write side", report, true, figures{IOPS: 22.5, BytesPerSecond: 92160, P99: 3 * time.Microsecond}, ""},
		{"nothing written → refused", `{"jobs": [{"read": {"iops": 5}}]}`, true, figures{}, "did nothing"},
		{"a job in error → refused", `{"jobs": [{"error": 5, "read": {"iops": 5}}]}`, false, figures{}, "error 5"},
		{"two jobs → refused", `{"jobs": [{}, {}]}`, false, figures{}, "2 jobs"},
		{"no JSON → refused", `fio: bad option`, false, figures{}, "read fio's report"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseFio([]byte(c.out), c.write)
			checkFailure(t, err, c.failure)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float64
		want   float64
	}{
		{"three in disorder → the middle one", []float64{9, 1, 5}, 5},
		{"one → itself", []float64{7}, 7},
		{"two → the lower", []float64{8, 3}, 3},
		{"none → zero", nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []figures
			for _, v := range c.values {
				all = append(all, figures{IOPS: v})
			}
			assert.Equal(t, c.want, median(all, func(f figures) float64 { return f.IOPS }))
		})
	}
}

func TestThousands(t *testing.T) {
	for value, want := range map[float64]string{0: "0", 999.6: "1,000", 5740: "5,740", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		assert.Equal(t, want, thousands(value), value)
	}
}

// The table must mark every cell of a volume that is not above the floor. It does not compare the plain file.
func TestLoadTable(t *testing.T) {
	all := results{}
	for _, name := range []string{socketName, plainName} {
		all[name] = map[string][]figures{}
		for _, p := range patterns {
			all[name][p.name] = []figures{{IOPS: 6000, BytesPerSecond: 360e6, P99: 1500 * time.Nanosecond, CPU: 42 * time.Microsecond}}
		}
	}
	var out strings.Builder
	missed := writeLoadTable(&out, []target{{name: socketName}, {name: plainName}}, all)
	want := []string{
		"unix socket 4k read QD16: 6,000 of 16,735 IOPS",
		"unix socket 1M write QD4: 360 of 360 MB/s",
		"unix socket 1M read QD4: 360 of 570 MB/s",
	}
	assert.Equal(t, strings.Join(want, "\n"), strings.Join(missed, "\n"))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 8, out.String())
	for i, fragments := range map[int][]string{
		2: {"| floor ", "| 3,042 IOPS ", "| 16,735 IOPS "},
		3: {"| unix socket ", "| 6,000 IOPS, beaten ×2.0 ", "| **6,000 IOPS, NOT beaten ×0.36** "},
		4: {"| unix socket, p99 ", "| 2µs "},
		5: {"| unix socket, CPU per operation ", "| 42µs "},
		6: {"| plain file ", "| 360 MB/s "},
	} {
		for _, f := range fragments {
			assert.Contains(t, lines[i], f, "line %d", i)
		}
	}
	assert.NotContains(t, lines[6], "beaten", "the plain file is judged")
}

func TestParseFlushes(t *testing.T) {
	job := func(bytes int, sync string) string {
		return fmt.Sprintf(`{"error": 0, "write": {"bw_bytes": %d}, "sync": {%s}}`, bytes, sync)
	}
	const sync = `"total_ios": 9, "lat_ns": {"max": 7000, "percentile": {"50.000000": 1000, "99.000000": 5000}}`
	report := func(jobs ...string) string { return "fio: a note\n{\"jobs\": [" + strings.Join(jobs, ",") + "]}" }
	heavy := slices.Repeat([]string{job(1000, `"total_ios": 0`)}, heavyWriters)
	got, err := parseFlushes([]byte(report(append(heavy, job(1, sync))...)))
	want := flushes{count: 9, p50: time.Microsecond, p99: 5 * time.Microsecond, longest: 7 * time.Microsecond, beside: 8000}
	require.NoError(t, err)
	assert.Equal(t, want, got)
	for name, out := range map[string]string{
		"one job is missing → refused":       report(heavy...),
		"none flushed → refused":             report(append(heavy, heavy[0])...),
		"the one that flushes fails":         report(append(heavy, strings.Replace(job(1, sync), `"error": 0`, `"error": 5`, 1))...),
		"one that writes fails → refused":    report(append([]string{strings.Replace(heavy[0], `"error": 0`, `"error": 5`, 1)}, append(heavy[1:], job(1, sync))...)...),
		"what fio says is no JSON → refused": "fio: bad",
	} {
		f, err := parseFlushes([]byte(out))
		assert.Error(t, err, "%s: %+v", name, f)
	}
}

func TestParseUsage(t *testing.T) {
	const (
		smaps  = "00400000-7ff [rollup]\nRss:               2000 kB\nPss:               1000 kB\nPss_Dirty:          500 kB\n"
		status = "Name:\tx\nVmHWM:\t    3000 kB\nVmRSS:\t    2000 kB\n"
		stat   = "42 (a) b) S 1 42 42 0 -1 4194560 100 0 0 0 150 25 7 7 20 0 9 0 100 0 0"
	)
	got, err := parseUsage(smaps, status, stat)
	want := usage{pssBytes: 1024000, rssBytes: 2048000, peakBytes: 3072000, cpu: 1750 * time.Millisecond}
	require.NoError(t, err)
	assert.Equal(t, want, got)
	for _, c := range []struct{ name, smaps, status, stat string }{
		{"no Pss → refused", "Rss: 1 kB\n", status, stat},
		{"no peak → refused", smaps, "", stat},
		{"short statistics → refused", smaps, status, "42 (a) S 1 2 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, err := parseUsage(c.smaps, c.status, c.stat)
			assert.Error(t, err, u)
		})
	}
	u, err := usageOf(os.Getpid())
	require.NoError(t, err)
	assert.GreaterOrEqual(t, u.rssBytes, int64(1<<20))
	assert.GreaterOrEqual(t, u.peakBytes, u.rssBytes/2, "of this process")
}

func TestUsageCountsWhatAProcessStarted(t *testing.T) {
	c := exec.CommandContext(t.Context(), "sleep", "60")
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	children, err := childrenOf(os.Getpid())
	require.NoError(t, err)
	assert.Contains(t, children, c.Process.Pid)
	alone, err := usageOfOne(os.Getpid())
	require.NoError(t, err)
	all, err := usageOf(os.Getpid())
	require.NoError(t, err)
	assert.Greater(t, all.peakBytes, alone.peakBytes)
}

func TestIsStale(t *testing.T) {
	for name, want := range map[string]bool{
		"lhbench-4194999-node-1": true, // above pid_max, which is at most 2^22: no process has this id
		"lhbench-4194999":        true,
		"lhbench-":               false,
		"lhbench-x":              false,
		"lhbench--1":             false,
		"other-4194999":          false,
		"lhbench-1-router":       false,
	} {
		assert.Equal(t, want, isStale(name), name)
	}
}

func TestIsNewer(t *testing.T) {
	epoch := func(generation, counter int64) *pb.Epoch { return &pb.Epoch{Generation: generation, Counter: counter} }
	for _, c := range []struct {
		name string
		a, b *pb.Epoch
		want bool
	}{
		{"any against none → newer", epoch(1, 1), nil, true},
		{"higher counter → newer", epoch(1, 2), epoch(1, 1), true},
		{"the same → not newer", epoch(1, 1), epoch(1, 1), false},
		{"lower generation with a higher counter → not newer", epoch(1, 9), epoch(2, 1), false},
		{"higher generation with a lower counter → newer", epoch(2, 1), epoch(1, 9), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, isNewer(c.a, c.b))
		})
	}
}

// A volume that lost a replica must not be measured as if it had three.
func TestVolumeCheck(t *testing.T) {
	v := &volume{name: "v"}
	state := func(change func(*pb.EngineState)) *pb.State {
		e := &pb.EngineState{Name: "v-e-0", Phase: pb.Phase_PHASE_RUNNING, Epoch: &pb.Epoch{Generation: 1, Counter: 1, Members: []string{"a", "b", "c"}}}
		change(e)
		return &pb.State{Engines: []*pb.EngineState{e}}
	}
	for _, c := range []struct {
		name    string
		state   *pb.State
		failure string
	}{
		{"three members → good", state(func(*pb.EngineState) {}), ""},
		{"two members → refused", state(func(e *pb.EngineState) { e.Epoch.Members = e.Epoch.Members[:2] }), "lost replicas"},
		{"a member is being expelled → refused", state(func(e *pb.EngineState) { e.ProposedEpoch = &pb.Epoch{Generation: 1, Counter: 2} }), "lost replicas"},
		{"in error → refused", state(func(e *pb.EngineState) { e.Phase, e.Reason = pb.Phase_PHASE_ERROR, "Fenced" }), "Fenced"},
		{"not there → refused", &pb.State{}, "v-e-0"},
		{"process away → refused", nil, "v-e-0"},
	} {
		t.Run(c.name, func(t *testing.T) { checkFailure(t, v.check(c.state), c.failure) })
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name    string
		args    []string
		failure string
	}{
		{"nothing → good", nil, ""},
		{"all options → good", []string{"-runtime", "2s", "-runs", "5", "-parts", "idle", "-volumes", "7", "-idle", "9s"}, ""},
		{"half a second → refused, fio counts whole ones", []string{"-runtime", "1500ms"}, "whole seconds"},
		{"no run → refused", []string{"-runs", "0"}, "at least 1"},
		{"an unknown part → refused", []string{"-parts", "load,x"}, "-parts"},
		{"a broken expression → refused", []string{"-match", "("}, "-match"},
		{"a packet too large → refused", []string{"-mtu", "70000"}, "-mtu"},
		{"a word → refused", []string{"fast"}, "unexpected"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(c.args)
			checkFailure(t, err, c.failure)
		})
	}
}

func checkFailure(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		assert.NoError(t, err)
	} else {
		assert.ErrorContains(t, err, want)
	}
}
