package explain

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// claimed binds claim shop/data to volume v by PersistentVolume pv-1, for pod shop/db, which runs on n1.
func (w *world) claimed() (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, *corev1.Pod) {
	class := "longhorn"
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "claim-uid"}}
	c.Spec.StorageClassName, c.Spec.VolumeName, c.Status.Phase = &class, "pv-1", corev1.ClaimBound
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: types.DriverName, VolumeHandle: "v"}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "claim-uid"}
	pv.Status.Phase = corev1.VolumeBound
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "pod-uid"}}
	pod.Spec.NodeName = "n1"
	pod.Spec.Volumes = []corev1.Volume{{Name: "store", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	w.Claims, w.PersistentVolumes, w.UserPods = append(w.Claims, c), append(w.PersistentVolumes, pv), append(w.UserPods, pod)
	return c, pv, pod
}

// waits makes a pod that has a node, but does not start.
func waits(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodPending
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
}

// happens adds a Warning about a pod.
func (w *world) happens(pod *corev1.Pod, reason, message string, age time.Duration) *corev1.Event {
	e := &corev1.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message, LastTimestamp: metav1.NewTime(now.Add(-age))}
	e.InvolvedObject = corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	w.Events = append(w.Events, e)
	return e
}

func (w *world) kubeAttachment(attached bool, attachError, detachError string) {
	pv := "pv-1"
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-1"}, Spec: storagev1.VolumeAttachmentSpec{Attacher: types.DriverName, NodeName: "n1"}}
	a.Spec.Source.PersistentVolumeName, a.Status.Attached = &pv, attached
	if attachError != "" {
		a.Status.AttachError = &storagev1.VolumeError{Message: attachError}
	}
	if detachError != "" {
		a.Status.DetachError = &storagev1.VolumeError{Message: detachError}
	}
	w.KubeAttachments = append(w.KubeAttachments, a)
}

func TestAClaimIsFollowedToItsVolumeAndItsPods(t *testing.T) {
	runFaults(t, []fault{
		{
			name: "the volume does not exist → create it, or correct volumeHandle", ask: "claim shop data",
			change: func(w *world) {
				_, pv, pod := w.claimed()
				pv.Spec.CSI.VolumeHandle = "hermes-data-xfs"
				waits(pod)
			},
			object: "persistent volume pv-1", severity: Broken, reason: "VolumeMissing",
			what: "volume hermes-data-xfs of PersistentVolume pv-1 does not exist; create it, or correct volumeHandle", command: "kubectl get pv pv-1 -o yaml",
		},
		{
			name: "the volume is being deleted → its data goes", ask: "claim shop data",
			change: func(w *world) { w.claimed(); w.v.DeletionTimestamp = &metav1.Time{Time: now} },
			object: "persistent volume pv-1", severity: Broken, reason: "VolumeDeleted", what: "is being deleted, with its data", command: "explain volume v",
		},
		{
			name: "a shared volume with mountOptions of a device → they are ignored", ask: "claim shop data",
			change: func(w *world) {
				_, pv, _ := w.claimed()
				w.v.Spec.AccessMode = longhorn.AccessModeReadWriteMany
				pv.Spec.MountOptions = []string{"discard", "noatime", "data=ordered"}
			},
			object: "persistent volume pv-1", severity: Warning, reason: "MountOptionsIgnored",
			what: "shared volume shop/data (v) is mounted without mountOptions discard, data=ordered of PersistentVolume pv-1", command: "kubectl edit pv pv-1",
		},
		{
			name: "the PersistentVolume is gone → the claim has lost it", ask: "claim shop data",
			change: func(w *world) { w.claimed(); w.PersistentVolumes = nil },
			object: "claim shop/data", severity: Broken, reason: "PersistentVolumeMissing", what: "claim shop/data has lost PersistentVolume pv-1", command: "get lhv",
		},
		{
			name: "the claim names a PersistentVolume that was never made", ask: "claim shop data",
			change: func(w *world) {
				c, _, _ := w.claimed()
				c.Status.Phase, w.PersistentVolumes = corev1.ClaimPending, nil
			},
			object: "claim shop/data", severity: Broken, reason: "PersistentVolumeMissing", what: "names PersistentVolume pv-1, which does not exist", command: "describe pvc data",
		},
		{
			name: "the PersistentVolume belongs to another claim", ask: "claim shop data",
			change: func(w *world) {
				c, pv, _ := w.claimed()
				c.Status.Phase, pv.Spec.ClaimRef.Name = corev1.ClaimPending, "other"
			},
			object: "claim shop/data", severity: Broken, reason: "PersistentVolumeTaken", what: "belongs to claim shop/other", command: "kubectl get pv pv-1",
		},
		{
			name: "the PersistentVolume belonged to an earlier claim of the name", ask: "claim shop data",
			change: func(w *world) { _, pv, _ := w.claimed(); pv.Spec.ClaimRef.UID = "earlier" },
			object: "claim shop/data", severity: Broken, reason: "ClaimLost", what: "an earlier claim of this name", command: "kubectl patch pv pv-1",
		},
		{
			name: "the claim waits for its PersistentVolume → what Kubernetes says", ask: "claim shop data",
			change: func(w *world) {
				c, pv, _ := w.claimed()
				c.Status.Phase, pv.Spec.ClaimRef = corev1.ClaimPending, nil
				e := w.happens(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}, "VolumeMismatch", "volume's size is smaller than requested", 0)
				e.InvolvedObject.Kind = "PersistentVolumeClaim"
			},
			object: "claim shop/data", severity: Warning, reason: "ClaimPending", what: "waits to be bound", why: "smaller than requested", command: "kubectl get pv pv-1",
		},
		{
			name: "the mount fails → the pod, with the newest message about this volume", ask: "claim shop data",
			change: func(w *world) {
				_, _, pod := w.claimed()
				waits(pod)
				w.happens(pod, "FailedMount", `MountVolume.SetUp failed for volume "other" : configmap "x" not found`, 0)
				w.happens(pod, "FailedMount", `MountVolume.MountDevice failed for volume "pv-1" : rpc error: code = Internal desc = an old one`, time.Hour)
				w.happens(pod, "FailedMount", combined+`MountVolume.MountDevice failed for volume "pv-1" : rpc error: code = Internal desc = unknown mount option "casefold"`, time.Minute)
			},
			object: "pod shop/db", severity: Broken, reason: "FailedMount", what: "pod shop/db cannot use claim shop/data on node n1",
			why: `FailedMount: MountVolume.MountDevice failed for volume "pv-1" : unknown mount option "casefold"`, command: "kubectl -n shop describe pod db",
		},
		{
			name: "the kubelet gives the volume's name in the pod", ask: "claim shop data",
			change: func(w *world) {
				_, _, pod := w.claimed()
				waits(pod)
				w.happens(pod, "FailedMount", "Unable to attach or mount volumes: unmounted volumes=[tmp store], unattached volumes=[]: timed out", 0)
			},
			object: "pod shop/db", severity: Broken, reason: "FailedMount", what: "cannot use claim", why: "timed out", command: "describe pod db",
		},
		{
			name: "Kubernetes cannot attach it → its object says so, without any Event", ask: "claim shop data",
			change: func(w *world) {
				_, _, pod := w.claimed()
				waits(pod)
				w.kubeAttachment(false, "rpc error: code = NotFound desc = volume v is gone", "")
			},
			object: "persistent volume pv-1", severity: Broken, reason: "AttachError", what: "cannot be attached to node n1", why: "volume shop/data (v) is gone", command: "csi-1",
		},
		{
			name: "Kubernetes cannot detach it", ask: "claim shop data",
			change: func(w *world) { w.claimed(); w.kubeAttachment(true, "", "its device is in use") },
			object: "persistent volume pv-1", severity: Warning, reason: "DetachError", what: "cannot be detached from node n1", why: "in use", command: "csi-1",
		},
		{
			name: "a pod that has no node yet → what the scheduler says", ask: "claim shop data",
			change: func(w *world) {
				_, _, pod := w.claimed()
				waits(pod)
				pod.Spec.NodeName = ""
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "volume node affinity conflict"}}
			},
			object: "pod shop/db", severity: Warning, reason: "Unschedulable", what: "has no node yet", why: "node affinity conflict", command: "describe pod db",
		},
		{
			name: "the engine's node is down → the engine", ask: "claim shop data",
			change: func(w *world) {
				w.claimed()
				w.nodeSays(1, types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady, "m")
			},
			object: "engine v-e-0", severity: Broken, reason: "EngineNodeDown", what: "is down", command: "explain node n1",
		},
		{
			name: "the node where the volume is used → the node", ask: "claim shop data",
			change: func(w *world) {
				w.claimed()
				w.nodeSays(1, types.ConditionReady, longhorn.ConditionFalse, types.ReasonManagerPodDown, "m")
			},
			object: "node n1", severity: Warning, reason: types.ReasonManagerPodDown, what: "node n1", command: "get pods -l app=longhorn-manager",
		},
		{
			name: "the share does not answer → the share", ask: "claim shop data",
			change: func(w *world) {
				w.claimed()
				w.share(longhorn.ShareManagerStateError, types.ReasonShareNotAnswering, "silent")
			},
			object: "share manager v", severity: Broken, reason: types.ReasonShareNotAnswering, what: "is not shared", why: "silent", command: "logs",
		},
		{
			name: "a ticket waits → the ticket", ask: "claim shop data",
			change: func(w *world) { w.claimed(); w.ticket("n2", types.ReasonAttachedElsewhere, "it is on n1") },
			object: "ticket t", severity: Warning, reason: types.ReasonAttachedElsewhere, what: "cannot be attached to node n2", why: "it is on n1", command: "volumeattachments",
		},
		{
			name: "parameters of the class were ignored → a finding of the claim", ask: "claim shop data",
			change: func(w *world) {
				w.claimed()
				e := w.happens(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}, eventIgnoredParameters, "ignored them: numberOfReplica", time.Minute)
				e.InvolvedObject.Kind = "PersistentVolumeClaim"
			},
			object: "claim shop/data", severity: Warning, reason: eventIgnoredParameters, what: "without some of the parameters", why: "numberOfReplica", command: "kubectl get storageclass longhorn",
		},
		{
			name: "that Event is gone → the class still shows them", ask: "claim shop data",
			change: func(w *world) { w.claimed(); w.Classes[0].Parameters = map[string]string{"snapshotMaxCount": "7"} },
			object: "claim shop/data", severity: Info, reason: eventIgnoredParameters, what: "without some of the parameters", why: `snapshotMaxCount ("7")`, command: "kubectl get storageclass longhorn",
		},
		{
			name: "the claim cannot grow → what Kubernetes says", ask: "claim shop data",
			change: func(w *world) {
				c, _, _ := w.claimed()
				c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue, Message: "no room"}}
			},
			object: "claim shop/data", severity: Warning, reason: "ControllerResizeError", what: "cannot grow", why: "no room", command: "describe pvc data",
		},
		{
			name: "the volume has grown, and a pod uses it → no action", ask: "claim shop data",
			change: func(w *world) {
				c, _, _ := w.claimed()
				c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
					Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue, Message: "Waiting for user to (re-)start a pod",
				}}
			},
			object: "claim shop/data", severity: Info, reason: "FileSystemResizePending", what: "its file system grows soon", command: "describe pvc data",
		},
		{
			name: "the volume has grown, and no pod uses it → start a pod", ask: "claim shop data",
			change: func(w *world) {
				c, _, _ := w.claimed()
				w.detach()
				c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
			},
			object: "claim shop/data", severity: Info, reason: "FileSystemResizePending", what: "its file system grows when a pod mounts it", command: "describe pvc data",
		},
		{
			name: "a pod on another node uses the claim → that node", ask: "claim shop data",
			change: func(w *world) {
				_, _, pod := w.claimed()
				waits(pod)
				pod.Spec.NodeName = "n2"
				w.happens(pod, "FailedAttachVolume", `Multi-Attach error for volume "pv-1" Volume is already used by pod(s) other`, 0)
			},
			object: "pod shop/db", severity: Broken, reason: "FailedAttachVolume", what: "pod shop/db cannot use claim shop/data on node n2", why: "already used by pod(s) other",
			command: "kubectl -n shop describe pvc data",
		},
		{
			name: "the claim is being deleted and used → the pod", ask: "claim shop data",
			change: func(w *world) { c, _, _ := w.claimed(); c.DeletionTimestamp = &metav1.Time{Time: now} },
			object: "claim shop/data", severity: Info, reason: "Deleting", what: "is being deleted", why: "pod db uses it", command: "describe pvc data",
		},
		{
			name: "the PersistentVolume could not be deleted", ask: "claim shop data",
			change: func(w *world) {
				_, pv, _ := w.claimed()
				pv.Status.Phase, pv.Status.Message = corev1.VolumeFailed, "still attached"
			},
			object: "persistent volume pv-1", severity: Warning, reason: "PersistentVolumeFailed", what: "could not be deleted", why: "still attached", command: "describe pv pv-1",
		},
		{
			name: "the PersistentVolume is being deleted under its claim", ask: "claim shop data",
			change: func(w *world) { _, pv, _ := w.claimed(); pv.DeletionTimestamp = &metav1.Time{Time: now} },
			object: "persistent volume pv-1", severity: Warning, reason: "Deleting", what: "waits until its claim is deleted", command: "describe pv pv-1",
		},
	})
}

func TestAClaimWhosePodHasNoNode(t *testing.T) {
	waiting := func(size string) func(w *world) {
		return func(w *world) {
			c, _, pod := w.claimed()
			mode := storagev1.VolumeBindingWaitForFirstConsumer
			w.Classes[0].VolumeBindingMode, w.PersistentVolumes = &mode, nil
			c.Spec.VolumeName, c.Status.Phase = "", corev1.ClaimPending
			c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
			waits(pod)
			pod.Spec.NodeName = ""
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no node has the label"}}
		}
	}
	runFaults(t, []fault{
		{
			name: "the class waits for a pod, and the pod for a node → why", ask: "claim shop data", change: waiting("1Gi"),
			object: "claim shop/data", severity: Warning, reason: "ClaimPending", what: "waits until its pod has a node", why: "no node has the label", command: "describe pvc data",
		},
		{
			name: "no disk has room → the size", ask: "claim shop data", change: waiting("5Ti"),
			object: "claim shop/data", severity: Warning, reason: "ClaimPending", what: "the largest volume that fits is", command: "status",
		},
	})
	w := newWorld()
	_, _, pod := w.claimed()
	waits(pod)
	pod.Spec.NodeName = "stranger"
	found := w.ask(t, "claim shop data")
	if len(found) == 0 || found[0].Reason != "NodeMissing" || found[0].Object.Name != "stranger" {
		t.Errorf("of a pod on a node without the product it says %+v", found)
	}
}

func TestAClaimThatIsUsedIsWell(t *testing.T) {
	w := newWorld()
	_, _, pod := w.claimed()
	w.happens(pod, "FailedMount", `failed for volume "pv-1" : before it ran`, time.Minute)
	w.kubeAttachment(true, "of an earlier attempt", "")
	for _, words := range []string{"claim shop data", "all"} {
		if found := w.ask(t, words); len(found) != 0 {
			t.Errorf("of %s it is said: %+v", words, found)
		}
	}
}

func TestAVolumeIsFollowedToThePodsThatCannotMountIt(t *testing.T) {
	w := newWorld()
	_, _, pod := w.claimed()
	if found := w.ask(t, "volume v"); len(found) != 0 {
		t.Errorf("of one that is used it says %+v", found)
	}
	waits(pod)
	w.happens(pod, "FailedMount", `MountVolume.MountDevice failed for volume "pv-1" : bad option`, 0)
	w.kubeAttachment(false, "no", "")
	w.nodeSays(1, types.ConditionReady, longhorn.ConditionFalse, types.ReasonManagerPodDown, "m")
	var said []string
	for _, f := range w.ask(t, "volume v") {
		said = append(said, f.Object.String()+" "+f.Reason)
	}
	if want := []string{"persistent volume pv-1 AttachError", "pod shop/db FailedMount", "node n1 ManagerPodDown"}; !slices.Equal(said, want) {
		t.Errorf("it says %q, want %q", said, want)
	}
}

func TestOfACauseAndItsConsequencesTheCauseIsFirst(t *testing.T) {
	w := newWorld()
	_, _, pod := w.claimed()
	waits(pod)
	w.happens(pod, "FailedAttachVolume", `AttachVolume.Attach failed for volume "pv-1" : it is on n1`, 0)
	w.lose(3, types.ReasonDiskUnmounted, "m")
	w.ticket("n2", types.ReasonAttachedElsewhere, "it is on n1")
	w.asked("pv-1", "n2")
	w.nodeSays(2, types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady, "m")
	var order []string
	for _, f := range w.ask(t, "claim shop data") {
		order = append(order, f.Object.String()+" "+f.Reason)
	}
	want := []string{"node n2 KubernetesNodeNotReady", "ticket t AttachedElsewhere", "pod shop/db FailedAttachVolume", "volume v Degraded", "replica v-r-3 DiskUnmounted"}
	if !slices.Equal(order, want) {
		t.Errorf("the order is\n%s\nwant\n%s", strings.Join(order, "\n"), strings.Join(want, "\n"))
	}
}

func TestWhatMayNotBeReadIsNotMissing(t *testing.T) {
	for _, tc := range []struct {
		unseen string
		hide   func(w *world)
	}{
		{ResourceVolumes, func(w *world) { w.Volumes = nil }},
		{ResourcePVs, func(w *world) { w.PersistentVolumes = nil }},
		{ResourceUserPods, func(w *world) { w.UserPods = nil }},
		{ResourceNodes, func(w *world) { w.Nodes = nil }},
		{ResourceEngines, func(w *world) { w.Engines = nil }},
		{ResourceReplicas, func(w *world) { w.Replicas = nil }},
		{ResourceInstanceManagers, func(w *world) { w.InstanceManagers = nil }},
		{ResourceClasses, func(w *world) { w.Classes = nil }},
		{ResourceSettings, func(w *world) { w.Settings = nil }},
		{ResourceAttachments, func(w *world) { w.Attachments = nil }},
	} {
		w := newWorld()
		w.claimed()
		w.Unseen = []string{tc.unseen}
		tc.hide(w)
		for _, words := range []string{"claim shop data", "all"} {
			if found := w.ask(t, words); len(found) != 0 {
				t.Errorf("without %s, of %s it is said: %+v", tc.unseen, words, found)
			}
		}
	}
}

// TestNothingIsConcludedFromWhatMayNotBeRead removes kinds from the snapshot of a faulted volume. The remaining
// findings must not advise users to abandon data.
func TestNothingIsConcludedFromWhatMayNotBeRead(t *testing.T) {
	for _, unseen := range []string{ResourceNodes, ResourceEngines, ResourceReplicas} {
		w := newWorld()
		w.detach()
		w.v.Status.Robustness = longhorn.VolumeRobustnessFaulted
		w.volumeSays(types.ConditionFaulted, longhorn.ConditionTrue, types.ReasonReplicaMissing, "m")
		w.volumeSays(types.ConditionScheduled, longhorn.ConditionFalse, types.ReasonReplicaSchedulingFailure, "m")
		w.Unseen = []string{unseen}
		switch unseen {
		case ResourceNodes:
			w.Nodes = nil
		case ResourceEngines:
			w.Engines = nil
		case ResourceReplicas:
			w.Replicas = nil
		}
		for _, f := range w.ask(t, "volume v") {
			text := strings.Join(append([]string{f.What}, f.Why...), "\n")
			for _, step := range f.Next {
				text += "\n" + step.Text + "\n" + step.Command
			}
			for _, wrong := range []string{"does not exist", "do not exist", "no longer exist", "is down", "no data was ever written", "from a backup", "0 nodes", "0 of 3"} {
				if strings.Contains(text, wrong) {
					t.Errorf("without %s it says %q:\n%s", unseen, wrong, text)
				}
			}
		}
	}
}

func TestClaimsOfOthersAreNamedAsSuch(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(w *world, c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume)
		reason string
	}{
		{"bound to a volume of another driver", func(_ *world, _ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			pv.Spec.CSI.Driver = "other.example"
		}, "OtherDriver"},
		{"bound to a volume without a driver", func(_ *world, _ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) { pv.Spec.CSI = nil }, "OtherDriver"},
		{"waits for another provisioner", func(w *world, c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			c.Spec.VolumeName, w.Classes[0].Provisioner = "", "other.example"
		}, "OtherDriver"},
		{"has no class", func(_ *world, c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			c.Spec.VolumeName, c.Spec.StorageClassName = "", nil
		}, "ClaimPending"},
		{"has the empty class", func(_ *world, c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			none := ""
			c.Spec.VolumeName, c.Spec.StorageClassName = "", &none
		}, "ClaimPending"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			c, pv, _ := w.claimed()
			tc.change(w, c, pv)
			found := w.ask(t, "claim shop data")
			if len(found) != 1 || found[0].Reason != tc.reason || found[0].Severity == Broken {
				t.Fatalf("it says %+v", found)
			}
			checkText(t, found[0])
			if found := All(&w.Snapshot); len(found) != 0 {
				t.Errorf("of the whole cluster it says %+v", found)
			}
		})
	}
}

// pendingClaim is a waiting claim of a class, with a size.
func (w *world) pendingClaim(size string) *corev1.PersistentVolumeClaim {
	c, _, _ := w.claimed()
	w.PersistentVolumes, w.UserPods = nil, nil
	c.Spec.VolumeName, c.Status.Phase = "", corev1.ClaimPending
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	return c
}

func TestWhyAClaimWaitsIsNotReadFromEventsAlone(t *testing.T) {
	runFaults(t, []fault{
		{
			name: "it asks for more than there is → the largest volume that fits", ask: "claim shop data",
			change: func(w *world) { w.pendingClaim("5Ti") },
			object: "claim shop/data", severity: Warning, reason: "ClaimPending",
			what: "claim shop/data requests 5 TiB with 3 replicas, and the largest volume that fits is ", command: "kubectl longhorn status",
		},
		{
			name: "two disks are smaller than the third → the largest volume with all replicas, and with fewer", ask: "claim shop data",
			change: func(w *world) {
				w.pendingClaim("5Ti")
				for _, node := range []int{2, 3} {
					w.disk(node, func(_ *longhorn.DiskSpec, s *longhorn.DiskStatus) {
						s.StorageMaximum, s.StorageAvailable = 10*build.GiB, 10*build.GiB
					})
				}
			},
			object: "claim shop/data", severity: Warning, reason: "ClaimPending",
			what: "claim shop/data requests 5 TiB with 3 replicas, and the largest volume that fits is 9 GiB; with fewer replicas, 99 GiB",
			why:  "a volume with fewer replicas is degraded", command: "kubectl longhorn status",
		},
		{
			name: "two nodes for three replicas → the largest volume with fewer replicas", ask: "claim shop data",
			change: func(w *world) {
				w.pendingClaim("5Ti")
				w.Nodes[2].Spec.AllowScheduling = false
			},
			object: "claim shop/data", severity: Warning, reason: "ClaimPending",
			what: "there is no place for so many; the largest volume with fewer replicas is 99 GiB",
			why:  "a volume with fewer replicas is degraded", command: "kubectl longhorn status",
		},
		{
			name: "no disk has the tag → the tag", ask: "claim shop data",
			change: func(w *world) {
				w.pendingClaim("1Gi")
				w.Classes[0].Parameters = map[string]string{"numberOfReplicas": "1", "diskSelector": "fast"}
			},
			object: "claim shop/data", severity: Warning, reason: "ClaimPending", what: "claim shop/data requests disks with the tags [fast], and no disk fits",
			command: `kubectl -n longhorn-system patch lhn n1 --type merge -p '{"spec":{"disks":{"disk-1":{"tags":["fast"]}}}}'`,
		},
		{
			name: "one disk is not ready, and the others lack the tag → each disk", ask: "claim shop data",
			change: func(w *world) {
				w.pendingClaim("1Gi")
				w.Classes[0].Parameters = map[string]string{"numberOfReplicas": "1", "diskSelector": "fast"}
				w.diskSays(3, types.ConditionReady, longhorn.ConditionFalse, "NoDiskInfo", "m")
			},
			object: "claim shop/data", severity: Warning, reason: "ClaimPending", what: "1 GiB with 1 replica, and no volume of StorageClass longhorn fits",
			why: "node n1 disk disk-1: tags not fulfilled", command: "kubectl longhorn status",
		},
		{
			name: "no pod makes volumes → the pods", ask: "claim shop data",
			change: func(w *world) { w.pendingClaim("1Gi") },
			object: "installation " + types.Namespace, severity: Broken, reason: "NoCSIController", what: "no pod that creates and attaches volumes is ready", command: "app=longhorn-csi-controller",
		},
		{
			name: "a parameter is refused → its class must be created again", ask: "claim shop data",
			change: func(w *world) {
				w.pendingClaim("1Gi")
				w.Classes[0].Parameters = map[string]string{"numberOfReplicas": "three"}
				e := w.happens(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}, "ProvisioningFailed",
					`failed to provision volume with StorageClass "longhorn": rpc error: code = InvalidArgument desc = parameter numberOfReplicas: value "three" must be a whole number`, 0)
				e.InvolvedObject.Kind = "PersistentVolumeClaim"
			},
			object: "claim shop/data", severity: Warning, reason: "ClaimPending", what: "waits for its volume: parameter numberOfReplicas of StorageClass longhorn is refused",
			why: `failed to provision volume with StorageClass "longhorn": parameter numberOfReplicas: value "three"`, command: "kubectl get storageclass longhorn -o yaml",
		},
	})
}

func TestARefusedParameterIsSaidBeforeALackOfRoom(t *testing.T) {
	w := newWorld()
	w.pendingClaim("5Ti")
	w.Classes[0].Parameters = map[string]string{"numberOfReplica": "1"}
	e := w.happens(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}, "ProvisioningFailed", "storage class longhorn: parameter numberOfReplica: there is no parameter of this name", 0)
	e.InvolvedObject.Kind = "PersistentVolumeClaim"
	found := w.ask(t, "claim shop data")
	if len(found) != 1 || !strings.Contains(found[0].Why[0], "numberOfReplica: there is no parameter") {
		t.Errorf("it says %+v", found)
	}
}

func TestTheControllerThatRunsIsNotBlamed(t *testing.T) {
	w := newWorld()
	w.pendingClaim("1Gi")
	w.Pods = append(w.Pods, build.Pod("csi", "n1", func(p *corev1.Pod) {
		p.Labels[types.LabelApp] = types.AppCSIController
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}))
	found := w.ask(t, "claim shop data")
	if len(found) != 1 || found[0].Reason != "ClaimPending" {
		t.Errorf("it says %+v", found)
	}
}

func TestTheLatestEventIsFoundWhateverClockItHas(t *testing.T) {
	w := newWorld()
	_, _, pod := w.claimed()
	old := w.happens(pod, "FailedMount", "old", time.Hour)
	series := w.happens(pod, "FailedMount", "series", 2*time.Hour)
	series.Series = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(now.Add(-time.Minute))}
	plain := w.happens(pod, "FailedMount", "new", 0)
	plain.LastTimestamp, plain.EventTime = metav1.Time{}, metav1.NewMicroTime(now.Add(-time.Second))
	earlier := w.happens(pod, "FailedMount", "of an earlier pod", 0)
	earlier.InvolvedObject.UID = "earlier"
	about := old.InvolvedObject
	if last := lastEvent(&w.Snapshot, about, func(*corev1.Event) bool { return true }); last != plain {
		t.Errorf("it takes %+v", last)
	}
	w.Events = w.Events[:2]
	if last := lastEvent(&w.Snapshot, about, func(*corev1.Event) bool { return true }); last != series {
		t.Errorf("of the first two it takes %+v", last)
	}
}

func TestTheNearestWordIsOffered(t *testing.T) {
	for typed, want := range map[string]string{"statsu": "status", "explan": "explain", "doctro": "doctor", "xyz": "", "": "", "frobnicate": ""} {
		if got := Nearest(typed, []string{"status", "explain", "doctor", "support-bundle"}); got != want {
			t.Errorf("for %q it offers %q, want %q", typed, got, want)
		}
	}
}

func TestMountOptionsThatActAreNotReported(t *testing.T) {
	for name, change := range map[string]func(*world, *corev1.PersistentVolume){
		"a volume with a device": func(_ *world, pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"discard"} },
		"options of NFS, shared": func(w *world, pv *corev1.PersistentVolume) {
			w.v.Spec.AccessMode, pv.Spec.MountOptions = longhorn.AccessModeReadWriteMany, []string{"hard", "noatime"}
		},
	} {
		w := newWorld()
		_, pv, _ := w.claimed()
		change(w, pv)
		if ignored := ignoredMountOptions(&w.Snapshot, pv); len(ignored) > 0 {
			t.Errorf("%s: it says that %v are ignored", name, ignored)
		}
	}
}

func TestWhatHelpsARefusedClaimFollowsItsMessage(t *testing.T) {
	class := &storagev1.StorageClass{Parameters: map[string]string{"numberOfReplicas": "three", "share": "yes"}}
	for message, want := range map[string][]string{
		`storage class x: parameter numberOfReplicas: value "three" must be a whole number`: {"Correct the parameter: parameters of a StorageClass cannot be changed"},
		"access mode MULTI_NODE_MULTI_WRITER is not supported for a block volume: share":    {"If the lines above name a parameter", "If the lines above name a field of the claim"},
	} {
		steps := refusedSteps(message, class)
		if len(steps) != len(want) {
			t.Fatalf("for %q it advises %+v", message, steps)
		}
		for i, step := range steps {
			if !strings.HasPrefix(step.Text, want[i]) {
				t.Errorf("for %q it advises %q, want %q", message, step.Text, want[i])
			}
		}
	}
}

// A node without an NFS client does not matter to a volume that is not shared, even if the cluster has shared
// volumes.
func TestAClaimThatIsNotSharedNeedsNoNFSClient(t *testing.T) {
	w := newWorld()
	w.claimed()
	w.nodeSays(1, types.ConditionNFSClientInstalled, longhorn.ConditionFalse, types.ReasonNFSClientNotFound, "no NFSv4 client loaded")
	w.Volumes = append(w.Volumes, build.Volume("other", func(v *longhorn.Volume) { v.Spec.AccessMode = longhorn.AccessModeReadWriteMany }))
	for _, f := range w.ask(t, "claim shop data") {
		assert.NotEqual(t, types.ReasonNFSClientNotFound, f.Reason)
	}
}

// Kubernetes sets both conditions, and the message has the whole output of the command.
func TestAFileSystemThatCannotGrowMountedIsOneFinding(t *testing.T) {
	w := newWorld()
	c, _, _ := w.claimed()
	c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
		{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue, Message: "Waiting for user to (re-)start a pod"},
		{Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue, Message: "NodeExpandVolume failed to expand the volume : rpc error: code = FailedPrecondition " +
			"desc = expanding volume v: its file system cannot grow while it is mounted on this node, and keeps its size: resize of device /dev/longhorn/v failed: exit status 1. " +
			"resize2fs output: resize2fs 1.47.2 (1-Jan-2025)\nFilesystem at /dev/longhorn/v is mounted on /v; on-line resizing required\nold_desc_blocks = 1, new_desc_blocks = 1\n" +
			"resize2fs: Permission denied to resize filesystem\n\n"},
	}
	found := w.ask(t, "claim shop data")
	if len(found) != 1 {
		t.Fatalf("it says %+v", found)
	}
	assert.Equal(t, "NodeResizeError", found[0].Reason)
	assert.Equal(t, "the volume of claim shop/data has grown, but its file system could not grow", found[0].What)
	assert.Equal(t, []string{"NodeExpandVolume failed to expand the volume : expanding volume shop/data (v): its file system cannot grow while it is mounted on this node, and keeps its size: " +
		"resize of device /dev/longhorn/v failed: exit status 1: resize2fs: Permission denied to resize filesystem"}, found[0].Why)
	assert.Contains(t, found[0].Next[0].Text, "Stop all pods that use the claim")
}
