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
