package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	pb "github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// Names of the targets.
const (
	socketName = "unix socket"
	clearName  = "unix socket, without TLS"
	deviceName = "block device"
	plainName  = "plain file"
)

// measureLoad prints the table of figures under load, and the memory of the processes after it. It returns the cells
// that are not above the floor.
func (b *bench) measureLoad(ctx context.Context) (missed []string, err error) {
	if err := b.startNodes(ctx, "load"); err != nil {
		return nil, err
	}
	socket := &volume{name: "bench-socket", sizeBytes: spanBytes, frontend: pb.Frontend_FRONTEND_SOCKET}
	device := &volume{name: "bench-device", sizeBytes: spanBytes, frontend: pb.Frontend_FRONTEND_BLOCK}
	unsealed := &volume{name: "bench-clear", sizeBytes: spanBytes, frontend: pb.Frontend_FRONTEND_SOCKET, clear: true}
	volumes := []*volume{socket, unsealed, device}
	for _, v := range volumes {
		if err := b.attach(ctx, v); err != nil {
			return nil, err
		}
	}
	plain := filepath.Join(b.dir, "plain")
	targets := []target{
		socketTarget(socketName, b.nodes[0].toolSocket(), "engine/"+socket.name),
		socketTarget(clearName, b.nodes[0].toolSocket(), "engine/"+unsealed.name),
		fileTarget(deviceName, device.endpoint),
		fileTarget(plainName, plain),
	}
	for _, t := range targets {
		if err := fill(ctx, t); err != nil {
			return nil, err
		}
	}
	all, err := b.loadAll(ctx, targets)
	if err != nil {
		return nil, err
	}
	for _, v := range volumes {
		if err := b.checkNow(v); err != nil {
			return nil, err
		}
	}
	fmt.Printf("\n3 replicas, fio over %d MiB, median of %d runs of %v; 4 KiB at random, 1 MiB in a row; MB/s are 10^6 bytes; CPU is that of all instance managers; MTU %d\n\n",
		spanBytes>>20, b.opts.runs, b.opts.runtime, b.opts.mtu)
	missed = writeLoadTable(os.Stdout, targets, all)
	if err := b.printWeights("after the load above", len(volumes)); err != nil {
		return nil, err
	}
	for _, v := range volumes {
		if err := b.detach(ctx, v); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(plain); err != nil {
		return nil, err
	}
	return missed, b.stopNodes(ctx)
}

// results are the figures of all runs, by target and pattern.
type results map[string]map[string][]figures

// loadAll runs every pattern on every target. The targets take turns in each pattern. So other load on the machine, and
// changes in the speed of its disk, affect all targets alike.
func (b *bench) loadAll(ctx context.Context, targets []target) (results, error) {
	all := results{}
	for _, t := range targets {
		all[t.name] = map[string][]figures{}
	}
	for run := range b.opts.runs {
		for _, p := range patterns {
			for _, t := range targets {
				if !b.opts.match.MatchString(t.name + ", " + p.name) {
					continue
				}
				f, err := b.loadCounting(ctx, t, p)
				if err != nil {
					return nil, err
				}
				all[t.name][p.name] = append(all[t.name][p.name], f)
				fmt.Fprintf(os.Stderr, "bench: run %d, %s, %s: %.0f %s, p99 %v, CPU %v per operation\n", run+1, p.name, t.name, f.rate(p), unitOf(p), f.P99, f.CPU)
			}
		}
	}
	return all, nil
}

// loadCounting does one run, and adds the processor time that it cost the instance managers.
func (b *bench) loadCounting(ctx context.Context, t target, p pattern) (figures, error) {
	if err := b.settleDisk(); err != nil {
		return figures{}, err
	}
	before, err := b.cpu()
	if err != nil {
		return figures{}, err
	}
	f, err := load(ctx, t, p, b.opts.runtime)
	if err != nil {
		return figures{}, err
	}
	after, err := b.cpu()
	if err != nil {
		return figures{}, err
	}
	f.CPU = time.Duration(float64(after-before) / f.operations(b.opts.runtime)).Round(100 * time.Nanosecond)
	return f, nil
}

// cpu returns the processor time that the instance managers have used.
func (b *bench) cpu() (time.Duration, error) {
	var sum time.Duration
	for _, n := range b.nodes {
		u, err := usageOf(n.process.Process.Pid)
		if err != nil {
			return 0, err
		}
		sum += u.cpu
	}
	return sum, nil
}
