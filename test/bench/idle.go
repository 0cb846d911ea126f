package main

import (
	"context"
	"fmt"
	"os"
	"time"

	pb "github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

const (
	// idleSize is the size in bytes of an idle volume. Nothing is written to it.
	idleSize = 1 << 30
	// settleTime is how long the processes have to become idle after the last volume was attached.
	settleTime = 10 * time.Second
)

// measureIdle prints the memory and the processor time of the instance managers with one and with many volumes. The
// volumes are attached as block devices without users.
func (b *bench) measureIdle(ctx context.Context) error {
	if err := b.startNodes(ctx, "idle"); err != nil {
		return err
	}
	var rows [][]string
	row, err := b.idleRow(ctx, 0)
	if err != nil {
		return err
	}
	rows = append(rows, row)
	var volumes []*volume
	for _, count := range []int{1, b.opts.volumes} {
		for len(volumes) < count {
			v := &volume{name: fmt.Sprintf("idle-%d", len(volumes)+1), sizeBytes: idleSize, frontend: pb.Frontend_FRONTEND_BLOCK}
			if err := b.attach(ctx, v); err != nil {
				return err
			}
			volumes = append(volumes, v)
		}
		row, err := b.idleRow(ctx, count)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	for _, v := range volumes {
		if err := b.checkNow(v); err != nil {
			return err
		}
	}
	fmt.Printf("\nIdle volumes of %d MiB with block devices, over %v; all engines and one replica each on node 1, another replica each on nodes 2 and 3\n\n",
		idleSize>>20, b.opts.idle)
	head := []string{"volumes"}
	for _, n := range b.nodes {
		head = append(head, fmt.Sprintf("node %d PSS", n.number), fmt.Sprintf("node %d RSS", n.number), fmt.Sprintf("node %d CPU", n.number))
	}
	writeTable(os.Stdout, head, rows)
	for _, v := range volumes {
		if err := b.detach(ctx, v); err != nil {
			return err
		}
	}
	return b.stopNodes(ctx)
}

// idleRow measures the idle processes.
func (b *bench) idleRow(ctx context.Context, volumes int) ([]string, error) {
	if err := pause(ctx, settleTime); err != nil {
		return nil, err
	}
	before := make([]usage, len(b.nodes))
	var err error
	for i, n := range b.nodes {
		if before[i], err = usageOf(n.process.Process.Pid); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	if err := pause(ctx, b.opts.idle); err != nil {
		return nil, err
	}
	row := []string{fmt.Sprint(volumes)}
	for i, n := range b.nodes {
		after, err := usageOf(n.process.Process.Pid)
		if err != nil {
			return nil, err
		}
		share := (after.cpu - before[i].cpu).Seconds() / time.Since(began).Seconds()
		row = append(row, megabytes(after.pssBytes), megabytes(after.rssBytes), fmt.Sprintf("%.2f %%", share*100))
	}
	return row, nil
}

// printWeights prints the memory that the processes use now, and the most that they have used.
func (b *bench) printWeights(when string, volumes int) error {
	fmt.Printf("\nMemory of the instance managers %s, %d volumes\n\n", when, volumes)
	var rows [][]string
	for i, n := range b.nodes {
		u, err := usageOf(n.process.Process.Pid)
		if err != nil {
			return err
		}
		role := "a replica of each volume"
		if i == 0 {
			role = "the engine and a replica of each volume"
		}
		rows = append(rows, []string{fmt.Sprintf("node %d: %s", n.number, role), megabytes(u.pssBytes), megabytes(u.rssBytes), megabytes(u.peakBytes), u.cpu.Round(10 * time.Millisecond).String()})
	}
	writeTable(os.Stdout, []string{"", "PSS", "RSS", "RSS at most", "CPU in all"}, rows)
	return nil
}

func megabytes(b int64) string { return fmt.Sprintf("%.1f MB", float64(b)/1e6) }

// pause lets time pass. It is not a wait for something: the measurement is about idle processes.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
