package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	pb "github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// heavyWriters is the number of writers that write 1 MiB at a time, one request at a time each, while another one
// flushes.
const heavyWriters = 8

// measureFlush prints how long a flush takes after each write of 4 KiB, one at a time, while other writers write 1 MiB
// at a time.
func (b *bench) measureFlush(ctx context.Context) error {
	if err := b.startNodes(ctx, "flush"); err != nil {
		return err
	}
	socket := &volume{name: "bench-socket", sizeBytes: spanBytes, frontend: pb.Frontend_FRONTEND_SOCKET}
	device := &volume{name: "bench-device", sizeBytes: spanBytes, frontend: pb.Frontend_FRONTEND_BLOCK}
	for _, v := range []*volume{socket, device} {
		if err := b.attach(ctx, v); err != nil {
			return err
		}
	}
	plain := filepath.Join(b.dir, "plain")
	targets := []target{
		socketTarget(socketName, b.nodes[0].toolSocket(), "engine/"+socket.name),
		fileTarget(deviceName, device.endpoint),
		fileTarget(plainName, plain),
	}
	all := map[string][]flushes{}
	for run := range b.opts.runs {
		for _, t := range targets {
			if run == 0 {
				if err := fill(ctx, t); err != nil {
					return err
				}
			}
			if err := b.settleDisk(); err != nil {
				return err
			}
			f, err := flushBesideWriters(ctx, t, b.opts.runtime)
			if err != nil {
				return err
			}
			all[t.name] = append(all[t.name], f)
			fmt.Fprintf(os.Stderr, "bench: run %d, flush, %s: %d, p50 %v, p99 %v, longest %v\n", run+1, t.name, f.count, f.p50, f.p99, f.longest)
		}
	}
	rows := [][]string{{"", "p50", "p99", "longest", "writers"}}
	for _, t := range targets {
		cell := func(of func(flushes) time.Duration) string {
			return time.Duration(median(all[t.name], func(f flushes) float64 { return float64(of(f)) })).Round(time.Microsecond).String()
		}
		rows = append(rows, []string{
			t.name, cell(func(f flushes) time.Duration { return f.p50 }), cell(func(f flushes) time.Duration { return f.p99 }),
			cell(func(f flushes) time.Duration { return f.longest }),
			fmt.Sprintf("%s MB/s", thousands(median(all[t.name], func(f flushes) float64 { return f.beside / 1e6 }))),
		})
	}
	fmt.Printf("\nA flush after each write of 4 KiB, one at a time, while %d writers send 1 MiB each time; median of %d runs of %v\n\n", heavyWriters, b.opts.runs, b.opts.runtime)
	writeTable(os.Stdout, rows[0], rows[1:])
	for _, v := range []*volume{socket, device} {
		if err := b.detach(ctx, v); err != nil {
			return err
		}
	}
	if err := os.Remove(plain); err != nil {
		return err
	}
	return b.stopNodes(ctx)
}

// flushes are the figures of one run.
type flushes struct {
	count             int
	p50, p99, longest time.Duration
	beside            float64 // bytes per second of the heavy writers
}

// flushBesideWriters lets fio flush after each write of 4 KiB to the last part of a target, while heavy writers write
// to the other parts.
func flushBesideWriters(ctx context.Context, t target, length time.Duration) (flushes, error) {
	const span = spanBytes / (heavyWriters + 1) &^ (1<<20 - 1)
	args := append([]string{"--time_based", fmt.Sprint("--runtime=", int(length.Seconds())), "--output-format=json", fmt.Sprint("--size=", span)}, t.args...)
	for i := range heavyWriters {
		args = append(args, fmt.Sprint("--name=heavy", i), "--rw=write", "--bs=1M", "--iodepth=1", fmt.Sprint("--offset=", i*span))
	}
	args = append(args, "--name=flush", "--rw=randwrite", "--bs=4k", "--iodepth=1", "--fsync=1", fmt.Sprint("--offset=", heavyWriters*span))
	out, err := fio(ctx, length+startTimeout, args)
	if err != nil {
		return flushes{}, fmt.Errorf("%s, flush: %w", t.name, err)
	}
	f, err := parseFlushes(out)
	if err != nil {
		return flushes{}, fmt.Errorf("%s, flush: %w", t.name, err)
	}
	return f, nil
}

// parseFlushes reads fio's JSON: the last job flushes, the others write. fio may print notes before it.
func parseFlushes(out []byte) (flushes, error) {
	if start := strings.IndexByte(string(out), '{'); start > 0 {
		out = out[start:]
	}
	var report struct {
		Jobs []struct {
			Error int `json:"error"`
			Write struct {
				Bytes float64 `json:"bw_bytes"`
			} `json:"write"`
			Sync struct {
				Count   int `json:"total_ios"`
				Latency struct {
					Longest    int64            `json:"max"`
					Percentile map[string]int64 `json:"percentile"`
				} `json:"lat_ns"`
			} `json:"sync"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return flushes{}, fmt.Errorf("read fio's report: %w", err)
	}
	if len(report.Jobs) != heavyWriters+1 {
		return flushes{}, fmt.Errorf("fio reports %d jobs, not %d", len(report.Jobs), heavyWriters+1)
	}
	var f flushes
	for _, j := range report.Jobs[:heavyWriters] {
		if j.Error != 0 {
			return flushes{}, fmt.Errorf("a writer ended with error %d", j.Error)
		}
		f.beside += j.Write.Bytes
	}
	last := report.Jobs[heavyWriters]
	if last.Error != 0 || last.Sync.Count == 0 {
		return flushes{}, errors.New("fio did not flush")
	}
	l := last.Sync.Latency
	f.count, f.longest = last.Sync.Count, time.Duration(l.Longest)
	f.p50, f.p99 = time.Duration(l.Percentile["50.000000"]), time.Duration(l.Percentile["99.000000"])
	return f, nil
}
