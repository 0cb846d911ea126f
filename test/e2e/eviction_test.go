package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestEvictionOfEachNode evicts all replicas from one node after the other, under a writer. In the end each node
// reports that it is empty. The volume always has as many healthy replicas as requested, no write fails, and every
// acknowledged record is there at the end.
func TestEvictionOfEachNode(t *testing.T) {
	ctx, c := threeNodes.get(t, disruptive)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 40*time.Minute)
	t.Cleanup(cancel)
	c.DumpIfFailed(t)
	ns := namespace(ctx, t, c, "e2e-eviction")
	class(ctx, t, c, "e2e-eviction", `{numberOfReplicas: "2"}`)
	w := startWriterOn(ctx, t, c, ns, verifyingBeside+writing, "e2e-eviction")
	w.waitHealthy(ctx, t, 3*time.Minute)
	pod := w.podUID(ctx, t)
	t.Cleanup(func() {
		for _, node := range c.Nodes() {
			setEviction(context.WithoutCancel(ctx), t, c, node, false)
		}
	})
	for _, node := range c.Nodes() {
		w.evict(ctx, t, node)
	}
	assert.Equal(t, pod, w.podUID(ctx, t), "the writer's pod and its restarts")
	w.checkVerified(ctx, t)
	w.finish(ctx, t)
}

// evict moves the writer's volume off a node, then lets the node take replicas again. It ignores the volumes of other
// tests, which may be detached and stay then.
func (w *writer) evict(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	began := time.Now()
	setEviction(ctx, t, w.c, node, true)
	cluster.Eventually(ctx, t, 5*time.Minute, "node "+node+" is empty of volume "+w.volume, func(ctx context.Context) error {
		good, here := 0, 0
		for _, r := range replicasOf(ctx, t, w.c, w.volume) {
			if r.Spec.NodeID == node {
				here++
			}
			if r.Spec.HealthyAt != "" && r.Spec.FailedAt == "" && r.DeletionTimestamp == nil {
				good++
			}
		}
		if good < 2 {
			t.Fatalf("volume %s has %d healthy replicas while node %s is evicted", w.volume, good, node)
		}
		if here > 0 {
			return fmt.Errorf("%d replicas are there", here)
		}
		return nil
	})
	t.Logf("node %s was emptied in %s", node, time.Since(began).Round(time.Second))
	w.waitEmptied(ctx, t, node)
	w.waitAcked(ctx, t, time.Now(), time.Minute)
	w.waitHealthy(ctx, t, time.Minute)
	setEviction(ctx, t, w.c, node, false)
}

// waitEmptied waits until the node's disks report that they are empty, or name only volumes of other tests.
func (w *writer) waitEmptied(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	cluster.Eventually(ctx, t, 2*time.Minute, "the disks of "+node+" say that they are empty", func(ctx context.Context) error {
		n, err := w.c.Longhorn.LonghornV1beta2().Nodes(types.Namespace).Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for name, d := range n.Status.DiskStatus {
			c := types.FindCondition(d.Conditions, types.ConditionEmptied)
			if wants := longhorn.ConditionTrue; len(d.ScheduledReplica) == 0 && c.Status != wants {
				return fmt.Errorf("disk %s says %s: %s", name, c.Status, c.Message)
			}
			if len(d.ScheduledReplica) > 0 && c.Reason != types.ReasonReplicasLeft {
				return fmt.Errorf("disk %s has %v and says %s: %s", name, d.ScheduledReplica, c.Status, c.Message)
			}
		}
		return nil
	})
}

// setEviction requests the eviction of a node, or withdraws the request.
func setEviction(ctx context.Context, t *testing.T, c *cluster.Cluster, node string, isOn bool) {
	t.Helper()
	c.Must(ctx, t, "-n", types.Namespace, "patch", "nodes.longhorn.io/"+node, "--type=merge", "-p",
		fmt.Sprintf(`{"spec":{"allowScheduling":%t,"evictionRequested":%t}}`, !isOn, isOn))
}
