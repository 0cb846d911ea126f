package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestReplicaIsLostUnderLoad: an instance manager that serves only a replica stops while a pod writes and verifies. The
// pod sees no error, and the volume is degraded. The replica becomes a member again only after its rebuild. In the end
// all replicas are equal.
func TestReplicaIsLostUnderLoad(t *testing.T) {
	ctx, c := threeNodes.get(t, everyday)
	ns := namespace(ctx, t, c, "e2e-kill-replica")
	volume := claim(ctx, t, c, ns, "data", "512Mi")
	pod(ctx, t, c, ns, "load", "data", verifyingUntilStopped)
	waitVolume(ctx, t, c, volume, ".status.robustness", "healthy")
	sum := writeFile(ctx, t, c, ns, "load", "/data/file", 192) // so that there is something to rebuild
	h := follow(ctx, t, c, volume)
	var victims []longhorn.Replica
	for _, r := range replicasOf(ctx, t, c, volume) {
		if r.Spec.NodeID != nodeOf(ctx, t, c, ns, "load") {
			victims = append(victims, r)
		}
	}
	require.Len(t, victims, 2, "replicas are on other nodes than the engine")
	for i, loss := range []struct {
		name string
		of   func(node string)
	}{
		{"its pod is deleted by force → rebuilt", func(node string) {
			c.Must(ctx, t, "-n", types.Namespace, "delete", "pod", types.InstanceManagerName(node), "--grace-period=0", "--force")
		}},
		{"its process is killed → rebuilt", func(node string) { killProcess(ctx, t, c, node, "instance-manager") }},
	} {
		t.Run(loss.name, func(t *testing.T) {
			began := time.Now()
			loss.of(victims[i].Spec.NodeID)
			cluster.Eventually(ctx, t, time.Minute, "the volume was degraded", func(context.Context) error {
				if !h.was(longhorn.VolumeRobustnessDegraded, began) {
					return errors.New("it was not")
				}
				return nil
			})
			waitHealthy(ctx, t, c, volume, 2*time.Minute)
			t.Logf("healthy again after %s", time.Since(began).Round(time.Second))
			h.checkRebuilt(ctx, t, victims[i].Name)
			if podPhase(ctx, t, c, ns, "load") != "Running" {
				t.Fatalf("fio reports:\n%s", c.Must(ctx, t, "-n", ns, "logs", "load", "--tail=50"))
			}
		})
	}
	c.Must(ctx, t, "-n", ns, "exec", "load", "--", "touch", "/tmp/stop")
	waitVerified(ctx, t, c, ns, time.Minute)
	assert.Equal(t, sum, sumInPod(ctx, t, c, ns, "load", "/data/file"))
	deletePod(ctx, t, c, ns, "load")
	waitVolume(ctx, t, c, volume, ".status.state", "detached")
	checkSums(ctx, t, c, theVolume(ctx, t, c, volume), replicasOf(ctx, t, c, volume))
}

// TestEngineIsLostUnderLoad: the whole data plane of a volume's engine is killed at once, under load. The volume is
// attached again, the workload works again without help, and nothing of the old device remains. Every record that was
// made durable is there.
func TestEngineIsLostUnderLoad(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	ns := namespace(ctx, t, c, "e2e-kill-engine")
	w := startWriter(ctx, t, c, ns, loading+writing)
	h := follow(ctx, t, c, w.volume)
	deletePod := func(args ...string) func(string) {
		return func(node string) {
			c.Must(ctx, t, append([]string{"-n", types.Namespace, "delete", "pod", types.InstanceManagerName(node)}, args...)...)
		}
	}
	for _, loss := range []struct {
		name string
		of   func(node string)
	}{
		{"its processes are killed", func(node string) { killProcess(ctx, t, c, node, "instance-manager") }},
		{"its pod is deleted", deletePod()},
		{"its pod is deleted by force", deletePod("--grace-period=0", "--force")},
	} {
		t.Run(loss.name, func(t *testing.T) {
			killed := w.loseEngine(ctx, t, h, loss.of)
			requested, err := time.Parse(time.RFC3339, theVolume(ctx, t, c, w.volume).Status.RemountRequestedAt)
			require.NoError(t, err, "remountRequestedAt is %v, killed was at %v", requested, killed)
			assert.False(t, requested.Before(killed.Truncate(time.Second)), "remountRequestedAt is %v, killed was at %v", requested, killed)
			waitOneDevice(ctx, t, c, w.node(ctx, t), w.volume)
		})
	}
	w.finish(ctx, t)
}

// TestServingProcessIsLostUnderLoad: the process that serves a volume's device is killed several times, under two pods
// that write. One of them verifies every block, the other one makes records durable. The device outlives the process:
// no pod sees an error, nothing is mounted again, and nothing is lost.
func TestServingProcessIsLostUnderLoad(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	ns := namespace(ctx, t, c, "e2e-succession")
	w := startWriter(ctx, t, c, ns, verifyingBeside+writing)
	h := follow(ctx, t, c, w.volume)
	node := w.node(ctx, t)
	before, err := devicesOf(ctx, c, node, w.volume)
	require.NoError(t, err)
	manager := instanceManagerPod(ctx, t, c, node)
	writer := w.podUID(ctx, t)
	for range 3 {
		w.loseEngine(ctx, t, h, func(node string) { killProcess(ctx, t, c, node, "instance-manager serve") })
	}
	v := theVolume(ctx, t, c, w.volume)
	assert.Empty(t, v.Status.RemountRequestedAt)
	assert.Equal(t, node, v.Status.CurrentNodeID)
	assert.False(t, h.wasState(longhorn.VolumeStateDetaching), "the volume did not stay attached:\n%s", h)
	assert.False(t, h.wasState(longhorn.VolumeStateAttaching), "the volume did not stay attached:\n%s", h)
	after, err := devicesOf(ctx, c, node, w.volume)
	require.NoError(t, err)
	assert.Equal(t, before, after)
	assert.Equal(t, manager, instanceManagerPod(ctx, t, c, node))
	assert.Equal(t, writer, w.podUID(ctx, t))
	w.checkVerified(ctx, t)
	w.finish(ctx, t)
}

// loseEngine runs lose with the engine's node, which stops the engine there. It waits until another engine serves and
// all copies are members again.
func (w *writer) loseEngine(ctx context.Context, t *testing.T, h *history, lose func(node string)) (killed time.Time) {
	t.Helper()
	was := theEngine(ctx, t, w.c, w.volume).Status
	killed = time.Now()
	lose(w.node(ctx, t))
	cluster.Eventually(ctx, t, time.Minute, "another engine was started", func(context.Context) error {
		if _, ok := h.generationAbove(was.Generation); !ok {
			return errors.New("it was not")
		}
		return nil
	})
	w.waitHealthy(ctx, t, 2*time.Minute)
	again, _ := h.generationAbove(was.Generation)
	w.waitAcked(ctx, t, again, 2*time.Minute)
	acks, err := w.acked(ctx, w.node(ctx, t))
	require.NoError(t, err)
	longest := time.Duration(0)
	for i, a := range acks {
		if i > 0 && a.at.After(killed) {
			longest = max(longest, a.at.Sub(acks[i-1].at))
		}
	}
	t.Logf("the longest time without an acknowledgement was %s", longest.Round(time.Millisecond))
	return killed
}

// instanceManagerPod identifies the pod of a node's data plane.
func instanceManagerPod(ctx context.Context, t *testing.T, c *cluster.Cluster, node string) string {
	t.Helper()
	return c.Must(ctx, t, "-n", types.Namespace, "get", "pod", types.InstanceManagerName(node), "-o", "jsonpath={.metadata.uid}")
}

// killProcess kills the processes of one of our roles on a node with SIGKILL. "instance-manager" is the whole data
// plane; "instance-manager serve" is the process in it that serves.
func killProcess(ctx context.Context, t *testing.T, c *cluster.Cluster, node, role string) {
	t.Helper()
	c.MustOnNode(ctx, t, node, "bash", "-c", fmt.Sprintf(`
		found=()
		for p in /proc/[0-9]*; do
			readarray -d '' -t args 2>/dev/null <"$p/cmdline" || continue
			program=${args[0]:-} args=("${args[@]:1}")
			[[ $program == */longhorn-manager* && "${args[*]} " == %q* ]] && found+=("${p#/proc/}")
		done
		[ ${#found[@]} -gt 0 ] && kill -9 "${found[@]}"`, role+" "))
}
