package api

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// change carries out a change that a controller would make. The bench has no controllers, so the tests in this file do
// their work.
func change[T interface{ runtime.Object }](t *testing.T, b *bench, read func() (T, error), f func(T)) {
	t.Helper()
	o, err := read()
	require.NoError(t, err)
	f(o)
	b.Overwrite(o)
	b.CatchUp()
}

func (b *bench) changeVolume(t *testing.T, name string, f func(*longhorn.Volume)) {
	t.Helper()
	change(t, b, func() (*longhorn.Volume, error) {
		return b.Longhorn.LonghornV1beta2().Volumes(types.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	}, f)
}

func (b *bench) changeNode(t *testing.T, name string, f func(*longhorn.Node)) {
	t.Helper()
	change(t, b, func() (*longhorn.Node, error) {
		return b.Longhorn.LonghornV1beta2().Nodes(types.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	}, f)
}

const longhornURL = "http://longhorn.example:9500/v1"

// TestTheLifeOfAShare: a volume that many pods use, from its creation to its deletion, with the help of the schemas
// only.
func TestTheLifeOfAShare(t *testing.T) {
	b := inWorld(t, func() []runtime.Object { return append(threeNodes(), daemonOf("node-2", "192.0.2.2")) })
	c := newDriven(t, b.server, longhornURL)

	v := c.create("volume", object{"name": "shared", "size": "1073741824", "accessMode": "rwx", "numberOfReplicas": 2})
	assert.Equal(t, "rwx", v.text("accessMode"))
	assert.Equal(t, []any{"", ""}, []any{v.text("shareState"), v.text("shareEndpoint")})
	b.isPlaced(t, "shared")
	b.CatchUp()
	assert.Empty(t, c.list("shareManager"), "nobody uses it yet")

	v = c.do(c.byID("volume", "shared"), "pvCreate", object{})
	pv, err := b.Kube.CoreV1().PersistentVolumes().Get(t.Context(), "shared", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, pv.Spec.AccessModes)
	pv.Status.Phase = corev1.VolumeAvailable
	b.Overwrite(pv)
	require.NoError(t, b.workloads.Replace([]*corev1.PersistentVolume{pv}))
	v = c.do(v, "pvcCreate", object{"namespace": "default", "pvcName": "data"})
	claim, err := b.Kube.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "data", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, claim.Spec.AccessModes)

	// Pods on two nodes use it: there are two tickets. A volume that is not shared would get one.
	for _, node := range []string{"node-1", "node-3"} {
		v = c.do(v, "attach", object{"hostId": node, "attachmentID": "csi-" + node, "attacherType": "csi-attacher"})
		b.CatchUp()
	}
	assert.Len(t, v.at("volumeAttachment")["attachments"], 2)
	b.changeVolume(t, "shared", func(v *longhorn.Volume) {
		v.Spec.NodeID, v.Status.CurrentNodeID = "node-2", "node-2"
		v.Status.State, v.Status.Robustness = longhorn.VolumeStateAttached, longhorn.VolumeRobustnessHealthy
		v.Status.ShareState, v.Status.ShareEndpoint = longhorn.ShareManagerStateRunning, "nfs://10.0.0.9/shared"
	})
	b.Seed(&longhorn.ShareManager{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: "shared"},
		Status: longhorn.ShareManagerStatus{
			State: longhorn.ShareManagerStateRunning, Endpoint: "nfs://10.0.0.9/shared", CurrentNode: "node-2",
		},
	})
	b.CatchUp()

	shares := c.list("shareManager")
	require.Len(t, shares, 1)
	assert.Equal(t, "running nfs://10.0.0.9/shared node-2", shares[0].text("state")+" "+shares[0].text("endpoint")+" "+shares[0].text("nodeID"))
	v, _ = c.send("GET", shares[0].at("links").text("volume"), nil, 200)
	assert.Equal(t, "running nfs://10.0.0.9/shared", v.text("shareState")+" "+v.text("shareEndpoint"))
	assert.Equal(t, true, v["ready"])

	refused, _ := c.send("POST", v.at("actions").text("updateAccessMode"), object{"accessMode": "rwo"}, 409)
	assert.Contains(t, refused.text("message"), "detached", "not while pods use it")
	v = c.do(v, "trimFilesystem", object{})
	for action, input := range map[string]object{
		"updateReplicaCount": {"replicaCount": 3}, "updateReplicaAutoBalance": {"replicaAutoBalance": "best-effort"},
		"updateDataLocality": {"dataLocality": "disabled"},
	} {
		v = c.do(v, action, input)
	}
	b.CatchUp()
	assert.InDelta(t, 3, c.byID("volume", "shared")["numberOfReplicas"], 0)

	for _, node := range []string{"node-1", "node-3"} {
		v = c.do(v, "detach", object{"attachmentID": "csi-" + node})
		b.CatchUp()
	}
	assert.Empty(t, v.at("volumeAttachment")["attachments"])
	b.changeVolume(t, "shared", func(v *longhorn.Volume) {
		v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.State = "", "", longhorn.VolumeStateDetached
		v.Status.Robustness, v.Status.ShareState, v.Status.ShareEndpoint = longhorn.VolumeRobustnessUnknown, longhorn.ShareManagerStateStopped, ""
	})
	v = c.byID("volume", "shared")
	assert.Equal(t, "stopped", v.text("shareState"))
	assert.Empty(t, v.at("actions").text("trimFilesystem"), "a file system that is not mounted cannot be trimmed")
	v = c.do(v, "updateAccessMode", object{"accessMode": "rwo"})
	assert.Equal(t, "rwo", v.text("accessMode"))
	c.remove(v)
}

// TestTheLifeOfADisk: a disk is added, tagged, filled, emptied and removed, with the help of the schemas only.
func TestTheLifeOfADisk(t *testing.T) {
	b := newBench(t, threeNodes()...)
	c := newDriven(t, b.server, longhornURL)
	const gib = int64(build.GiB)
	update := func(changes object) object { // of disk "more"; like clients, it sends all disks back
		t.Helper()
		n := c.byID("node", "node-1")
		disks := n.at("disks")
		more := object{"path": "/mnt/more", "allowScheduling": true, "storageReserved": 0, "tags": []string{}}
		if has := disks.at("more"); has != nil {
			more = has
		}
		for k, v := range changes {
			more[k] = v
		}
		disks["more"] = map[string]any(more)
		n = c.do(n, "diskUpdate", object{"disks": disks})
		b.CatchUp()
		return n.at("disks").at("more")
	}

	d := update(object{"storageReserved": 7, "tags": []string{"ssd"}})
	assert.Equal(t, []any{"/mnt/more", true, []any{"ssd"}}, []any{d["path"], d["allowScheduling"], d["tags"]})
	assert.Empty(t, d["conditions"], "the node has not looked at it yet")
	b.changeNode(t, "node-1", func(n *longhorn.Node) {
		n.Status.DiskStatus["more"] = longhorn.DiskStatus{
			DiskUUID: "uuid-more", StorageMaximum: 100 * gib, StorageAvailable: 90 * gib, StorageScheduled: gib,
			ScheduledReplica: map[string]int64{"r-1": gib},
			Conditions: []longhorn.Condition{
				{Type: types.ConditionReady, Status: longhorn.ConditionTrue}, {Type: types.ConditionSchedulable, Status: longhorn.ConditionTrue},
			},
		}
	})
	d = c.byID("node", "node-1").at("disks").at("more")
	assert.Equal(t, "uuid-more", d.text("diskUUID"))
	assert.Equal(t, "True", d.at("conditions").at("Ready").text("status"))
	assert.Equal(t, []any{float64(100 * gib), float64(90 * gib), float64(gib)}, []any{d["storageMaximum"], d["storageAvailable"], d["storageScheduled"]})
	var tags []string
	list, _ := c.send("GET", longhornURL+"/disktags", nil, 200)
	for _, tag := range items(list) {
		tags = append(tags, tag.text("name"))
	}
	assert.Equal(t, []string{"ssd"}, tags)
	v := c.create("volume", object{"name": "fast", "size": "1073741824", "numberOfReplicas": 1, "diskSelector": []string{"ssd"}})
	assert.Equal(t, []any{"ssd"}, v["diskSelector"])

	leaveOut := func(want int) object {
		n := c.byID("node", "node-1")
		disks := n.at("disks")
		delete(disks, "more")
		answer, _ := c.send("POST", n.at("actions").text("diskUpdate"), object{"disks": disks}, want)
		b.CatchUp()
		return answer
	}
	assert.Contains(t, leaveOut(409).text("message"), "disable the disk first")
	d = update(object{"allowScheduling": false, "evictionRequested": true})
	assert.Equal(t, []any{false, true}, []any{d["allowScheduling"], d["evictionRequested"]})
	assert.Contains(t, leaveOut(409).text("message"), "is ready and holds replicas: it cannot be removed, and its path cannot change")
	b.changeNode(t, "node-1", func(n *longhorn.Node) {
		emptied := n.Status.DiskStatus["more"]
		emptied.StorageScheduled, emptied.ScheduledReplica = 0, nil
		n.Status.DiskStatus["more"] = emptied
	})
	assert.NotContains(t, leaveOut(200).at("disks"), "more")
	list, _ = c.send("GET", longhornURL+"/disktags", nil, 200)
	assert.Empty(t, items(list), "its tag went with it")
}
