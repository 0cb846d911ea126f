package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	pb "github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// Figures of the volume with scattered data: one block is written, the next block of the same size is not.
const (
	scatteredBytes = 5 << 30
	scatteredBlock = 4 << 10
)

// measureScattered prints how long a rebuild of scattered data takes, and how long dd takes to copy a member's file on
// the same disk.
func (b *bench) measureScattered(ctx context.Context) error {
	if err := b.startNodes(ctx, "scattered"); err != nil {
		return err
	}
	v := &volume{name: "bench-scattered", sizeBytes: scatteredBytes, frontend: pb.Frontend_FRONTEND_SOCKET}
	if err := b.attach(ctx, v); err != nil {
		return err
	}
	if err := scatter(ctx, socketTarget(socketName, b.nodes[0].toolSocket(), "engine/"+v.name)); err != nil {
		return err
	}
	first := v.replicaOn(b.nodes[0])
	copied, err := b.copyPlain(ctx, filepath.Join(b.nodes[0].root, first.GetDirectory(), "data.img"))
	if err != nil {
		return err
	}
	last := b.nodes[nodeCount-1]
	old := v.replicaOn(last)
	if err := b.leaveOut(ctx, v, old); err != nil {
		return err
	}
	r, err := b.another(ctx, last, old)
	if err != nil {
		return err
	}
	if err := b.settleDisk(); err != nil {
		return err
	}
	sent, took, err := b.rebuild(ctx, v, last, r)
	if err != nil {
		return err
	}
	fmt.Printf("\nA volume of %d GiB of which every other block of %d KiB was written; both end with a sync; load %s\n\n", scatteredBytes>>30, scatteredBlock>>10, loadAverage())
	writeTable(os.Stdout, []string{"", "sent", "took"}, [][]string{
		{"full rebuild", fmt.Sprintf("%.2f GiB", float64(sent)/(1<<30)), took.Round(10 * time.Millisecond).String()},
		{"dd bs=1M of the file", "", copied.Round(10 * time.Millisecond).String()},
	})
	if _, err := b.nodes[0].EngineStop(ctx, &pb.EngineRef{Name: v.engine()}); err != nil {
		return fmt.Errorf("stop engine %s: %w", v.engine(), err)
	}
	return b.stopNodes(ctx)
}

// scatter writes every other block.
func scatter(ctx context.Context, t target) error {
	args := append([]string{
		"--name=scatter", fmt.Sprint("--rw=write:", scatteredBlock), fmt.Sprint("--bs=", scatteredBlock), "--iodepth=64",
		fmt.Sprint("--size=", scatteredBytes), fmt.Sprint("--io_size=", scatteredBytes/2), "--end_fsync=1", "--output-format=json",
	}, t.args...)
	if _, err := fio(ctx, rebuildLimit, args); err != nil {
		return fmt.Errorf("scatter data: %w", err)
	}
	return nil
}

// copyPlain lets dd copy a file to the same disk, once, and removes the copy.
func (b *bench) copyPlain(ctx context.Context, file string) (took time.Duration, err error) {
	if err := b.settleDisk(); err != nil {
		return 0, err
	}
	target := filepath.Join(b.dir, "dd")
	defer func() { _ = os.Remove(target) }() // it may not exist
	ctx, cancel := context.WithTimeout(ctx, rebuildLimit)
	defer cancel()
	began := time.Now()
	out, err := exec.CommandContext(ctx, "dd", "if="+file, "of="+target, "bs=1M", "conv=fsync").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("dd: %w: %s", err, out)
	}
	return time.Since(began), nil
}
