package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// The fields that Longhorn's clients expect, whether or not this system has the feature.
const (
	volumeFields = `id name type links actions size frontend disableFrontend dataLocality accessMode migratable encrypted standby
		staleReplicaTimeout state robustness created image currentImage numberOfReplicas replicaAutoBalance replicaSoftAntiAffinity
		replicaZoneSoftAntiAffinity replicaDiskSoftAntiAffinity diskSelector nodeSelector topologyRequirement snapshotDataIntegrity
		snapshotMaxCount snapshotMaxSize unmapMarkSnapChainRemoved revisionCounterDisabled dataEngine dataLayout fromBackup dataSource
		cloneMode restoreVolumeRecurringJob restoreRequired restoreInitiated backingImage backupCompressionMethod backupBlockSize
		backupTargetName freezeFilesystemForSnapshot offlineRebuilding replicaRebuildingBandwidthLimit rebuildConcurrentSyncLimit
		recurringJobSelector lastAttachedBy lastBackup lastBackupAt kubernetesStatus conditions cloneStatus ready notReadyMessage
		shareEndpoint shareState replicas controllers rebuildStatus purgeStatus restoreStatus backupStatus volumeAttachment`
	replicaFields = `name hostId address running image currentImage instanceManagerName diskID diskPath dataPath mode failedAt dataEngine`
	engineFields  = `name hostId address running image currentImage instanceManagerName size actualSize endpoint lastRestoredBackup
		requestedBackupRestore isExpanding lastExpansionError lastExpansionFailedAt unmapMarkSnapChainRemovedEnabled`
	nodeFields = `id name type links actions address allowScheduling evictionRequested tags region zone conditions disks
		instanceManagerCPURequest autoEvicting`
	diskFields = `path diskType diskDriver allowScheduling evictionRequested storageReserved tags conditions storageAvailable
		storageScheduled storageMaximum scheduledReplica scheduledBackingImage diskUUID healthData healthDataLastCollectedAt`
)

// wantFields fails the test for each field that an object lacks, or that is null.
func wantFields(t *testing.T, what, fields string, object map[string]any) {
	t.Helper()
	for _, field := range strings.Fields(fields) {
		value, ok := object[field]
		assert.True(t, ok && value != nil, "%s.%s is %v", what, field, value)
	}
}

func TestResourcesHaveTheFieldsOfLonghorn(t *testing.T) {
	b := newBench(t, append(threeNodes(), detached("vol"),
		build.Engine("vol", func(e *longhorn.Engine) { e.OwnerReferences = ownedByVol }),
		build.PlacedReplica("vol-r-1", "vol", "node-1", "uuid-1", func(r *longhorn.Replica) { r.OwnerReferences = ownedByVol }))...)
	v := decoded[map[string]any](t, do(t, b.server, "GET", "/v1/volumes/vol", ""))
	wantFields(t, "volume", volumeFields, v)
	for _, r := range v["replicas"].([]any) {
		wantFields(t, "replica", replicaFields, r.(map[string]any))
	}
	require.Len(t, v["controllers"], 1)
	wantFields(t, "controller", engineFields, v["controllers"].([]any)[0].(map[string]any))
	assert.IsType(t, "", v["size"])
	n := decoded[map[string]any](t, do(t, b.server, "GET", "/v1/nodes/node-1", ""))
	wantFields(t, "node", nodeFields, n)
	wantFields(t, "disk", diskFields, n["disks"].(map[string]any)["disk-1"].(map[string]any))
	for _, object := range []map[string]any{v, n} {
		text, err := json.Marshal(object)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "null")
	}
}

func TestUnplacedReplicasAreListed(t *testing.T) {
	b := newBench(t, append(threeNodes(), detached("vol"), build.Volume("new"),
		build.PlacedReplica("vol-r-1", "vol", "node-1", "uuid-1", func(r *longhorn.Replica) { r.OwnerReferences = ownedByVol }))...)
	v := decoded[v1.Volume](t, do(t, b.server, "GET", "/v1/volumes/vol", ""))
	var got []string
	for _, r := range v.Replicas {
		got = append(got, r.Name+" on "+r.HostID)
	}
	assert.Equal(t, []string{"vol-r-1 on node-1", "vol-r-unplaced-1 on ", "vol-r-unplaced-2 on "}, got)
	w := do(t, b.server, "GET", "/v1/volumes/new", "")
	assert.Contains(t, w.Body.String(), `"replicas":[]`, "a volume that the controller has not seen yet")
	w = do(t, b.server, "POST", "/v1/volumes/vol?action=replicaRemove", `{"name":"vol-r-unplaced-1"}`)
	assert.Equal(t, 422, w.Code, w.Body)
}

// TestWhoUsesAVolume: the claim comes from the PersistentVolume, the pods from the node where the volume is attached.
func TestWhoUsesAVolume(t *testing.T) {
	attached := func(mode longhorn.AccessMode) *longhorn.Volume {
		return build.Volume("vol", func(v *longhorn.Volume) {
			v.Spec.AccessMode = mode
			v.Status.State, v.Status.CurrentNodeID = longhorn.VolumeStateAttached, "node-1"
		})
	}
	none := v1.KubernetesStatus{WorkloadsStatus: []v1.WorkloadStatus{}}
	bound := v1.KubernetesStatus{PVName: "pv-1", PVStatus: "Bound", Namespace: "ns", PVCName: "data", WorkloadsStatus: []v1.WorkloadStatus{}}
	withPods := func(pods ...v1.WorkloadStatus) v1.KubernetesStatus {
		status := bound
		status.WorkloadsStatus = pods
		return status
	}
	here := v1.WorkloadStatus{PodName: "web-0", PodStatus: "Running", WorkloadName: "web", WorkloadType: "StatefulSet"}
	there := v1.WorkloadStatus{PodName: "web-1", PodStatus: "Pending"}
	cases := map[string]struct {
		volume *longhorn.Volume
		pv     func(*corev1.PersistentVolume)
		want   v1.KubernetesStatus
	}{
		"no PersistentVolume → nothing":              {attached("rwo"), nil, none},
		"bound and attached → the node's pods":       {attached("rwo"), func(*corev1.PersistentVolume) {}, withPods(here)},
		"shared → the pods of all nodes":             {attached("rwx"), func(*corev1.PersistentVolume) {}, withPods(here, there)},
		"bound and detached → the claim, and no pod": {detached("vol"), func(*corev1.PersistentVolume) {}, bound},
		"not bound → the PersistentVolume alone": {attached("rwo"), func(pv *corev1.PersistentVolume) {
			pv.Spec.ClaimRef, pv.Status.Phase = nil, corev1.VolumeAvailable
		}, v1.KubernetesStatus{PVName: "pv-1", PVStatus: "Available", WorkloadsStatus: []v1.WorkloadStatus{}}},
		"another driver's → nothing": {attached("rwo"), func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "other" }, none},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.volume, claimPod("web-0", "node-1", corev1.PodRunning, "data"), claimPod("other", "node-1", corev1.PodRunning, "else"))
			if c.volume.Spec.AccessMode == longhorn.AccessModeReadWriteMany {
				b.Seed(claimPod("web-1", "node-2", corev1.PodPending, "data"))
			}
			if c.pv != nil {
				pv := boundVolume("pv-1", "vol", "ns", "data")
				c.pv(pv)
				require.NoError(t, b.workloads.Replace([]*corev1.PersistentVolume{pv}))
			}
			assert.Equal(t, c.want, decoded[v1.Volume](t, do(t, b.server, "GET", "/v1/volumes/vol", "")).KubernetesStatus)
			list := decoded[v1.Collection[v1.Volume]](t, do(t, b.server, "GET", "/v1/volumes", ""))
			assert.Equal(t, c.want, list.Data[0].KubernetesStatus)
		})
	}
}

func TestAVolumeIsShownWhereItsPodsCannotBeRead(t *testing.T) {
	b := newBench(t, build.Volume("vol", func(v *longhorn.Volume) { v.Status.State, v.Status.CurrentNodeID = "attached", "node-1" }))
	require.NoError(t, b.workloads.Replace([]*corev1.PersistentVolume{boundVolume("pv-1", "vol", "ns", "data")}))
	b.Fail("list", "pods", errBehindTheScenes)
	v := decoded[v1.Volume](t, do(t, b.server, "GET", "/v1/volumes/vol", ""))
	assert.Equal(t, "data", v.KubernetesStatus.PVCName)
	assert.Empty(t, v.KubernetesStatus.WorkloadsStatus)
}

func TestTheEngineImageIsDeployedEverywhere(t *testing.T) {
	b := newBench(t, append(threeNodes(), detached("vol"), build.InstanceManager("node-1", func(im *longhorn.InstanceManager) {
		im.Name, im.Spec.Image = "a-first", "registry/data-plane:1"
	}))...)
	c := decoded[v1.Collection[v1.EngineImage]](t, do(t, b.server, "GET", "/v1/engineimages", ""))
	require.Len(t, c.Data, 1)
	ei := c.Data[0]
	assert.Equal(t, map[string]bool{"node-1": true, "node-2": true, "node-3": true}, ei.NodeDeploymentMap)
	assert.Equal(t, "deployed", ei.State)
	assert.Equal(t, []v1.Condition{{Type: "ready", Status: "True", Message: "every node has the data plane"}}, ei.Conditions)
	assert.Equal(t, "registry/data-plane:1", ei.Image)
	assert.Equal(t, 1, ei.RefCount)
	assert.Equal(t, ei, decoded[v1.EngineImage](t, do(t, b.server, "GET", strings.TrimPrefix(ei.Links["self"], "http://example.com"), "")))
	v := decoded[v1.Volume](t, do(t, b.server, "GET", "/v1/volumes/vol", ""))
	assert.Equal(t, ei.Image, v.Image)
	assert.Equal(t, ei.Image, v.CurrentImage)
	assert.Equal(t, 404, do(t, b.server, "GET", "/v1/engineimages/nix", "").Code)
}

func TestTagsAreThoseInUse(t *testing.T) {
	b := newBench(t, build.Node("n-1", func(n *longhorn.Node) { n.Spec.Tags = []string{"fast", "big"} }, build.WithDisk("d", "/d", func(d *longhorn.DiskSpec) { d.Tags = []string{"ssd"} })),
		build.Node("n-2", func(n *longhorn.Node) { n.Spec.Tags = []string{"fast"} }))
	for path, want := range map[string][]string{"nodetags": {"big node", "fast node"}, "disktags": {"ssd disk"}} {
		var got []string
		for _, tag := range decoded[v1.Collection[v1.Tag]](t, do(t, b.server, "GET", "/v1/"+path, "")).Data {
			got = append(got, tag.Name+" "+tag.TagType)
			assert.Equal(t, "tag", tag.Type)
			assert.Equal(t, "http://example.com/v1/"+path+"/"+tag.Name, tag.Links["self"])
		}
		assert.Equal(t, want, got, path)
		assert.Equal(t, 404, do(t, b.server, "GET", "/v1/"+path+"/nix", "").Code, path)
	}
	assert.Equal(t, 200, do(t, b.server, "GET", "/v1/disktags/ssd", "").Code)
}

func TestUnsupportedTypesAreEmptyCollections(t *testing.T) {
	b := newBench(t)
	for _, path := range []string{
		"recurringjobs", "backuptargets", "backupvolumes", "backups", "backingimages", "backupbackingimages", "orphans", "systembackups", "systemrestores",
		"supportbundles",
	} {
		w := do(t, b.server, "GET", "/v1/"+path, "")
		assert.Equal(t, 200, w.Code, path)
		assert.Contains(t, w.Body.String(), `"data":[]`, path)
		assert.Equal(t, 404, do(t, b.server, "GET", "/v1/"+path+"/nix", "").Code, path)
		assert.Equal(t, 405, do(t, b.server, "POST", "/v1/"+path, "{}").Code, path)
	}
}

// claimPod returns a pod in namespace "ns" that uses a claim; a StatefulSet controls web-0.
func claimPod(name, node string, phase corev1.PodPhase, claim string) *corev1.Pod {
	pod := build.Pod(name, node)
	pod.Namespace, pod.Status.Phase = "ns", phase
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	if name == "web-0" {
		isController := true
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "web", Controller: &isController}}
	}
	return pod
}

// boundVolume returns a PersistentVolume of a volume, bound to a claim.
func boundVolume(name, volume, namespace, claim string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: types.DriverName, VolumeHandle: volume}},
			ClaimRef:               &corev1.ObjectReference{Namespace: namespace, Name: claim, UID: "uid-claim"},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}
