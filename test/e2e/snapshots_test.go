package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestSnapshots: snapshots are taken while a pod uses the volume, also after a data plane was killed and while a replica
// is missing. A replica that is created later has them too. A deleted snapshot disappears at once, and its space on every
// replica soon afterwards. At last the volume returns to the oldest snapshot, and has the content of that time.
func TestSnapshots(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	api := restOf(ctx, t, c)
	ns := namespace(ctx, t, c, "e2e-snapshots")
	volume := claim(ctx, t, c, ns, "data", "256Mi")
	pod(ctx, t, c, ns, "user", "data", idle)
	waitVolume(ctx, t, c, volume, ".status.robustness", "healthy")
	assert.Nil(t, theEngine(ctx, t, c, volume).Status.Line, "a volume without snapshots has a record of them")
	kept := writeFile(ctx, t, c, ns, "user", "/data/kept", 16)
	takeSnapshot(ctx, t, c, volume, "e2e-first")

	writeFile(ctx, t, c, ns, "user", "/data/later", 32)
	killProcess(ctx, t, c, nodeOf(ctx, t, c, ns, "user"), "instance-manager serve") // the device outlives it
	waitHealthy(ctx, t, c, volume, 2*time.Minute)
	takeSnapshot(ctx, t, c, volume, "e2e-second")

	c.Must(ctx, t, "-n", types.Namespace, "delete", "replicas.longhorn.io", replicasOf(ctx, t, c, volume)[0].Name, "--wait=false")
	takeSnapshot(ctx, t, c, volume, "e2e-third")
	later := writeFile(ctx, t, c, ns, "user", "/data/later", 24)
	waitReplicas(ctx, t, c, volume, 3)
	waitPoints(ctx, t, c, volume, 1, 2, 3)

	deleteSnapshot(ctx, t, c, "e2e-second")
	waitPoints(ctx, t, c, volume, 1, 3)
	deleteSnapshot(ctx, t, c, "e2e-third")
	waitPoints(ctx, t, c, volume, 1)
	assert.Equal(t, later, sumInPod(ctx, t, c, ns, "user", "/data/later"))
	assert.Equal(t, kept, sumInPod(ctx, t, c, ns, "user", "/data/kept"))

	revert := "/volumes/" + volume + "?action=snapshotRevert"
	answer := api.do(ctx, t, http.MethodPost, revert, v1.SnapshotInput{Name: "e2e-first"}, http.StatusConflict, nil)
	assert.Contains(t, answer, "with frontend enabled")
	deletePod(ctx, t, c, ns, "user")
	waitVolume(ctx, t, c, volume, ".status.state", "detached")
	cluster.Eventually(ctx, t, time.Minute, "the engine has stopped", func(ctx context.Context) error {
		if s := theEngine(ctx, t, c, volume).Status; s.CurrentState != longhorn.InstanceStateStopped || s.Session != "" {
			return fmt.Errorf("it is %s", s.CurrentState)
		}
		return nil
	})
	api.do(ctx, t, http.MethodPost, revert, v1.SnapshotInput{Name: "e2e-first"}, http.StatusOK, nil)
	pod(ctx, t, c, ns, "user", "data", idle)
	assert.Equal(t, kept, sumInPod(ctx, t, c, ns, "user", "/data/kept"))
	_, err := c.Kubectl(ctx, "-n", ns, "exec", "user", "--", "test", "-e", "/data/later")
	require.Error(t, err, "the file was written after the snapshot")
	waitHealthy(ctx, t, c, volume, time.Minute)
}

// TestTheOnlyReplicaOfAVolumeWithASnapshotServesAgain: the process that serves the volume's only replica is killed after
// a snapshot, with writes that were never synced. Its successor knows that nothing was lost, so the pod keeps its device.
func TestTheOnlyReplicaOfAVolumeWithASnapshotServesAgain(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	ns := namespace(ctx, t, c, "e2e-only-replica")
	class(ctx, t, c, "e2e-only-replica", `{dataLocality: strict-local}`)
	volume := claimOf(ctx, t, c, ns, "data", "128Mi", "e2e-only-replica")
	node := c.Nodes()[1]
	strictPod(ctx, t, c, ns, "user", node)
	kept := writeFile(ctx, t, c, ns, "user", "/data/kept", 8)
	takeSnapshot(ctx, t, c, volume, "e2e-only-replica")
	inPod := func(script string) string {
		t.Helper()
		return c.Must(ctx, t, "-n", ns, "exec", "user", "--", "sh", "-c", script)
	}
	want := firstWord(t, inPod("dd if=/dev/urandom of=/tmp/random bs=1M count=8 status=none && sha256sum /tmp/random"))
	const direct = "bs=1M conv=notrunc status=none"
	inPod("dd if=/tmp/random of=/data/unsynced oflag=direct " + direct)
	before, err := devicesOf(ctx, c, node, volume)
	require.NoError(t, err)
	pod := c.Must(ctx, t, "-n", ns, "get", "pod", "user", "-o", "jsonpath={.metadata.uid}")

	killProcess(ctx, t, c, node, "instance-manager serve")
	assert.Equal(t, want, firstWord(t, inPod("dd if=/data/unsynced iflag=direct "+direct+" | sha256sum")))
	assert.Equal(t, kept, firstWord(t, inPod("dd if=/data/kept iflag=direct "+direct+" | sha256sum")))
	inPod("dd if=/tmp/random of=/data/kept oflag=direct " + direct + " && sync")
	waitHealthy(ctx, t, c, volume, 2*time.Minute)
	after, err := devicesOf(ctx, c, node, volume)
	require.NoError(t, err)
	assert.Equal(t, before, after)
	assert.Equal(t, pod, c.Must(ctx, t, "-n", ns, "get", "pod", "user", "-o", "jsonpath={.metadata.uid}"))
	assert.Empty(t, theVolume(ctx, t, c, volume).Status.RemountRequestedAt)
}

// takeSnapshot requests a snapshot as a user does, and waits until it is ready.
func takeSnapshot(ctx context.Context, t *testing.T, c *cluster.Cluster, volume, name string) {
	t.Helper()
	require.NoError(t, c.Apply(ctx, fmt.Sprintf(`
apiVersion: longhorn.io/v1beta2
kind: Snapshot
metadata: {name: %s, namespace: %s}
spec: {volume: %s, createSnapshot: true, labels: {app: db}}
`, name, types.Namespace, volume)))
	c.Must(ctx, t, "-n", types.Namespace, "wait", "snapshots.longhorn.io/"+name, "--for=jsonpath={.status.readyToUse}=true", "--timeout=120s")
}

// deleteSnapshot deletes a snapshot. The object disappears without waiting for the replicas.
func deleteSnapshot(ctx context.Context, t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	c.Must(ctx, t, "-n", types.Namespace, "delete", "snapshots.longhorn.io", name, "--timeout=30s")
}

// waitReplicas waits until a volume is healthy with so many replicas.
func waitReplicas(ctx context.Context, t *testing.T, c *cluster.Cluster, volume string, n int) {
	t.Helper()
	cluster.Eventually(ctx, t, 3*time.Minute, fmt.Sprintf("the volume is healthy with %d replicas", n), func(ctx context.Context) error {
		modes, v := theEngine(ctx, t, c, volume).Status.ReplicaModeMap, theVolume(ctx, t, c, volume)
		serving := 0
		for _, mode := range modes {
			if mode == longhorn.ReplicaModeRW {
				serving++
			}
		}
		if serving != n || v.Status.Robustness != longhorn.VolumeRobustnessHealthy {
			return fmt.Errorf("it is %s, and its replicas are %v", v.Status.Robustness, modes)
		}
		return nil
	})
}

// waitPoints waits until every replica has exactly the snapshots with these numbers.
func waitPoints(ctx context.Context, t *testing.T, c *cluster.Cluster, volume string, want ...int64) {
	t.Helper()
	cluster.Eventually(ctx, t, 2*time.Minute, fmt.Sprintf("every replica has the snapshots %v", want), func(ctx context.Context) error {
		for _, r := range replicasOf(ctx, t, c, volume) {
			var have []int64
			if r.Status.Layers != nil {
				for _, p := range r.Status.Layers.Points {
					have = append(have, p.Number)
				}
			}
			if !assert.ObjectsAreEqual(want, have) {
				text, _ := json.Marshal(r.Status.Layers)
				return fmt.Errorf("replica %s has %s", r.Name, text)
			}
		}
		return nil
	})
}
