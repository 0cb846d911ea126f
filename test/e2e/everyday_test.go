package e2e

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestReplicaFollowsItsPod: a volume with one replica and data locality best-effort is used on one node, then on
// another. Its replica moves there, with the file.
func TestReplicaFollowsItsPod(t *testing.T) {
	ctx, c := threeNodes.get(t, everyday)
	const class = "e2e-follows"
	require.NoError(t, c.Apply(ctx, fmt.Sprintf(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %s}
provisioner: %s
parameters: {numberOfReplicas: "1", dataLocality: best-effort}
`, class, types.DriverName)))
	t.Cleanup(func() { c.Must(context.WithoutCancel(ctx), t, "delete", "storageclass", class) })
	ns := namespace(ctx, t, c, class)
	volume := claimOf(ctx, t, c, ns, "data", "128Mi", class)
	var sum string
	for i, node := range []string{"node-1", "node-3"} {
		name := fmt.Sprintf("user-%d", i)
		startPodOn(ctx, t, c, node, ns, name, "data", idle)
		c.Must(ctx, t, "-n", ns, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=180s")
		if i == 0 {
			sum = writeFile(ctx, t, c, ns, name, "/data/file", 32)
		}
		waitOnlyReplica(ctx, t, c, volume, node)
		assert.Equal(t, sum, sumInPod(ctx, t, c, ns, name, "/data/file"))
		deletePod(ctx, t, c, ns, name)
		waitVolume(ctx, t, c, volume, ".status.state", "detached")
	}
}

func waitOnlyReplica(ctx context.Context, t *testing.T, c *cluster.Cluster, volume, node string) {
	t.Helper()
	cluster.Eventually(ctx, t, 2*time.Minute, "the only replica is on "+node, func(ctx context.Context) error {
		if v := theVolume(ctx, t, c, volume); v.Status.Robustness != "healthy" {
			return fmt.Errorf("the volume is %s", v.Status.Robustness)
		}
		replicas := replicasOf(ctx, t, c, volume)
		if len(replicas) != 1 || replicas[0].Spec.NodeID != node {
			return fmt.Errorf("there are %v", placesOf(ctx, t, c, volume))
		}
		return nil
	})
}

// TestPodsShareAVolume: two pods use a shared volume on a node whose kernel has an NFS client. They see each other's
// files and locks. Then the server of the share is killed, and they continue without an error.
func TestPodsShareAVolume(t *testing.T) {
	ctx, c := threeNodes.get(t, everyday)
	const guest, class = "guest-1", "e2e-shared"
	addNode(ctx, t, c, guest, "--kernel", "uml")
	require.NoError(t, c.Apply(ctx, shareClass(class, "ext4")))
	t.Cleanup(func() { c.Must(context.WithoutCancel(ctx), t, "delete", "storageclass", class) })
	labelForShares(ctx, t, c)
	s := &share{c: c, namespace: namespace(ctx, t, c, "e2e-shared")}
	s.volume = s.claim(ctx, t, "shared", class, "128Mi")
	for _, pod := range []string{"one", "two"} {
		startPodOn(ctx, t, c, guest, s.namespace, pod, "shared", appending)
	}
	for _, pod := range []string{"one", "two"} {
		c.Must(ctx, t, "-n", s.namespace, "wait", "--for=condition=Ready", "pod/"+pod, "--timeout=240s")
	}
	s.expectServed(ctx, t)
	s.seeEachOther(ctx, t)
	s.lock(ctx, t)
	s.serverIsKilled(ctx, t)
	s.check(ctx, t)
	for _, pod := range []string{"one", "two"} {
		deletePod(ctx, t, c, s.namespace, pod)
	}
	waitVolume(ctx, t, c, s.volume, ".status.state", "detached")
}

// mayRemoveInstallation says that no test after this one uses the cluster of the everyday tests: only their group runs,
// of which this test is the last one, or this test runs alone.
func mayRemoveInstallation(t *testing.T) bool {
	t.Helper()
	return slices.Equal(wanted, []group{everyday}) || flag.Lookup("test.run").Value.String() == "^"+t.Name()+"$"
}
