package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ktypes "k8s.io/apimachinery/pkg/types"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// soon is how long the node controller may take to react to a user's action.
const soon = 5 * time.Second

// customize sets the label and the annotations of the test plan on a Kubernetes node.
func customize(ctx context.Context, t *testing.T, c *cluster.Cluster, node, disks, tags string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"node.longhorn.io/create-default-disk":"config"},"annotations":{`+
		`"node.longhorn.io/default-disks-config":%q,"node.longhorn.io/default-node-tags":%q}}}`, disks, tags)
	_, err := c.Kube.CoreV1().Nodes().Patch(ctx, node, ktypes.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

// wantNode waits until a node has these tags, and disks with these descriptions.
func wantNode(ctx context.Context, t *testing.T, c *cluster.Cluster, node string, timeout time.Duration, tags []string, disks ...string) {
	t.Helper()
	slices.Sort(disks)
	cluster.Eventually(ctx, t, timeout, fmt.Sprintf("node %s has the tags %v and the disks %v", node, tags, disks), func(ctx context.Context) error {
		n, err := longhornNode(ctx, c, node)
		if err != nil {
			return err
		}
		if got := describeDisks(n); !slices.Equal(got, disks) || !slices.Equal(n.Spec.Tags, tags) {
			return fmt.Errorf("it has the tags %v and the disks %v", n.Spec.Tags, got)
		}
		return nil
	})
}

func longhornNode(ctx context.Context, c *cluster.Cluster, node string) (*longhorn.Node, error) {
	return c.Longhorn.LonghornV1beta2().Nodes(types.Namespace).Get(ctx, node, metav1.GetOptions{})
}

// describeDisks returns the fields of disks that the test plan checks: path, allowScheduling, storageReserved, tags.
func describeDisks(n *longhorn.Node) []string {
	disks := []string{}
	for _, d := range n.Spec.Disks {
		disks = append(disks, fmt.Sprintf("%s %t %d %v", d.Path, d.AllowScheduling, d.StorageReserved, d.Tags))
	}
	slices.Sort(disks)
	return disks
}

// thirtyPercent returns the bytes that are reserved on a disk whose configuration does not set this value.
func thirtyPercent(ctx context.Context, t *testing.T, c *cluster.Cluster, node, path string) string {
	t.Helper()
	return c.MustOnNode(ctx, t, node, "bash", "-c", "stat -f -c '%b %S' "+path+" | { read blocks size; echo $((blocks * size * 30 / 100)); }")
}

func waitReadyDisks(ctx context.Context, t *testing.T, c *cluster.Cluster, node string, count int) {
	t.Helper()
	cluster.Eventually(ctx, t, soon, fmt.Sprintf("%d disks of node %s are ready", count, node), func(ctx context.Context) error {
		n, err := longhornNode(ctx, c, node)
		if err != nil {
			return err
		}
		ready := 0
		var why []string
		for name, d := range n.Status.DiskStatus {
			if types.IsConditionTrue(d.Conditions, types.ConditionReady) {
				ready++
			}
			why = append(why, name+": "+types.FindCondition(d.Conditions, types.ConditionReady).Message)
		}
		if ready != count {
			return fmt.Errorf("%d are: %v", ready, why)
		}
		return nil
	})
}

// TestDefaultDisksAndNodeTags is the test plan of the enhancement "Default disks and node configuration", step by step.
// In the published text, steps 7 and 8 lack closing brackets. They are added here.
func TestDefaultDisksAndNodeTags(t *testing.T) {
	ctx, c := threeNodes.get(t, everyday)
	api := restOf(ctx, t, c)
	const first, second = "node-4", "node-5"
	empty := []string{}
	p := struct{ one, two, three string }{"/mnt/e2e-default-1", "/mnt/e2e-default-2", "/mnt/e2e-default-3"}
	var annotations map[string]string
	ok := true
	step := func(name string, f func(t *testing.T)) {
		if ok {
			ok = t.Run(name, func(t *testing.T) { c.DumpIfFailed(t); f(t) })
		}
	}

	step("step 1: Longhorn is deployed", func(t *testing.T) {
		c.Must(ctx, t, "-n", types.Namespace, "rollout", "status", "daemonset/longhorn-manager", "--timeout=60s")
	})
	api.set(ctx, t, settings.CreateDefaultDiskLabeled, "true") // step 2; reset only after the last step
	step("step 2: the setting Create Default Disk on Labeled Nodes is enabled", func(t *testing.T) {
		var s v1.Setting
		api.do(ctx, t, http.MethodGet, "/settings/create-default-disk-labeled-nodes", nil, http.StatusOK, &s)
		assert.Equal(t, "true", s.Value)
	})
	addNode(ctx, t, c, first)
	addNode(ctx, t, c, second)
	step("step 3: new nodes contain no disk and no tag", func(t *testing.T) {
		wantNode(ctx, t, c, first, soon, empty)
		wantNode(ctx, t, c, second, soon, empty)
	})
	one := makeDisk(ctx, t, c, first, "ext4", p.one)
	two := makeDisk(ctx, t, c, first, "xfs", p.two)
	step("step 4: a valid label and annotations → the disks and tags match", func(t *testing.T) {
		one.mount(ctx, t, first)
		two.mount(ctx, t, first)
		customize(ctx, t, c, first, fmt.Sprintf(`[{"path":%q,"allowScheduling":false},`+
			`{"path":%q,"allowScheduling":true,"storageReserved":1024,"tags":["ssd","fast"]}]`, p.one, p.two), `["fast","storage"]`)
		wantNode(ctx, t, c, first, soon, []string{"fast", "storage"},
			p.one+" false "+thirtyPercent(ctx, t, c, first, p.one)+" []", p.two+" true 1024 [fast ssd]")
		waitReadyDisks(ctx, t, c, first, 2)
		annotations = kubeNode(ctx, t, c, first).Annotations
		n, err := longhornNode(ctx, c, first)
		require.NoError(t, err)
		for name := range n.Spec.Disks {
			assert.True(t, strings.HasPrefix(name, "default-disk-"), "a disk is named %q, not default-disk-<fsid>", name)
		}
	})
	step("step 5: the node is modified → the annotations stay, and nothing follows them", func(t *testing.T) {
		disks := api.disks(ctx, t, first)
		for name, d := range disks {
			d.AllowScheduling, d.StorageReserved, d.Tags = false, 4096, []string{"edited"}
			disks[name] = d
		}
		api.setDisks(ctx, t, first, disks)
		api.setTags(ctx, t, first, "edited")
		want := []string{p.one + " false 4096 [edited]", p.two + " false 4096 [edited]"}
		wantNode(ctx, t, c, first, soon, []string{"edited"}, want...)
		// The next syncs of the node controller, whatever causes them, change nothing.
		c.Must(ctx, t, "annotate", "node", first, "e2e.test/touched=yes", "--overwrite")
		c.Must(ctx, t, "annotate", "node", first, "e2e.test/touched-")
		waitReadyDisks(ctx, t, c, first, 2)
		wantNode(ctx, t, c, first, soon, []string{"edited"}, want...)
		now := kubeNode(ctx, t, c, first).Annotations
		for _, key := range []string{"node.longhorn.io/default-disks-config", "node.longhorn.io/default-node-tags"} {
			assert.Equal(t, annotations[key], now[key], "annotation %s", key)
		}
	})
	step("step 6: all tags and disks are deleted → they are back at once, and match the annotations", func(t *testing.T) {
		uuids := uuidsOf(ctx, t, c, first)
		api.setDisks(ctx, t, first, map[string]v1.DiskUpdate{})
		api.setTags(ctx, t, first)
		wantNode(ctx, t, c, first, soon, []string{"fast", "storage"},
			p.one+" false "+thirtyPercent(ctx, t, c, first, p.one)+" []", p.two+" true 1024 [fast ssd]")
		waitReadyDisks(ctx, t, c, first, 2)
		assert.Equal(t, uuids, uuidsOf(ctx, t, c, first))
	})
	step("step 7: an invalid label and annotations → no tag, no disk, and users are told", func(t *testing.T) {
		from := time.Now()
		customize(ctx, t, c, second, `[{"path":"/mnt/e2e-not-there","allowScheduling":false}]`, `["slow",".*invalid-tag"]`)
		wantTold(ctx, t, c, second, types.ConditionDefaultDisksConfig, "/mnt/e2e-not-there")
		wantTold(ctx, t, c, second, types.ConditionDefaultNodeTags, ".*invalid-tag")
		t.Logf("told after %s", time.Since(from).Round(100*time.Millisecond))
		wantNode(ctx, t, c, second, soon, empty)
	})
	three := makeDisk(ctx, t, c, second, "ext4", p.three)
	step("step 8: the annotations are corrected → the tags and disks match", func(t *testing.T) {
		three.mount(ctx, t, second)
		customize(ctx, t, c, second, fmt.Sprintf(`[{"path":%q,"allowScheduling":false}]`, p.three), `["slow","storage"]`)
		wantNode(ctx, t, c, second, soon, []string{"slow", "storage"}, p.three+" false "+thirtyPercent(ctx, t, c, second, p.three)+" []")
		waitReadyDisks(ctx, t, c, second, 1)
		cluster.Eventually(ctx, t, soon, "nothing is said to be wrong any more", func(ctx context.Context) error {
			n, err := longhornNode(ctx, c, second)
			for _, kind := range []string{types.ConditionDefaultDisksConfig, types.ConditionDefaultNodeTags} {
				if err == nil && types.FindCondition(n.Status.Conditions, kind).Status == longhorn.ConditionFalse {
					err = fmt.Errorf("condition %s is False", kind)
				}
			}
			return err
		})
	})
}

// wantTold waits until a wrong annotation appears in a condition of the Longhorn node, and in a Warning Event of the
// Longhorn node and of the Kubernetes node. It checks that each Event appears once.
func wantTold(ctx context.Context, t *testing.T, c *cluster.Cluster, node, condition, part string) {
	t.Helper()
	cluster.Eventually(ctx, t, soon, "condition "+condition+" and Events tell of "+part, func(ctx context.Context) error {
		n, err := longhornNode(ctx, c, node)
		if err != nil {
			return err
		}
		found := types.FindCondition(n.Status.Conditions, condition)
		if found.Status != longhorn.ConditionFalse || !strings.Contains(found.Message, part) {
			return fmt.Errorf("the condition is %q: %q", found.Status, found.Message)
		}
		for namespace, kind := range map[string]string{types.Namespace: "longhorn.io/v1beta2", "default": "v1"} {
			events, err := c.Kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,type=Warning,involvedObject.name=" + node})
			if err != nil {
				return err
			}
			told := int32(0)
			for _, e := range events.Items {
				if e.InvolvedObject.APIVersion == kind && strings.Contains(e.Message, part) {
					told += max(e.Count, 1)
				}
			}
			if told != 1 {
				return fmt.Errorf("%d Events of the node of %s tell of it", told, kind)
			}
		}
		return nil
	})
}

func kubeNode(ctx context.Context, t *testing.T, c *cluster.Cluster, node string) *corev1.Node {
	t.Helper()
	n, err := c.Kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	require.NoError(t, err)
	return n
}

// uuidsOf returns the UUID of each of a node's disks, by path.
func uuidsOf(ctx context.Context, t *testing.T, c *cluster.Cluster, node string) map[string]string {
	t.Helper()
	n, err := longhornNode(ctx, c, node)
	require.NoError(t, err)
	uuids := map[string]string{}
	for _, d := range n.Status.DiskStatus {
		uuids[d.DiskPath] = d.DiskUUID
	}
	return uuids
}
