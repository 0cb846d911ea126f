package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// spanBytes is the range that fio reads and writes: the whole volume.
const spanBytes = 512 << 20

// target is something that fio can load.
type target struct {
	name string
	args []string // engine and place, for fio
}

func socketTarget(name, socket, export string) target {
	return target{name: name, args: []string{"--ioengine=nbd", "--uri=nbd+unix:///" + export + "?socket=" + socket}}
}

func fileTarget(name, path string) target {
	return target{name: name, args: []string{"--ioengine=libaio", "--direct=1", "--filename=" + path}}
}

// pattern is one kind of load.
type pattern struct {
	name       string
	write      bool
	blockBytes int
	depth      int
}

// isSmall reports whether the table shows operations, and not bytes.
func (p pattern) isSmall() bool { return p.blockBytes < 1<<20 }

// mode is fio's name of the load. Small blocks go to random places, large ones are sequential.
func (p pattern) mode() string {
	mode := "read"
	if p.write {
		mode = "write"
	}
	if p.isSmall() {
		return "rand" + mode
	}
	return mode
}

var patterns = []pattern{
	{"4k write QD1", true, 4 << 10, 1},
	{"4k read QD1", false, 4 << 10, 1},
	{"4k write QD16", true, 4 << 10, 16},
	{"4k read QD16", false, 4 << 10, 16},
	{"1M write QD4", true, 1 << 20, 4},
	{"1M read QD4", false, 1 << 20, 4},
}

// figures are the results of one run.
type figures struct {
	IOPS           float64
	BytesPerSecond float64
	P50, P99       time.Duration // of completion latency
	CPU            time.Duration // of all instance managers, per operation
}

// operations returns how many operations were done in a time.
func (f figures) operations(length time.Duration) float64 { return f.IOPS * length.Seconds() }

// rate returns the compared figure: operations per second of small blocks, 10^6 bytes per second of large ones.
func (f figures) rate(p pattern) float64 {
	if p.isSmall() {
		return f.IOPS
	}
	return f.BytesPerSecond / 1e6
}

// load runs fio on a target for a time.
func load(ctx context.Context, t target, p pattern, length time.Duration) (figures, error) {
	args := append([]string{
		"--name=bench", "--rw=" + p.mode(), fmt.Sprint("--bs=", p.blockBytes), fmt.Sprint("--iodepth=", p.depth), fmt.Sprint("--size=", spanBytes),
		"--norandommap", "--randrepeat=0", "--time_based", fmt.Sprint("--runtime=", int(length.Seconds())), "--output-format=json",
	}, t.args...)
	out, err := fio(ctx, length+startTimeout, args)
	if err != nil {
		return figures{}, fmt.Errorf("%s, %s: %w", t.name, p.name, err)
	}
	f, err := parseFio(out, p.write)
	if err != nil {
		return figures{}, fmt.Errorf("%s, %s: %w", t.name, p.name, err)
	}
	return f, nil
}

// fill writes the whole span once, so that reads find data and plain writes allocate nothing.
func fill(ctx context.Context, t target) error {
	args := append([]string{"--name=fill", "--rw=write", "--bs=1M", "--iodepth=4", fmt.Sprint("--size=", spanBytes), "--end_fsync=1", "--output-format=json"}, t.args...)
	if _, err := fio(ctx, 5*time.Minute, args); err != nil {
		return fmt.Errorf("fill %s: %w", t.name, err)
	}
	return nil
}

// killPatience is how long a killed fio may take to exit.
const killPatience = 5 * time.Second

func fio(ctx context.Context, limit time.Duration, args []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// With --thread the job is not a separate process. A separate process would outlive the killed one, and keep its
	// output open.
	c := exec.CommandContext(ctx, "fio", append([]string{"--thread"}, args...)...)
	c.WaitDelay = killPatience
	var complaint strings.Builder
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("fio: %w: %s", err, strings.TrimSpace(complaint.String()))
	}
	return out, nil
}

// parseFio reads fio's JSON. fio may print notes before it.
func parseFio(out []byte, write bool) (figures, error) {
	if start := strings.IndexByte(string(out), '{'); start > 0 {
		out = out[start:]
	}
	type direction struct {
		IOPS    float64 `json:"iops"`
		Bytes   float64 `json:"bw_bytes"`
		Latency struct {
			Percentile map[string]int64 `json:"percentile"` // ns
		} `json:"clat_ns"`
	}
	var report struct {
		Jobs []struct {
			Error int       `json:"error"`
			Read  direction `json:"read"`
			Write direction `json:"write"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return figures{}, fmt.Errorf("read fio's report: %w", err)
	}
	if len(report.Jobs) != 1 {
		return figures{}, fmt.Errorf("fio reports %d jobs, not 1", len(report.Jobs))
	}
	if e := report.Jobs[0].Error; e != 0 {
		return figures{}, fmt.Errorf("fio's job ended with error %d", e)
	}
	d := report.Jobs[0].Read
	if write {
		d = report.Jobs[0].Write
	}
	if d.IOPS <= 0 {
		return figures{}, errors.New("fio did nothing")
	}
	p := d.Latency.Percentile
	return figures{
		IOPS: d.IOPS, BytesPerSecond: d.Bytes, P50: time.Duration(p["50.000000"]), P99: time.Duration(p["99.000000"]),
	}, nil
}
