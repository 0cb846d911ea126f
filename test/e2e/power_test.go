package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// rounds returns how often the power is lost in each way: LONG_ROUNDS, or once.
func rounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("LONG_ROUNDS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, "LONG_ROUNDS=%s: must be a number above 0", text)
	require.GreaterOrEqual(t, n, 1, "LONG_ROUNDS=%s: must be a number above 0", text)
	return n
}

// TestPowerIsLost: nodes lose their power, and with it the data that their file systems had not written yet. Meanwhile,
// a writer makes records durable. Each durable record is there afterwards, and the replicas are equal.
func TestPowerIsLost(t *testing.T) {
	ctx, c := threeNodes.get(t, disruptive)
	n := rounds(t)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Minute*time.Duration(n))
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
				return // the next steps would start from the state that the failed step left
			}
		}
	}
}

// losePower turns nodes off and on again, and waits until the volume is in its former state.
func (w *writer) losePower(ctx context.Context, t *testing.T, h *history, lost []string) {
	t.Helper()
	servedOn := w.node(ctx, t) != lost[0] && len(lost) == 1
	before := map[string]string{}
	for _, node := range lost {
		before[node] = awaitBoot(ctx, t, w.c, node)
	}
	began := time.Now()
	for _, node := range lost {
		t.Cleanup(func() { startNode(t, w.c, node) })
		_, err := w.c.Devcluster(ctx, "stop-node", node, "--power-loss")
		require.NoError(t, err)
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
		_, err := w.c.Devcluster(ctx, "start-node", node)
		require.NoError(t, err)
	}
	w.waitAcked(ctx, t, on, 3*time.Minute)
	t.Logf("records are acknowledged %s after the loss, %s after the nodes' start", time.Since(began).Round(time.Second), time.Since(on).Round(time.Second))
	w.waitHealthy(ctx, t, 3*time.Minute)
	t.Logf("healthy %s after the nodes' start", time.Since(on).Round(time.Second))
	for _, node := range lost {
		assert.NotEqual(t, before[node], awaitBoot(ctx, t, w.c, node), "the instance manager on %s takes the boot for the one before the loss, and so its page cache for kept", node)
	}
}

// awaitBoot waits until a node's instance manager reports the id of the node's current boot, and returns this id.
func awaitBoot(ctx context.Context, t *testing.T, c *cluster.Cluster, node string) string {
	t.Helper()
	var boot string
	cluster.Eventually(ctx, t, time.Minute, "the instance manager on "+node+" tells the node's boot", func(ctx context.Context) error {
		own, err := c.OnNode(ctx, node, "cat", "/proc/sys/kernel/random/boot_id")
		if err != nil {
			return err
		}
		log, err := c.Kubectl(ctx, "-n", types.Namespace, "logs", types.InstanceManagerName(node))
		if err != nil {
			return err
		}
		_, line, found := strings.Cut(log, "Data plane is serving")
		if !found {
			return errors.New("its log does not say that it serves")
		}
		line, _, _ = strings.Cut(line, "\n")
		if boot = strings.TrimSpace(own); boot == "" || !strings.Contains(line, " boot="+boot) {
			return fmt.Errorf("its log says %q, the node's boot is %q", line, boot)
		}
		return nil
	})
	return boot
}

// startNode turns a node on if it is off, so that a failed test leaves a complete cluster.
func startNode(t *testing.T, c *cluster.Cluster, node string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if _, err := c.OnNode(ctx, node, "true"); err == nil {
		return
	}
	_, err := c.Devcluster(ctx, "start-node", node)
	assert.NoError(t, err, "turn %s on again", node)
}

// without returns a list without one of its elements.
func without(list []string, one string) []string {
	var rest []string
	for _, s := range list {
		if s != one {
			rest = append(rest, s)
		}
	}
	return rest
}
