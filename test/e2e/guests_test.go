package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
)

// TestGuestsDisksAndNodesHang: on nodes with their own kernels, disks hang, slow down, fail and lie, and nodes freeze.
// Meanwhile, a writer makes records durable on a volume that has just grown. No record is lost, and the replicas are
// equal in the end. A volume on the nodes' other disks is not affected by the faulty disk of its neighbour.
func TestGuestsDisksAndNodesHang(t *testing.T) {
	apart.declare(t)
	hanging = make(chan struct{}) // before any parallel test continues
	t.Parallel()
	turnOfKernels(t)
	close(hanging)
	ctx, c := guests.get(t, apart)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 65*time.Minute)
	t.Cleanup(cancel)
	other := startBystander(ctx, t, c)
	ns := namespace(ctx, t, c, "e2e-guests")
	w := startWriter(ctx, t, c, ns, writing)
	h := follow(ctx, t, c, w.volume)
	t.Logf("the other volume, before: %s", other.measure(ctx, t))

	// The steps alternate between the two nodes. If a copy fails soon after its rebuild, its next rebuild starts later.
	replicaNode := func(i int) string { return without(c.Nodes(), w.node(ctx, t))[i] }
	for _, tc := range []struct {
		name string
		run  func(ctx context.Context, t *testing.T)
	}{
		{"the claim asks for more → its ext4 grows under the pod", w.expandExt4},
		{"the disk of another node hangs → served on, rebuilt", func(ctx context.Context, t *testing.T) {
			w.diskFails(ctx, t, h, other, replicaNode(0), "hang")
		}},
		{"the disk of the engine's node hangs → served on, rebuilt", func(ctx context.Context, t *testing.T) {
			w.diskFails(ctx, t, h, other, w.node(ctx, t), "hang")
		}},
		{"a disk is slow → it stays a member", func(ctx context.Context, t *testing.T) {
			w.diskIsSlow(ctx, t, h, other, replicaNode(1))
		}},
		{"a disk fails → served on, rebuilt after a repair", func(ctx context.Context, t *testing.T) {
			node := replicaNode(1)
			w.diskFails(ctx, t, h, other, node, "fail")
		}},
		{"a node loses its power and what its disk had cached → served on, rebuilt", func(ctx context.Context, t *testing.T) {
			w.cacheIsLost(ctx, t, h, replicaNode(0))
		}},
		{"another node stands still for a minute → served on, rebuilt", func(ctx context.Context, t *testing.T) {
			w.nodeIsFrozen(ctx, t, replicaNode(1))
		}},
		{"the node of the engine stands still for a minute → it goes on where it was", func(ctx context.Context, t *testing.T) {
			w.nodeIsFrozen(ctx, t, w.node(ctx, t))
		}},
	} {
		ok := t.Run(tc.name, func(t *testing.T) {
			c.DumpIfFailed(t)
			tc.run(ctx, t)
		})
		if !ok {
			return // the next steps would start from the state that the failed step left
		}
	}
	w.finish(ctx, t)
}

// waitDegraded waits until the volume was degraded after a time.
func waitDegraded(ctx context.Context, t *testing.T, h *history, after time.Time, timeout time.Duration) {
	t.Helper()
	cluster.Eventually(ctx, t, timeout, "the volume was degraded", func(context.Context) error {
		if !h.was(longhorn.VolumeRobustnessDegraded, after) {
			return errors.New("it was not")
		}
		return nil
	})
}

// setDisk changes how the data disk of a node behaves.
func setDisk(ctx context.Context, t *testing.T, c *cluster.Cluster, node string, state ...string) {
	t.Helper()
	_, err := c.Devcluster(ctx, append([]string{"disk", node}, state...)...)
	require.NoError(t, err)
}

// This makes a node's disk work again, even if the test has failed.
func mend(t *testing.T, c *cluster.Cluster, node string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := c.Devcluster(ctx, "disk", node, "ok")
	assert.NoError(t, err, "mend the disk of %s", node)
}

// diskFails makes a disk hang or fail every request until the engine serves the volume without it. Then it makes the
// disk work again.
func (w *writer) diskFails(ctx context.Context, t *testing.T, h *history, other *bystander, node, how string) {
	t.Helper()
	t.Cleanup(func() { mend(t, w.c, node) })
	began := time.Now()
	setDisk(ctx, t, w.c, node, how)
	waitDegraded(ctx, t, h, began, time.Minute)
	w.waitAcked(ctx, t, time.Now(), time.Minute)
	t.Logf("served without the disk of %s after %s", node, time.Since(began).Round(time.Second))
	t.Logf("the other volume, meanwhile: %s", other.measure(ctx, t))
	other.expectHealthy(ctx, t)
	setDisk(ctx, t, w.c, node, "ok")
	mended := time.Now()
	if how != "hang" { // the file system has shut down; it works again after the node's next boot
		for _, verb := range []string{"stop-node", "start-node"} {
			_, err := w.c.Devcluster(ctx, verb, node)
			require.NoError(t, err)
		}
	}
	w.waitHealthy(ctx, t, 6*time.Minute)
	t.Logf("healthy %s after the disk was mended", time.Since(mended).Round(time.Second))
	w.waitAcked(ctx, t, time.Now(), time.Minute)
}

// diskIsSlow makes each request to a disk take 20 ms longer, under a heavy writer with flushes. The engine must not
// exclude a disk that works, and must not rebuild its replica again and again.
func (w *writer) diskIsSlow(ctx context.Context, t *testing.T, h *history, other *bystander, node string) {
	t.Helper()
	t.Cleanup(func() { mend(t, w.c, node) })
	began := time.Now()
	setDisk(ctx, t, w.c, node, "slow", "20")
	heavy := w.c.Must(ctx, t, "-n", w.namespace, "exec", "deployment/writer", "--", "bash", "-c",
		"fio --name=heavy --filename=/data/heavy --size=64M --rw=randwrite --bs=64k --ioengine=libaio --iodepth=8 --direct=1 --fsync=32 "+
			"--time_based --runtime=45 --fallocate=none --minimal | cut -d';' -f 49; rm /data/heavy")
	t.Logf("beside a disk that takes 20 ms more: %s write IOPS of 64 KiB", heavy)
	t.Logf("the other volume, meanwhile: %s", other.measure(ctx, t))
	w.waitAcked(ctx, t, time.Now(), time.Minute)
	assert.False(t, h.was(longhorn.VolumeRobustnessDegraded, began), "the volume was degraded: a slow disk was left out")
	other.expectHealthy(ctx, t)
	setDisk(ctx, t, w.c, node, "ok")
}

// cacheIsLost makes a disk confirm writes that it does not do, and then cuts the node's power.
func (w *writer) cacheIsLost(ctx context.Context, t *testing.T, h *history, node string) {
	t.Helper()
	t.Cleanup(func() { startNode(t, w.c, node) })
	setDisk(ctx, t, w.c, node, "drop-writes")
	w.waitAcked(ctx, t, time.Now(), time.Minute) // the disk keeps none of these records
	began := time.Now()
	_, err := w.c.Devcluster(ctx, "stop-node", node, "--power-loss")
	require.NoError(t, err)
	waitDegraded(ctx, t, h, began, time.Minute)
	w.waitAcked(ctx, t, time.Now(), time.Minute)
	_, err = w.c.Devcluster(ctx, "start-node", node)
	require.NoError(t, err)
	on := time.Now()
	w.waitHealthy(ctx, t, 6*time.Minute)
	t.Logf("healthy %s after the node's start", time.Since(on).Round(time.Second))
}

// frozenFor is how long a node is frozen.
const frozenFor = time.Minute

// nodeIsFrozen freezes a node and thaws it.
func (w *writer) nodeIsFrozen(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	t.Cleanup(func() { thaw(t, w.c, node) })
	served := w.node(ctx, t) != node
	began := time.Now()
	_, err := w.c.Devcluster(ctx, "freeze", node)
	require.NoError(t, err)
	if served {
		w.waitAckedOn(ctx, t, without(w.c.Nodes(), node), began.Add(15*time.Second), frozenFor)
		t.Logf("served without %s after %s", node, time.Since(began).Round(time.Second))
	}
	select {
	case <-time.After(time.Until(began.Add(frozenFor))):
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	_, err = w.c.Devcluster(ctx, "thaw", node)
	require.NoError(t, err)
	thawed := time.Now()
	w.waitAcked(ctx, t, thawed, 3*time.Minute)
	t.Logf("records are acknowledged %s after it went on", time.Since(thawed).Round(time.Second))
	w.waitHealthy(ctx, t, 6*time.Minute)
	t.Logf("healthy %s after it went on", time.Since(thawed).Round(time.Second))
}

func thaw(t *testing.T, c *cluster.Cluster, node string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := c.Devcluster(ctx, "thaw", node)
	assert.NoError(t, err, "thaw %s", node)
}

// bystander is a pod that writes to a volume on the nodes' other disks.
type bystander struct {
	c                 *cluster.Cluster
	namespace, volume string
	h                 *history
	since             time.Time
}

// startBystander gives each node a second disk, and starts a pod with a volume on these disks.
func startBystander(ctx context.Context, t *testing.T, c *cluster.Cluster) *bystander {
	t.Helper()
	const tag = "e2e-bystander"
	api := restOf(ctx, t, c)
	for _, node := range c.Nodes() {
		path := "/var/lib/longhorn-" + tag
		_, err := c.Devcluster(ctx, "add-disk", "--disk-size", "2", node, tag, path)
		require.NoError(t, err)
		api.addDisk(ctx, t, node, tag, v1.DiskUpdate{Path: path, AllowScheduling: true, Tags: []string{tag}})
		waitDisk(ctx, t, c, node, tag, longhorn.ConditionTrue, "")
	}
	classOn(ctx, t, c, tag, len(c.Nodes()))
	b := &bystander{c: c, namespace: namespace(ctx, t, c, tag)}
	b.volume = claimOf(ctx, t, c, b.namespace, "data", "128Mi", tag)
	pod(ctx, t, c, b.namespace, "other", "data", idle)
	waitVolume(ctx, t, c, b.volume, ".status.robustness", "healthy")
	b.h, b.since = follow(ctx, t, c, b.volume), time.Now()
	return b
}

// latency is fio's result for writes, in milliseconds.
type latency struct{ p50, p99, longest float64 }

func (l latency) String() string {
	return fmt.Sprintf("a write of 4 KiB takes %.1f ms (p50), %.1f ms (p99), %.0f ms (the longest)", l.p50, l.p99, l.longest)
}

// measure writes for a while, one write at a time, and returns how long the writes took.
func (b *bystander) measure(ctx context.Context, t *testing.T) latency {
	t.Helper()
	out := b.c.Must(ctx, t, "-n", b.namespace, "exec", "other", "--", "fio", "--name=lat", "--filename=/data/lat", "--size=32M", "--rw=randwrite", "--bs=4k",
		"--ioengine=libaio", "--iodepth=1", "--direct=1", "--rate_iops=50", "--time_based", "--runtime=15", "--fallocate=none", "--output-format=json")
	if i := strings.Index(out, "{"); i > 0 {
		out = out[i:]
	}
	var report struct {
		Jobs []struct {
			Error int
			Write struct {
				Clat struct {
					Max        float64
					Percentile map[string]float64
				} `json:"clat_ns"`
			}
		}
	}
	err := json.Unmarshal([]byte(out), &report)
	require.NoError(t, err, "fio says %s", out)
	require.Len(t, report.Jobs, 1, "fio says %s", out)
	require.Zero(t, report.Jobs[0].Error, "fio says %s", out)
	clat := report.Jobs[0].Write.Clat
	const ms = 1e6
	return latency{p50: clat.Percentile["50.000000"] / ms, p99: clat.Percentile["99.000000"] / ms, longest: clat.Max / ms}
}

// expectHealthy fails the test if the volume lost a copy since it was created.
func (b *bystander) expectHealthy(ctx context.Context, t *testing.T) {
	t.Helper()
	assert.False(t, b.h.was(longhorn.VolumeRobustnessDegraded, b.since), "volume %s, on other disks, was degraded:\n%s", b.volume, b.h)
	assert.Equal(t, longhorn.VolumeRobustnessHealthy, theVolume(ctx, t, b.c, b.volume).Status.Robustness, "volume %s, on other disks, was degraded:\n%s", b.volume, b.h)
}
