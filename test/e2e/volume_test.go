package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/api/client"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestVolumeIsOnThreeNodes: a pod writes. The volume is attached and healthy with three members on three nodes. After
// detaching, each replica holds the same bytes.
func TestVolumeIsOnThreeNodes(t *testing.T) {
	ctx, c := threeNodes.get(t, everyday)
	ns := namespace(ctx, t, c, "e2e-volume")
	volume := claim(ctx, t, c, ns, "data", "256Mi")
	pod(ctx, t, c, ns, "writer", "data", idle)
	writeFile(ctx, t, c, ns, "writer", "/data/file", 64)

	waitVolume(ctx, t, c, volume, ".status.state", "attached")
	waitVolume(ctx, t, c, volume, ".status.robustness", "healthy")
	v := theVolume(ctx, t, c, volume)
	node := nodeOf(ctx, t, c, ns, "writer")
	assert.Equal(t, node, v.Status.CurrentNodeID)
	replicas := replicasOf(ctx, t, c, volume)
	checkPlaces(t, replicas)
	checkModes(ctx, t, c, volume, replicas)
	checkInstanceManagers(ctx, t, c)
	checkREST(ctx, t, c, volume)
	cluster.Eventually(ctx, t, 90*time.Second, "the volume's actual size is that of the file at least", func(ctx context.Context) error {
		if size := theVolume(ctx, t, c, volume).Status.ActualSize; size < 64<<20 {
			return fmt.Errorf("it is %d bytes", size)
		}
		return nil
	})

	deletePod(ctx, t, c, ns, "writer")
	waitVolume(ctx, t, c, volume, ".status.state", "detached")
	checkSums(ctx, t, c, v, replicas)
}

func checkPlaces(t *testing.T, replicas []longhorn.Replica) {
	t.Helper()
	var on []string
	for _, r := range replicas {
		on = append(on, r.Spec.NodeID)
		assert.Equal(t, longhorn.InstanceStateRunning, r.Status.CurrentState, "replica %s", r.Name)
	}
	slices.Sort(on)
	assert.Equal(t, nodes, on)
}

func checkModes(ctx context.Context, t *testing.T, c *cluster.Cluster, volume string, replicas []longhorn.Replica) {
	t.Helper()
	e := theEngine(ctx, t, c, volume)
	want := map[string]longhorn.ReplicaMode{}
	for _, r := range replicas {
		want[r.Name] = longhorn.ReplicaModeRW
	}
	assert.Equal(t, fmt.Sprint(want), fmt.Sprint(e.Status.ReplicaModeMap))
	require.NotNil(t, e.Status.Epoch)
	assert.Len(t, e.Status.Epoch.Members, 3)
}

func checkInstanceManagers(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	list, err := c.Longhorn.LonghornV1beta2().InstanceManagers(types.Namespace).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	var on []string
	for _, im := range list.Items {
		if im.Status.CurrentState == longhorn.InstanceManagerStateRunning {
			on = append(on, im.Spec.NodeID)
		}
	}
	slices.Sort(on)
	assert.Equal(t, nodes, on)
}

// checkREST reads the volume from the API through its Service.
func checkREST(ctx context.Context, t *testing.T, c *cluster.Cluster, volume string) {
	t.Helper()
	address, err := c.Devcluster(ctx, "forward", types.Namespace+"/"+types.APIService+":"+fmt.Sprint(types.APIPort))
	require.NoError(t, err)
	api, err := client.New("https://"+address+"/v1", restClient(ctx, t, c))
	require.NoError(t, err)
	got, err := api.Volume(ctx, volume)
	require.NoError(t, err)
	assert.Equal(t, "attached", got.State)
	assert.Equal(t, "healthy", got.Robustness)
	assert.Len(t, got.Replicas, 3)
}

// checkSums reads each replica of a detached volume on its node, through the socket for tools, and compares the
// checksums.
func checkSums(ctx context.Context, t *testing.T, c *cluster.Cluster, v *longhorn.Volume, replicas []longhorn.Replica) {
	t.Helper()
	sums := map[string][]string{}
	for _, r := range replicas {
		uri := "nbd+unix:///ro/" + r.Name + "?socket=" + types.ToolSocket()
		size := c.MustOnNode(ctx, t, r.Spec.NodeID, "nbdinfo", "--size", uri)
		assert.Equal(t, fmt.Sprint(int64(v.Spec.Size)), size, "replica %s has %s bytes", r.Name, size)
		sum := firstWord(t, c.MustOnNode(ctx, t, r.Spec.NodeID, "bash", "-c", "set -o pipefail; nbdcopy '"+uri+"' - | sha256sum"))
		sums[sum] = append(sums[sum], r.Name)
	}
	assert.Len(t, sums, 1, "not by chance: replicas differ")
	t.Logf("sha256 of %d replicas: %v", len(replicas), sums)
}

// TestPodMovesWithItsFile: the pod is deleted and starts on another node, where its file is identical byte for byte.
// Then its claim is deleted, and with it the volume, its replicas and their directories on all nodes, and nothing else.
func TestPodMovesWithItsFile(t *testing.T) {
	ctx, c := threeNodes.get(t, everyday)
	ns := namespace(ctx, t, c, "e2e-move")
	bystander := claim(ctx, t, c, ns, "bystander", "16Mi")
	// Directories are created when a volume is first attached.
	pod(ctx, t, c, ns, "bystander", "bystander", idle)
	deletePod(ctx, t, c, ns, "bystander")
	waitVolume(ctx, t, c, bystander, ".status.state", "detached")
	for _, node := range nodes {
		c.MustOnNode(ctx, t, node, "sh", "-c", "mkdir -p "+dataDirectory+"/replicas/stranger && echo precious >"+dataDirectory+"/replicas/stranger/file")
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, node := range nodes {
			c.MustOnNode(ctx, t, node, "rm", "-r", dataDirectory+"/replicas/stranger")
		}
	})
	before := map[string]string{}
	for _, node := range nodes {
		before[node] = directories(ctx, t, c, node)
	}

	volume := claim(ctx, t, c, ns, "data", "256Mi")
	pod(ctx, t, c, ns, "first", "data", idle)
	sum := writeFile(ctx, t, c, ns, "first", "/data/file", 96)
	from := nodeOf(ctx, t, c, ns, "first")
	c.Must(ctx, t, "cordon", from)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c.Must(ctx, t, "uncordon", from)
	})
	deletePod(ctx, t, c, ns, "first")
	pod(ctx, t, c, ns, "second", "data", idle)
	require.NotEqual(t, from, nodeOf(ctx, t, c, ns, "second"), "the pod came up on %s again", from)
	assert.Equal(t, sum, sumInPod(ctx, t, c, ns, "second", "/data/file"))

	deletePod(ctx, t, c, ns, "second")
	c.Must(ctx, t, "-n", ns, "delete", "pvc", "data", "--timeout=60s")
	waitVolumeGone(ctx, t, c, volume)
	for _, node := range nodes {
		assert.Equal(t, before[node], directories(ctx, t, c, node), "%s: files differ from before the claim was made", node)
		assert.Equal(t, "precious", c.MustOnNode(ctx, t, node, "cat", dataDirectory+"/replicas/stranger/file"), node)
	}
	left := replicasOf(ctx, t, c, bystander)
	assert.Len(t, left, 3, "the other volume has %d replicas", len(left))
}

// waitVolumeGone waits until no object of a volume is left.
func waitVolumeGone(ctx context.Context, t *testing.T, c *cluster.Cluster, volume string) {
	t.Helper()
	cluster.Eventually(ctx, t, 2*time.Minute, "nothing of volume "+volume+" is left", func(ctx context.Context) error {
		left, err := c.Kubectl(ctx, "-n", types.Namespace, "get",
			"volumes.longhorn.io,engines.longhorn.io,replicas.longhorn.io,volumeattachments.longhorn.io,secrets", "-o", "name")
		if err != nil {
			return err
		}
		var ours []string
		for line := range strings.Lines(left) {
			if strings.Contains(line, "/"+volume) {
				ours = append(ours, strings.TrimSpace(line))
			}
		}
		if len(ours) > 0 {
			return fmt.Errorf("there are %v", ours)
		}
		pv, err := c.Kubectl(ctx, "get", "pv", volume, "--ignore-not-found", "-o", "name")
		if err == nil && pv != "" {
			err = fmt.Errorf("there is %s", pv)
		}
		return err
	})
}

func theVolume(ctx context.Context, t *testing.T, c *cluster.Cluster, name string) *longhorn.Volume {
	t.Helper()
	v, err := c.Longhorn.LonghornV1beta2().Volumes(types.Namespace).Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	return v
}

func theEngine(ctx context.Context, t *testing.T, c *cluster.Cluster, volume string) *longhorn.Engine {
	t.Helper()
	e, err := c.Longhorn.LonghornV1beta2().Engines(types.Namespace).Get(ctx, types.EngineName(volume), metav1.GetOptions{})
	require.NoError(t, err)
	return e
}

func replicasOf(ctx context.Context, t *testing.T, c *cluster.Cluster, volume string) []longhorn.Replica {
	t.Helper()
	list, err := c.Longhorn.LonghornV1beta2().Replicas(types.Namespace).List(ctx, metav1.ListOptions{LabelSelector: types.LabelVolume + "=" + volume})
	require.NoError(t, err)
	return list.Items
}
