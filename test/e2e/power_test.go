package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
)

// rounds is how often the power is lost in each way: LONG_ROUNDS, or once.
func rounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("LONG_ROUNDS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("LONG_ROUNDS=%s: must be a number above 0", text)
	}
	return n
}

// TestPowerIsLost: nodes lose their power, and with it what their file systems had not
// written, while records are made durable. Each of these is there afterwards, and the
// replicas are equal.
func TestPowerIsLost(t *testing.T) {
	ctx, c := threeNodes.get(t)
	n := rounds(t)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Minute*time.Duration(n))
	t.Cleanup(cancel)
	ns := namespace(ctx, t, c, "e2e-power")
	w := startWriter(ctx, t, c, ns, writing)
	h := follow(ctx, t, c, w.volume)
	first := true
	for round := range n {
		for _, loss := range []struct {
			name string
			of   func(t *testing.T) []string
		}{
			{"a node with a replica only → served on, rebuilt", func(t *testing.T) []string { return without(nodes, w.node(ctx, t))[:1] }},
			{"the node of the engine → attached again", func(t *testing.T) []string { return []string{w.node(ctx, t)} }},
			{"all nodes → attached again", func(*testing.T) []string { return nodes }},
		} {
			ok := t.Run(fmt.Sprintf("round %d: %s", round+1, loss.name), func(t *testing.T) {
				c.DumpIfFailed(t)
				if !first {
					w.scale(ctx, t, 1)
				}
				first = false
				w.losePower(ctx, t, h, loss.of(t))
				w.finish(ctx, t)
			})
			if !ok {
				return // what follows would be tested on what that left
			}
		}
	}
}

// losePower turns nodes off and on again, and waits until the volume is what it was.
func (w *writer) losePower(ctx context.Context, t *testing.T, h *history, lost []string) {
	t.Helper()
	servedOn := w.node(ctx, t) != lost[0] && len(lost) == 1
	began := time.Now()
	for _, node := range lost {
		t.Cleanup(func() { startNode(t, w.c, node) })
		if _, err := w.c.Devcluster(ctx, "stop-node", node, "--power-loss"); err != nil {
			t.Fatal(err)
		}
	}
	if servedOn {
		cluster.Eventually(ctx, t, time.Minute, "the volume was degraded", func(context.Context) error {
			if !h.was(longhorn.VolumeRobustnessDegraded, began) {
				return errors.New("it was not")
			}
			return nil
		})
		w.waitAckedOn(ctx, t, without(nodes, lost[0]), time.Now(), 30*time.Second)
	}
	on := time.Now()
	for _, node := range lost {
		if _, err := w.c.Devcluster(ctx, "start-node", node); err != nil {
			t.Fatal(err)
		}
	}
	w.waitAcked(ctx, t, on, 3*time.Minute)
	t.Logf("records are acknowledged %s after the loss, %s after the nodes' start", time.Since(began).Round(time.Second), time.Since(on).Round(time.Second))
	w.waitHealthy(ctx, t, 3*time.Minute)
	t.Logf("healthy %s after the nodes' start", time.Since(on).Round(time.Second))
}

// startNode turns a node on if it is off, so that a failed test leaves the cluster whole.
func startNode(t *testing.T, c *cluster.Cluster, node string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if _, err := c.OnNode(ctx, node, "true"); err == nil {
		return
	}
	if _, err := c.Devcluster(ctx, "start-node", node); err != nil {
		t.Errorf("turn %s on again: %v", node, err)
	}
}

// without is a list without one of its elements.
func without(list []string, one string) []string {
	var rest []string
	for _, s := range list {
		if s != one {
			rest = append(rest, s)
		}
	}
	return rest
}
