package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	pb "github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

const (
	// besideBytes is the amount of data that a rebuild copies while users write. It is enough to outlast a run.
	besideBytes = 6 << 30
	// besideLimit is how many times longer the 99th percentile may be during a rebuild.
	besideLimit = 2
)

// The runs on one target: one run of each pair is alone, the other one during a rebuild.
type beside struct {
	alone, during []figures
}

// measureBeside prints how long writes of 4 KiB take, one at a time, without a rebuild and during the rebuild of a new
// replica.
func (b *bench) measureBeside(ctx context.Context) (missed []string, err error) {
	var rows [][]string
	for _, frontend := range []pb.Frontend{pb.Frontend_FRONTEND_SOCKET, pb.Frontend_FRONTEND_BLOCK} {
		t, all, err := b.besideRebuilds(ctx, frontend)
		if err != nil {
			return nil, err
		}
		ratio := all.ratio()
		if ratio > besideLimit {
			missed = append(missed, fmt.Sprintf("%s: p99 during a rebuild is %.1f times as long", t.name, ratio))
		}
		rows = append(rows, besideRow(t.name+", alone", all.alone), besideRow(t.name+", during a rebuild", all.during))
	}
	fmt.Printf("\nWrites of 4 KiB, one at a time, alone and while a new replica is sent %d GiB; median of %d runs of %v\n\n", besideBytes>>30, b.opts.runs, b.opts.runtime)
	writeTable(os.Stdout, []string{"", "IOPS", "p50", "p99"}, rows)
	return missed, nil
}

// ratio compares the medians of the 99th percentiles.
func (a beside) ratio() float64 {
	p99 := func(f figures) float64 { return float64(f.P99) }
	return median(a.during, p99) / median(a.alone, p99)
}

func besideRow(name string, all []figures) []string {
	duration := func(of func(figures) time.Duration) string {
		return time.Duration(median(all, func(f figures) float64 { return float64(of(f)) })).Round(time.Microsecond).String()
	}
	return []string{
		name, thousands(median(all, func(f figures) float64 { return f.IOPS })),
		duration(func(f figures) time.Duration { return f.P50 }), duration(func(f figures) time.Duration { return f.P99 }),
	}
}

// besideRebuilds measures one kind of frontend, on a separate volume.
func (b *bench) besideRebuilds(ctx context.Context, frontend pb.Frontend) (target, beside, error) {
	var all beside
	if err := b.startNodes(ctx, "beside"); err != nil {
		return target{}, all, err
	}
	v := &volume{name: "bench-beside", sizeBytes: besideBytes, frontend: frontend}
	if err := b.attach(ctx, v); err != nil {
		return target{}, all, err
	}
	t := socketTarget(socketName, b.nodes[0].toolSocket(), "engine/"+v.name)
	if frontend == pb.Frontend_FRONTEND_BLOCK {
		t = fileTarget(deviceName, v.endpoint)
	}
	if err := writeInARow(ctx, t, 0, besideBytes); err != nil {
		return t, all, err
	}
	r := v.replicaOn(b.nodes[nodeCount-1])
	for run := range b.opts.runs {
		alone, err := b.settledLoad(ctx, t)
		if err != nil {
			return t, all, err
		}
		var during figures
		if during, r, err = b.loadBesideRebuild(ctx, v, t, r); err != nil {
			return t, all, err
		}
		all.alone, all.during = append(all.alone, alone), append(all.during, during)
		fmt.Fprintf(os.Stderr, "bench: run %d, 4k write QD1, %s: alone p50 %v, p99 %v; during a rebuild p50 %v, p99 %v; load %s\n",
			run+1, t.name, alone.P50, alone.P99, during.P50, during.P99, loadAverage())
	}
	if _, err := b.nodes[0].EngineStop(ctx, &pb.EngineRef{Name: v.engine()}); err != nil {
		return t, all, fmt.Errorf("stop engine %s: %w", v.engine(), err)
	}
	return t, all, b.stopNodes(ctx)
}

func (b *bench) settledLoad(ctx context.Context, t target) (figures, error) {
	if err := b.settleDisk(); err != nil {
		return figures{}, err
	}
	return load(ctx, t, patterns[0], b.opts.runtime)
}

// loadBesideRebuild replaces a replica by a new one, and measures during its rebuild. It returns when the new replica
// is a member.
func (b *bench) loadBesideRebuild(ctx context.Context, v *volume, t target, old *pb.ReplicaSpec) (figures, *pb.ReplicaSpec, error) {
	last := b.nodes[nodeCount-1]
	if err := b.leaveOut(ctx, v, old); err != nil {
		return figures{}, nil, err
	}
	if _, err := last.ReplicaRemove(ctx, old); err != nil { // the disk has no room for a replica of each run
		return figures{}, nil, fmt.Errorf("remove replica %s: %w", old.GetName(), err)
	}
	r, err := b.another(ctx, last, old)
	if err != nil {
		return figures{}, nil, err
	}
	if err := b.settleDisk(); err != nil {
		return figures{}, nil, err
	}
	if err := b.beginRebuild(ctx, v, last, r); err != nil {
		return figures{}, nil, err
	}
	f, err := load(ctx, t, patterns[0], b.opts.runtime)
	if err != nil {
		return figures{}, nil, err
	}
	if s, _ := b.nodes[0].current(); v.isIn(s, r.GetName()) || v.hasFailed(s, r.GetName()) {
		return figures{}, nil, errors.New("the rebuild has ended before the load: it is not what was measured")
	}
	return f, r, b.awaitRebuilt(ctx, v, r)
}
