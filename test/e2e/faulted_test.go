package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestNoReplicaIsThere: all directories of a volume's replicas are gone. The volume is faulted and names the missing
// directories and their places. Nothing is created in place of them. When they are put back, the volume starts without
// help, and the file is there.
func TestNoReplicaIsThere(t *testing.T) {
	t.Parallel() // runs with the other tests that keep the cluster intact, after the tests that do not
	ctx, c := threeNodes.get(t, ordinary)
	ns := namespace(ctx, t, c, "e2e-faulted")
	volume := claim(ctx, t, c, ns, "data", "64Mi")
	pod(ctx, t, c, ns, "first", "data", idle)
	sum := writeFile(ctx, t, c, ns, "first", "/data/file", 8)
	deletePod(ctx, t, c, ns, "first")
	waitVolume(ctx, t, c, volume, ".status.state", "detached")
	replicas := replicasOf(ctx, t, c, volume)
	for _, r := range replicas {
		moveAside(ctx, t, c, r)
	}

	startPod(ctx, t, c, ns, "second", "data", idle)
	waitVolume(ctx, t, c, volume, ".status.conditions[?(@.type==\"Faulted\")].status", "True")
	waitVolume(ctx, t, c, volume, ".status.robustness", "faulted")
	cluster.Eventually(ctx, t, 30*time.Second, "the condition names all that is missing", func(ctx context.Context) error {
		message, err := c.Kubectl(ctx, "-n", types.Namespace, "get", "volumes.longhorn.io", volume, "-o", "jsonpath={.status.conditions[?(@.type==\"Faulted\")].message}")
		for _, r := range replicas {
			if err == nil && (!strings.Contains(message, r.Name) || !strings.Contains(message, r.Spec.NodeID)) {
				err = fmt.Errorf("%s on %s is not in %q", r.Name, r.Spec.NodeID, message)
			}
		}
		return err
	})
	assert.Len(t, replicasOf(ctx, t, c, volume), len(replicas))
	for _, r := range replicas {
		putBack(ctx, t, c, r)
	}
	c.Must(ctx, t, "-n", ns, "wait", "--for=condition=Ready", "pod/second", "--timeout=180s")
	assert.Equal(t, sum, sumInPod(ctx, t, c, ns, "second", "/data/file"))
	waitHealthy(ctx, t, c, volume, 2*time.Minute)
	deletePod(ctx, t, c, ns, "second")
	waitVolume(ctx, t, c, volume, ".status.state", "detached")
	// On a busy machine the volume may start before all replicas are back. A replica that is missing at that moment is
	// replaced.
	checkSums(ctx, t, c, theVolume(ctx, t, c, volume), replicasOf(ctx, t, c, volume))
}

func asideOf(r longhorn.Replica) (dir, aside string) {
	return types.ReplicaDataPath(r.Spec.DiskPath, r.Spec.DataDirectoryName), dataDirectory + "/aside-" + r.Name
}

// moveAside moves a replica's directory away. The test's end moves it back at the latest, so that the volume can be
// deleted.
func moveAside(ctx context.Context, t *testing.T, c *cluster.Cluster, r longhorn.Replica) {
	t.Helper()
	dir, aside := asideOf(r)
	c.MustOnNode(ctx, t, r.Spec.NodeID, "mv", dir, aside)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c.MustOnNode(ctx, t, r.Spec.NodeID, "bash", "-c", fmt.Sprintf("[ ! -e %[2]s ] || mv -T %[2]s %[1]s", dir, aside))
	})
}

func putBack(ctx context.Context, t *testing.T, c *cluster.Cluster, r longhorn.Replica) {
	t.Helper()
	dir, aside := asideOf(r)
	out, err := c.OnNode(ctx, r.Spec.NodeID, "ls", "-d", dir)
	require.Error(t, err, "something was made in place of a missing replica: %s", out)
	c.MustOnNode(ctx, t, r.Spec.NodeID, "mv", "-T", aside, dir)
}
