package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// outOfService is the taint by which an administrator says that a node is off.
const outOfService = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"

// TestNodeIsCutOff: the engine's node is cut off while the engine and a replica keep running there, and the
// administrator declares it out of service. The pod continues on another node. The old node acknowledged nothing after
// the new engine had started. Everything that it acknowledged before is on the volume. After the node is back, its
// replica is rebuilt, nothing of the old device remains, and none of our processes has exited.
func TestNodeIsCutOff(t *testing.T) {
	ctx, c := threeNodes.get(t, disruptive)
	ns := namespace(ctx, t, c, "e2e-cut")
	w := startWriter(ctx, t, c, ns, writing)
	t.Run("another node's daemon leads", func(t *testing.T) {
		w.cutOff(ctx, t, func(old string) string { return without(nodes, old)[0] })
	})
	w.scale(ctx, t, 1)
	t.Run("its own daemon leads → another takes over", func(t *testing.T) {
		w.cutOff(ctx, t, func(old string) string { return old })
	})
}

// cutOff cuts the writer's node off while the daemon of a chosen node leads.
func (w *writer) cutOff(ctx context.Context, t *testing.T, leading func(old string) string) {
	t.Helper()
	c := w.c
	c.DumpIfFailed(t)
	h := follow(ctx, t, c, w.volume)
	old := w.node(ctx, t)
	lead(ctx, t, c, leading(old))
	local := replicaOn(ctx, t, c, w.volume, old)
	restarts := restartsOn(ctx, t, c, old)

	m := w.moveOn(ctx, t, old)
	at := w.node(ctx, t)
	assert.NotEqual(t, old, at, "the volume is said to be attached to %s still", at)
	w.checkOldAcks(ctx, t, old, m.cut, m.started)

	heal(t, c, old)
	back := time.Now()
	w.waitHealthy(ctx, t, 3*time.Minute)
	t.Logf("healthy %s after the node was back", time.Since(back).Round(time.Second))
	h.checkRebuilt(ctx, t, local.Name)
	cluster.Eventually(ctx, t, time.Minute, "nothing of the old device is left on "+old, func(ctx context.Context) error {
		left, err := leftovers(ctx, c, old, w.volume)
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	})
	t.Logf("nothing of the old device is left %s after the node was back", time.Since(back).Round(time.Second))
	w.checkOldAcks(ctx, t, old, m.cut, m.started)
	assert.Equal(t, restarts, restartsOn(ctx, t, c, old), "containers of ours restarted")
	w.finish(ctx, t)
}

// checkOldAcks checks that the node that was cut off acknowledged nothing after the new engine's generation. The node
// may answer exec, which does not use the network.
func (w *writer) checkOldAcks(ctx context.Context, t *testing.T, old string, cut, started time.Time) {
	t.Helper()
	acks, err := w.acked(ctx, old)
	require.NoError(t, err, "what was acknowledged on %s", old)
	require.NotEmpty(t, acks, "what was acknowledged on %s", old)
	last := acks[len(acks)-1]
	assert.True(t, last.at.Before(started), "%s acknowledged %q at %s; another engine had its generation since %s", old, last.record, last.at.Format(time.StampMicro), started.Format(time.StampMicro))
	t.Logf("the last acknowledgement on %s was %s after it was cut off; the new generation was seen after %s", old,
		last.at.Sub(cut).Round(time.Millisecond), started.Sub(cut).Round(time.Millisecond))
}

// heal connects a node again and removes the taint. It may be called twice.
func heal(t *testing.T, c *cluster.Cluster, node string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	_, err := c.Devcluster(ctx, "heal", node)
	assert.NoError(t, err)
	taints, err := c.Kubectl(ctx, "get", "node", node, "-o", "jsonpath={.spec.taints[?(@.key==\"node.kubernetes.io/out-of-service\")].key}")
	if err == nil && taints != "" {
		_, err = c.Kubectl(ctx, "taint", "node", node, outOfService+"-")
	}
	if err == nil {
		_, err = c.Kubectl(ctx, "wait", "node/"+node, "--for=condition=Ready", "--timeout=90s")
	}
	assert.NoError(t, err)
}

func replicaOn(ctx context.Context, t *testing.T, c *cluster.Cluster, volume, node string) longhorn.Replica {
	t.Helper()
	for _, r := range replicasOf(ctx, t, c, volume) {
		if r.Spec.NodeID == node {
			return r
		}
	}
	t.Fatalf("volume %s has no replica on %s", volume, node)
	return longhorn.Replica{}
}

// restartsOn returns how often our containers on a node have restarted, by pod. It leaves out the pods of shares, which
// come and go.
func restartsOn(ctx context.Context, t *testing.T, c *cluster.Cluster, node string) map[string]int32 {
	t.Helper()
	pods, err := c.Kube.CoreV1().Pods(types.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	require.NoError(t, err)
	restarts := map[string]int32{}
	for _, pod := range pods.Items {
		if !strings.HasPrefix(pod.Name, types.ShareManagerPodName("")) {
			restarts[pod.Name] = restartsOf(pod)
		}
	}
	return restarts
}
