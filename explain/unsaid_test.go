package explain

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestWhatNoConditionSaysIsExplained(t *testing.T) {
	deleted := func(o metav1.Object) { o.SetDeletionTimestamp(&metav1.Time{Time: now}) }
	shared := func(w *world, change func(sm *longhorn.ShareManager)) {
		w.ticket("n1", types.ReasonWaitingForShare, "m")
		w.v.Spec.AccessMode = longhorn.AccessModeReadWriteMany
		if change != nil {
			sm := w.share(longhorn.ShareManagerStateUnknown, "", "")
			sm.Status.Conditions = nil
			change(sm)
		}
	}
	runFaults(t, []fault{
		{
			name: "a node without Ready", ask: "node n1",
			change: func(w *world) {
				w.Nodes[0].Status.Conditions = []longhorn.Condition{{Type: types.ConditionSchedulable, Status: longhorn.ConditionTrue}}
			},
			object: "node n1", severity: Warning, reason: "ReadyUnknown", what: "it is unknown whether node n1 is ready", command: "describe node n1",
		},
		{
			name: "a disk without Ready", ask: "disk n1 disk-1",
			change: func(w *world) {
				w.disk(1, func(_ *longhorn.DiskSpec, s *longhorn.DiskStatus) {
					s.Conditions = []longhorn.Condition{{Type: types.ConditionSchedulable, Status: longhorn.ConditionTrue}}
				})
			},
			object: "disk disk-1 on node n1", severity: Warning, reason: "ReadyUnknown", what: "it is unknown whether disk disk-1", command: "app=longhorn-manager",
		},
		{
			name: "a disk on overlayfs that an earlier release let in", ask: "disk n1 disk-1",
			change: func(w *world) { w.disk(1, func(_ *longhorn.DiskSpec, s *longhorn.DiskStatus) { s.FSType = "overlay" }) },
			object: "disk disk-1 on node n1", severity: Warning, reason: "DiskOnOverlay", what: "could lose data unnoticed", command: "evictionRequested",
		},
		{
			name: "a disk whose node has no data plane", ask: "disk n1 disk-1", change: func(w *world) { w.InstanceManagers = w.InstanceManagers[1:] },
			object: "instance manager " + types.InstanceManagerName("n1"), severity: Broken, reason: "InstanceManagerMissing", what: "has no instance manager", command: "get pods",
		},
		{
			name: "a disk whose node is being deleted", ask: "disk n1 disk-1", change: func(w *world) { deleted(w.Nodes[0]) },
			object: "node n1", severity: Info, reason: "Deleting", what: "is being deleted", command: "get lhr",
		},
		{
			name: "a disk whose node gets no replicas", ask: "disk n1 disk-1", change: func(w *world) { w.Nodes[0].Spec.AllowScheduling = false },
			object: "node n1", severity: Info, reason: "SchedulingDisabled", what: "gets no new replicas", command: "allowScheduling",
		},
		{
			name: "a data plane without a condition", ask: "node n1",
			change: func(w *world) {
				w.InstanceManagers[0].Status.Conditions = nil
				w.InstanceManagers[0].Status.CurrentState = longhorn.InstanceManagerStateUnknown
			},
			object: "instance manager " + types.InstanceManagerName("n1"), severity: Warning, reason: "NotRunning", what: "its state is unknown", command: "describe pod",
		},
		{
			name: "a data plane that is being deleted", ask: "node n1", change: func(w *world) { deleted(w.InstanceManagers[0]) },
			object: "instance manager " + types.InstanceManagerName("n1"), severity: Warning, reason: "Deleting", what: "is being deleted", command: "get pods",
		},
		{
			name: "an attached volume without an engine", ask: "volume v", change: func(w *world) { w.Engines = nil },
			object: "volume v", severity: Broken, reason: "EngineMissing", what: "its engine does not exist", command: "get lease",
		},
		{
			name: "an engine that is being deleted under its volume", ask: "volume v", change: func(w *world) { deleted(w.e) },
			object: "volume v", severity: Warning, reason: "EngineDeleted", what: "is being deleted, but the volume is not", command: "describe lhe",
		},
		{
			name: "a faulted volume without its condition", ask: "volume v", change: func(w *world) { w.v.Status.Robustness = longhorn.VolumeRobustnessFaulted },
			object: "volume v", severity: Broken, reason: "Faulted", what: "no condition gives the reason", why: "replica v-r-1 holds all data", command: "describe lhe",
		},
		{
			name: "a volume that is being attached, and does not say for what it waits", ask: "volume v", change: func(w *world) { w.v.Status.State = longhorn.VolumeStateAttaching },
			object: "volume v", severity: Info, reason: "Attaching", what: "is being attached", command: "describe lhe",
		},
		{
			name: "a volume that is being detached", ask: "volume v", change: func(w *world) { w.v.Status.State = longhorn.VolumeStateDetaching },
			object: "volume v", severity: Info, reason: "Detaching", what: "is being detached", command: "describe lhe",
		},
		{
			name: "a detached volume with a copy on a node that is down", ask: "volume v",
			change: func(w *world) {
				w.detach()
				w.nodeSays(2, types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady, "m")
			},
			object: "volume v", severity: Warning, reason: types.ConditionCopiesUnreachable, what: "1 of its 3 healthy replicas cannot be opened", why: "replica v-r-2: its node n2 is down", command: "explain node n2",
		},
		{
			name: "a detached volume with no copy that can be opened", ask: "volume v",
			change: func(w *world) {
				w.detach()
				w.Nodes = w.Nodes[:1]
				w.diskSays(1, types.ConditionReady, longhorn.ConditionFalse, types.ReasonDiskNotResponding, "it hangs")
			},
			object: "volume v", severity: Broken, reason: types.ConditionCopiesUnreachable, what: "no healthy replica can be opened", why: "replica v-r-3: its node n3 no longer exists", command: "get lhr",
		},
		{
			name: "a shared volume without a share manager", ask: "volume v", change: func(w *world) { shared(w, nil) },
			object: "share manager v", severity: Broken, reason: "ShareMissing", what: "it has no share manager", command: "get lease",
		},
		{
			name: "a share without a condition", ask: "volume v", change: func(w *world) { shared(w, func(*longhorn.ShareManager) {}) },
			object: "share manager v", severity: Warning, reason: "NotRunning", what: "the state of its share is unknown", command: "describe lhsm v",
		},
		{
			name: "a share that is being deleted", ask: "volume v", change: func(w *world) { shared(w, func(sm *longhorn.ShareManager) { deleted(sm) }) },
			object: "share manager v", severity: Warning, reason: "Deleting", what: "is being deleted", command: "describe lhsm v",
		},
		{
			name: "a deleted volume that is still asked for → the ticket", ask: "volume v",
			change: func(w *world) {
				deleted(w.v)
				w.ticket("n2", types.ReasonAttachedElsewhere, "it is on n1")
			},
			object: "ticket t", severity: Warning, reason: types.ReasonAttachedElsewhere, what: "cannot be attached to node n2", why: "it is on n1", command: "volumeattachments",
		},
	})
}
