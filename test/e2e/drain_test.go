package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// stubborn is the writer that ignores the request to exit, and records each error on its node.
var stubborn = "trap '' TERM\n" + strings.ReplaceAll(writing, `echo "record $n was not written"`, `echo "record $n was not written" | tee -a /acks/.errors`)

// TestRollingDrain drains all nodes one after the other, under a writer whose pods take 20 s to exit. Each drain
// finishes without help, no write fails, and every acknowledged record is there at the end.
func TestRollingDrain(t *testing.T) {
	ctx, c := threeNodes.get(t, disruptive)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 40*time.Minute)
	t.Cleanup(cancel)
	c.DumpIfFailed(t)
	ns := namespace(ctx, t, c, "e2e-drain")
	w := startWriter(ctx, t, c, ns, stubborn)
	w.c.Must(ctx, t, "-n", ns, "patch", "deployment/writer", "--type=merge", "-p", `{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":20}}}}`)
	c.Must(ctx, t, "-n", ns, "rollout", "status", "deployment/writer", "--timeout=180s")
	w.waitHealthy(ctx, t, 3*time.Minute)
	t.Cleanup(func() {
		for _, node := range c.Nodes() {
			_, _ = c.Kubectl(context.WithoutCancel(ctx), "uncordon", node) // undo what a failed test left
		}
	})

	// The writer's node comes first, so that the first drain moves the volume.
	nodes := []string{w.node(ctx, t)}
	for _, node := range c.Nodes() {
		if node != nodes[0] {
			nodes = append(nodes, node)
		}
	}
	for _, node := range nodes {
		w.drain(ctx, t, node)
	}
	for _, node := range c.Nodes() {
		assert.Empty(t, c.MustOnNode(ctx, t, node, "bash", "-c", "cat "+w.acks()+"/.errors 2>/dev/null || true"), "the writer saw errors on %s", node)
	}
	w.finish(ctx, t)
}

// drain drains a node, and uncordons it when the volume is healthy and the writer writes.
func (w *writer) drain(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	began := time.Now()
	wasHere := w.node(ctx, t) == node
	w.c.Must(ctx, t, "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=6m")
	t.Logf("node %s was drained in %s", node, time.Since(began).Round(time.Second))
	w.waitAcked(ctx, t, time.Now(), 3*time.Minute)
	now := w.node(ctx, t)
	if wasHere {
		assert.NotEqual(t, node, now, "volume %s", w.volume)
	}
	cordoned := w.c.Must(ctx, t, "-n", types.Namespace, "get", "nodes.longhorn.io/"+node, "-o", `jsonpath={.status.conditions[?(@.type=="Schedulable")].reason}`)
	assert.Equal(t, types.ReasonKubernetesNodeCordoned, cordoned, "node %s is drained", node)
	w.c.Must(ctx, t, "uncordon", node)
	w.waitHealthy(ctx, t, 5*time.Minute)
}

// TestADrainWaitsForAnAttachedVolume: while the volume is attached, the instance manager stays, and an Event says what
// it waits for. Scaling the workload down lets the drain finish.
func TestADrainWaitsForAnAttachedVolume(t *testing.T) {
	ctx, c := threeNodes.get(t, everyday)
	ns := namespace(ctx, t, c, "e2e-drain-waits")
	volume := claim(ctx, t, c, ns, "data", "64Mi")
	pod(ctx, t, c, ns, "user", "data", idle)
	node := nodeOf(ctx, t, c, ns, "user")
	im := types.InstanceManagerName(node)
	c.Must(ctx, t, "-n", types.Namespace, "wait", "--for=create", "poddisruptionbudget/"+im, "--timeout=30s")
	c.Must(ctx, t, "cordon", node)
	t.Cleanup(func() { _, _ = c.Kubectl(context.WithoutCancel(ctx), "uncordon", node) })
	drainable := `jsonpath={.status.conditions[?(@.type=="Drainable")].message}`
	cluster.Eventually(ctx, t, 30*time.Second, "the instance manager says what it waits for", func(ctx context.Context) error {
		message, err := c.Kubectl(ctx, "-n", types.Namespace, "get", "instancemanagers.longhorn.io/"+im, "-o", drainable)
		if err == nil && !strings.Contains(message, volume) {
			err = fmt.Errorf("it says %q", message)
		}
		return err
	})
	_, err := c.Kubectl(ctx, "drain", node, "--ignore-daemonsets", "--pod-selector="+types.LabelComponent+"="+types.ComponentInstanceManager, "--timeout=15s")
	require.Error(t, err, "the instance manager of an attached volume was evicted")
	deletePod(ctx, t, c, ns, "user")
	waitVolume(ctx, t, c, volume, ".status.state", "detached")
	c.Must(ctx, t, "drain", node, "--ignore-daemonsets", "--pod-selector="+types.LabelComponent+"="+types.ComponentInstanceManager, "--timeout=2m")
	c.Must(ctx, t, "uncordon", node)
	c.Must(ctx, t, "-n", types.Namespace, "wait", "instancemanagers.longhorn.io/"+im, "--for=jsonpath={.status.currentState}=running", "--timeout=120s")
}
