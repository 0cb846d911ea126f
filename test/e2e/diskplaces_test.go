package e2e

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// classOn creates a StorageClass whose volumes use disks with a tag. It is deleted when the test ends.
func classOn(ctx context.Context, t *testing.T, c *cluster.Cluster, tag string, replicas int) {
	t.Helper()
	class(ctx, t, c, tag, fmt.Sprintf(`{numberOfReplicas: "%d", diskSelector: %s}`, replicas, tag))
}

// addTagged mounts a new disk on a node and adds it to the node.
func addTagged(ctx context.Context, t *testing.T, c *cluster.Cluster, api restAPI, node, fsType, tag string) *loopDisk {
	t.Helper()
	d := makeDisk(ctx, t, c, node, fsType, "/mnt/"+tag+"-"+node)
	d.mount(ctx, t, node)
	api.addDisk(ctx, t, node, tag, v1.DiskUpdate{Path: d.path, AllowScheduling: true, Tags: []string{tag}})
	t.Cleanup(func() { api.removeEmptiedDisk(ctx, t, node, tag) })
	waitDisk(ctx, t, c, node, tag, longhorn.ConditionTrue, "")
	return d
}

// waitDisk waits until a disk is ready, or until it is not ready and gives a certain reason.
func waitDisk(ctx context.Context, t *testing.T, c *cluster.Cluster, node, disk string, want longhorn.ConditionStatus, part string) {
	t.Helper()
	// A node requests its claim of a disk again at each scan.
	cluster.Eventually(ctx, t, 45*time.Second, fmt.Sprintf("disk %s of node %s: Ready is %s: %s", disk, node, want, part), func(ctx context.Context) error {
		n, err := longhornNode(ctx, c, node)
		if err != nil {
			return err
		}
		ready := types.FindCondition(n.Status.DiskStatus[disk].Conditions, types.ConditionReady)
		if ready.Status != want || !strings.Contains(ready.Message, part) {
			return fmt.Errorf("it is %s: %s: %s", ready.Status, ready.Reason, ready.Message)
		}
		return nil
	})
}

// TestDiskMovesToAnotherNode: a disk is unmounted, removed from one node, and added to another node at another path.
// The volume's only replica is found there, with its file. A byte-for-byte clone of the disk is refused while the
// original is in use.
func TestDiskMovesToAnotherNode(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	api := restOf(ctx, t, c)
	const tag, from, to = "e2e-move", "node-2", "node-3"
	classOn(ctx, t, c, tag, 1)
	d := addTagged(ctx, t, c, api, from, "ext4", tag)
	ns := namespace(ctx, t, c, "e2e-move")
	volume := claimOf(ctx, t, c, ns, "data", "64Mi", tag)
	pod(ctx, t, c, ns, "first", "data", idle)
	sum := writeFile(ctx, t, c, ns, "first", "/data/file", 8)

	clone := &loopDisk{c: c, path: "/mnt/e2e-clone"}
	clone.device = c.MustOnNode(ctx, t, to, "bash", "-c", fmt.Sprintf(
		"mkdir -p %[1]s && dd if=%[2]s of=%[1]s/clone.img bs=1M conv=sparse status=none && losetup --find --show %[1]s/clone.img", imagesDirectory, d.device))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		clone.onNode(ctx, to, "umount -l %[1]s; losetup -d %[2]s; rm -f "+imagesDirectory+"/clone.img")
	})
	clone.mount(ctx, t, to)
	api.addDisk(ctx, t, to, "clone", v1.DiskUpdate{Path: clone.path, AllowScheduling: true})
	waitDisk(ctx, t, c, to, "clone", longhorn.ConditionFalse, "duplicate UUID")
	waitDisk(ctx, t, c, from, tag, longhorn.ConditionTrue, "")
	api.removeDisk(ctx, t, to, "clone")
	clone.unmount(ctx, t, to)

	deletePod(ctx, t, c, ns, "first")
	waitVolume(ctx, t, c, volume, ".status.state", "detached")
	d.unmount(ctx, t, from)
	waitDisk(ctx, t, c, from, tag, longhorn.ConditionFalse, d.path)
	api.removeDisk(ctx, t, from, tag)
	moved := &loopDisk{c: c, device: d.device, path: "/mnt/e2e-moved"}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		moved.onNode(ctx, to, "umount -l %[1]s")
	})
	moved.mount(ctx, t, to)
	api.addDisk(ctx, t, to, "arrived", v1.DiskUpdate{Path: moved.path, AllowScheduling: true, Tags: []string{tag}})
	t.Cleanup(func() { api.removeEmptiedDisk(ctx, t, to, "arrived") })
	waitDisk(ctx, t, c, to, "arrived", longhorn.ConditionTrue, "")
	cluster.Eventually(ctx, t, 30*time.Second, "the replica is on "+to, func(ctx context.Context) error {
		for _, r := range replicasOf(ctx, t, c, volume) {
			if r.Spec.NodeID != to || r.Spec.DiskPath != moved.path {
				return fmt.Errorf("%s is on %s in %s", r.Name, r.Spec.NodeID, r.Spec.DiskPath)
			}
		}
		return nil
	})
	pod(ctx, t, c, ns, "second", "data", idle)
	assert.Equal(t, sum, sumInPod(ctx, t, c, ns, "second", "/data/file"))
	deletePod(ctx, t, c, ns, "second")
	c.Must(ctx, t, "-n", ns, "delete", "pvc", "data", "--timeout=60s")
	waitVolumeGone(ctx, t, c, volume)
}

// TestNodeIsDeleted: a node with a replica is turned off and deleted from Kubernetes. Its Longhorn node is deleted too,
// a condition shows that the replica is lost, and the volume keeps serving. A new node of the same name, with an empty
// disk, needs no manual step.
func TestNodeIsDeleted(t *testing.T) {
	ctx, c := threeNodes.get(t, disruptive)
	api := restOf(ctx, t, c)
	const node = "node-6"
	addNode(ctx, t, c, node)
	waitReadyDisks(ctx, t, c, node, 1)
	uuids := uuidsOf(ctx, t, c, node)
	for name, d := range api.disks(ctx, t, node) {
		d.Tags = []string{"e2e-gone"}
		api.setDisks(ctx, t, node, map[string]v1.DiskUpdate{name: d})
	}
	for _, other := range []string{"node-1", "node-2"} {
		addTagged(ctx, t, c, api, other, "ext4", "e2e-gone")
	}
	classOn(ctx, t, c, "e2e-gone", 3)
	ns := namespace(ctx, t, c, "e2e-gone")
	volume := claimOf(ctx, t, c, ns, "data", "64Mi", "e2e-gone")
	c.Must(ctx, t, "cordon", node) // the pod must run on another node
	pod(ctx, t, c, ns, "writer", "data", idle)
	c.Must(ctx, t, "uncordon", node)
	sum := writeFile(ctx, t, c, ns, "writer", "/data/file", 8)
	waitVolume(ctx, t, c, volume, ".status.robustness", "healthy")
	lost := replicaOn(ctx, t, c, volume, node)

	_, err := c.Devcluster(ctx, "remove-node", node)
	require.NoError(t, err)
	c.Must(ctx, t, "delete", "node", node, "--ignore-not-found")
	c.Must(ctx, t, "-n", types.Namespace, "wait", "--for=delete", "nodes.longhorn.io/"+node, "--timeout=60s")
	cluster.Eventually(ctx, t, time.Minute, "the replica's loss is told", func(ctx context.Context) error {
		r, err := c.Longhorn.LonghornV1beta2().Replicas(types.Namespace).Get(ctx, lost.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if why := types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation); why.Reason != types.ReasonNodeGone {
			return fmt.Errorf("the replica says %q: %s", why.Reason, why.Message)
		}
		return nil
	})
	waitVolume(ctx, t, c, volume, ".status.robustness", "degraded")
	assert.Equal(t, sum, sumInPod(ctx, t, c, ns, "writer", "/data/file"))

	_, err = c.Devcluster(ctx, "add-node", node)
	require.NoError(t, err)
	c.Must(ctx, t, "-n", types.Namespace, "wait", "--for=create", "nodes.longhorn.io/"+node, "--timeout=120s")
	c.Must(ctx, t, "-n", types.Namespace, "wait", "--for=condition=Ready", "nodes.longhorn.io/"+node, "--timeout=120s")
	waitReadyDisks(ctx, t, c, node, 1)
	now := uuidsOf(ctx, t, c, node)
	for where, uuid := range now {
		assert.NotEmpty(t, uuid, "the new disk at %s", where)
		assert.NotEqual(t, uuids[where], uuid, "the new disk at %s", where)
	}
	for name, d := range api.disks(ctx, t, node) {
		d.Tags = []string{"e2e-gone"}
		api.setDisks(ctx, t, node, map[string]v1.DiskUpdate{name: d})
	}
	waitHealthy(ctx, t, c, volume, 2*time.Minute)
	deletePod(ctx, t, c, ns, "writer")
	waitVolume(ctx, t, c, volume, ".status.state", "detached")
	c.Must(ctx, t, "-n", ns, "delete", "pvc", "data", "--timeout=60s")
	waitVolumeGone(ctx, t, c, volume)
}

// vanishing is a way in which a disk vanishes while it is in use, and the way to bring it back.
type vanishing struct {
	name        string
	script      string
	mayBeBusy   bool // the kernel may refuse, which is safe
	back        string
	alsoLooksAt string // a file system that covers the mount point until the disk is back
}

var vanishings = []vanishing{
	{name: "unmount", script: "umount %[1]s", mayBeBusy: true, back: "mount %[2]s %[1]s"},
	{name: "lazy unmount", script: "umount -l %[1]s", back: "mount %[2]s %[1]s"},
	{name: "over-mount", script: "mount -t tmpfs tmpfs %[1]s", back: "umount %[1]s", alsoLooksAt: "%[1]s"},
	{name: "swap", script: "mount --bind /mnt/e2e-other %[1]s", back: "umount %[1]s", alsoLooksAt: "/mnt/e2e-other"},
	{name: "lazy unmount, and an empty one in its place", script: "umount -l %[1]s; mount -t tmpfs tmpfs %[1]s", back: "umount %[1]s; mount %[2]s %[1]s", alsoLooksAt: "%[1]s"},
}

// TestDisksVanishUnderLiveWrites: the disks of a volume under writes vanish one after the other, in ten ways. Nothing
// is written beneath the mount point, or to a file system that covers it. Each loss is noticed and the volume keeps
// serving. The replica is rebuilt when its disk is back.
func TestDisksVanishUnderLiveWrites(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Minute)
	t.Cleanup(cancel)
	api := restOf(ctx, t, c)
	const tag = "e2e-vanish"
	disks := map[string]*loopDisk{}
	for i, node := range nodes {
		c.MustOnNode(ctx, t, node, "mkdir", "-p", "/mnt/e2e-other")
		disks[node] = addTagged(ctx, t, c, api, node, []string{"ext4", "xfs"}[i%2], tag)
	}
	classOn(ctx, t, c, tag, 3)
	ns := namespace(ctx, t, c, "e2e-vanish")
	w := startWriterOn(ctx, t, c, ns, writing, tag)
	for run := range 10 {
		way, node := vanishings[run%len(vanishings)], nodes[run%len(nodes)]
		ok := t.Run(fmt.Sprintf("run %d: %s on %s", run+1, way.name, node), func(t *testing.T) {
			c.DumpIfFailed(t)
			w.vanish(ctx, t, disks[node], node, way)
		})
		if !ok {
			return
		}
	}
	w.finish(ctx, t)
	c.Must(ctx, t, "-n", ns, "delete", "deployment", "writer", "--timeout=60s")
	c.Must(ctx, t, "-n", ns, "delete", "pvc", "data", "--timeout=60s")
	waitVolumeGone(ctx, t, c, w.volume)
}

func (w *writer) vanish(ctx context.Context, t *testing.T, d *loopDisk, node string, way vanishing) {
	t.Helper()
	replica := replicaOn(ctx, t, w.c, w.volume, node)
	beneath := w.beneath(ctx, t, d, node)
	other := w.c.MustOnNode(ctx, t, node, "ls", "-laR", "/mnt/e2e-other")
	_, err := d.onNode(ctx, node, way.script)
	gone := time.Now()
	if err != nil && way.mayBeBusy {
		t.Logf("the kernel refused: %v", err)
		w.waitAcked(ctx, t, gone, 30*time.Second)
		return
	}
	require.NoError(t, err)
	cluster.Eventually(ctx, t, soon, "the replica's loss is told, with the path", func(ctx context.Context) error {
		r, err := w.c.Longhorn.LonghornV1beta2().Replicas(types.Namespace).Get(ctx, replica.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		why := types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation)
		if r.Status.CurrentState != longhorn.InstanceStateError || !strings.Contains(why.Message, d.path) {
			return fmt.Errorf("the replica is %s: %s: %s", r.Status.CurrentState, why.Reason, why.Message)
		}
		return nil
	})
	t.Logf("noticed after %s", time.Since(gone).Round(10*time.Millisecond))
	waitDisk(ctx, t, w.c, node, "e2e-vanish", longhorn.ConditionFalse, d.path)
	w.waitAcked(ctx, t, time.Now(), 30*time.Second)
	assert.Equal(t, beneath, w.beneath(ctx, t, d, node), "beneath the mount point is now")
	assert.Equal(t, other, w.c.MustOnNode(ctx, t, node, "ls", "-laR", "/mnt/e2e-other"), "the other directory is now")
	if way.alsoLooksAt != "" {
		assert.Empty(t, d.mustOnNode(ctx, t, node, "ls -A "+way.alsoLooksAt))
	}
	d.mustOnNode(ctx, t, node, way.back)
	back := time.Now()
	waitDisk(ctx, t, w.c, node, "e2e-vanish", longhorn.ConditionTrue, "")
	w.waitHealthy(ctx, t, 7*time.Minute) // a replica that fails repeatedly waits before each rebuild
	t.Logf("healthy %s after the disk was back", time.Since(back).Round(time.Second))
}

// beneath lists the files at a disk's mount point in the file system that contains the mount point, with the space that
// they use. To see them, it binds the parent to another place, without the mounts below it.
func (w *writer) beneath(ctx context.Context, t *testing.T, d *loopDisk, node string) string {
	t.Helper()
	out, err := d.onNode(ctx, node, "mkdir -p /run/e2e-beneath && mount --bind "+path.Dir(d.path)+" /run/e2e-beneath && "+
		"find /run/e2e-beneath/"+path.Base(d.path)+" -printf '%%y %%p %%s %%b\\n' | sort; umount /run/e2e-beneath")
	if err == nil && out == "" {
		err = errors.New("nothing is listed")
	}
	require.NoError(t, err)
	return out
}
