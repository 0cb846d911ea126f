package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// told lists causes as "object reason: object, object".
func told(causes []Cause) []string {
	var list []string
	for _, c := range causes {
		var then []string
		for _, f := range c.Consequences {
			then = append(then, f.Object.String())
		}
		slices.Sort(then)
		list = append(list, strings.TrimSuffix(c.Object.String()+" "+c.Reason+": "+strings.Join(slices.Compact(then), ", "), ": "))
	}
	return list
}

// nodeDies makes node n3 fail as its conditions show it: its disk and its data plane are unknown, and a copy is lost.
func (w *world) nodeDies(node int) {
	w.nodeSays(node, types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady, "m")
	w.diskSays(node, types.ConditionReady, longhorn.ConditionFalse, types.ReasonNodeNotReady, "m")
	w.diskSays(node, types.ConditionSchedulable, longhorn.ConditionFalse, types.ReasonNodeNotReady, "m")
	condition(&w.InstanceManagers[node-1].Status.Conditions, types.ConditionPodReady, longhorn.ConditionFalse, types.ReasonNodeDown, "m")
	w.lose(node, "", "").Status.CurrentState = longhorn.InstanceStateStopped
}

// more adds a volume that is attached to a node, with a replica on each of the three nodes. The replica on n3 has
// failed.
func (w *world) more(name, node string) (*longhorn.Volume, *longhorn.Engine) {
	v := build.Volume(name, func(v *longhorn.Volume) {
		v.Spec.NodeID, v.Status.CurrentNodeID = node, node
		v.Status.State, v.Status.Robustness, v.Status.Size = longhorn.VolumeStateAttached, longhorn.VolumeRobustnessDegraded, build.GiB
		v.Status.LastDegradedAt = ago(time.Minute)
	})
	e := build.Engine(name, func(e *longhorn.Engine) {
		e.Spec.NodeID, e.Spec.DesireState, e.Status.CurrentState = node, longhorn.DesireStateRunning, longhorn.InstanceStateRunning
		e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{name + "-r-1", name + "-r-2"}}
		e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{name + "-r-1": longhorn.ReplicaModeRW, name + "-r-2": longhorn.ReplicaModeRW}
	})
	for i := range 3 {
		n := fmt.Sprintf("n%d", i+1)
		w.Replicas = append(w.Replicas, build.PlacedReplica(fmt.Sprintf("%s-r-%d", name, i+1), name, n, "uuid-"+n, func(r *longhorn.Replica) {
			r.Spec.DesireState, r.Status.CurrentState, r.Status.UUID = longhorn.DesireStateRunning, longhorn.InstanceStateRunning, "process-"+n
			if i == 2 {
				r.Status.CurrentState = longhorn.InstanceStateUnknown
			}
		}))
	}
	w.Volumes, w.Engines = append(w.Volumes, v), append(w.Engines, e)
	return v, e
}

// TestADeadNodeIsOneCause has a dead node n3 with replicas of three volumes, the engine of one of them, and the share
// of another one.
func TestADeadNodeIsOneCause(t *testing.T) {
	im := "instance manager " + types.InstanceManagerName("n3")
	volumes := "volume a, volume b, volume v"
	dead := func(w *world) {
		w.nodeDies(3)
		w.more("a", "n3") // its engine is on the dead node
		b, _ := w.more("b", "n1")
		b.Spec.AccessMode = longhorn.AccessModeReadWriteMany
	}
	share := func(w *world, reason, node string) {
		sm := &longhorn.ShareManager{Status: longhorn.ShareManagerStatus{State: longhorn.ShareManagerStateError, CurrentNode: node}}
		sm.Name = "b"
		condition(&sm.Status.Conditions, types.ConditionReady, longhorn.ConditionFalse, reason, "m")
		w.ShareManagers = append(w.ShareManagers, sm)
	}
	ticket := func(w *world, volume, node, reason string) {
		va := build.VolumeAttachment(volume)
		va.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{"t-" + volume: {ID: "t-" + volume, Type: longhorn.AttacherTypeCSI, NodeID: node}}
		s := longhorn.AttachmentTicketStatus{ID: "t-" + volume}
		condition(&s.Conditions, types.ConditionSatisfied, longhorn.ConditionFalse, reason, "m")
		va.Status.AttachmentTicketStatuses = map[string]longhorn.AttachmentTicketStatus{"t-" + volume: s}
		w.Attachments = append(w.Attachments, va)
	}
	for _, tc := range []struct {
		name   string
		change func(w *world)
		want   string
	}{
		{"three replicas and an engine", func(*world) {}, "disk disk-1 on node n3, engine a-e-0, " + im + ", " + volumes},
		{"the share, too", func(w *world) { share(w, types.ReasonShareNodeDown, "n3") }, "disk disk-1 on node n3, engine a-e-0, " + im + ", share manager b, " + volumes},
		{"the share has left the node, and its clients wait", func(w *world) {
			share(w, types.ReasonShareNotStarted, "n1")
			ticket(w, "b", "n2", types.ReasonWaitingForShare)
		}, "disk disk-1 on node n3, engine a-e-0, " + im + ", share manager b, ticket t-b, " + volumes},
		{"a share without a replica on the node", func(w *world) {
			share(w, types.ReasonShareNodeDown, "n3")
			ticket(w, "b", "n2", types.ReasonWaitingForShare)
			w.Replicas = slices.DeleteFunc(w.Replicas, func(r *longhorn.Replica) bool { return r.Name == "b-r-3" })
			b := named(w.Volumes, "b")
			b.Spec.NumberOfReplicas, b.Status.Robustness = 2, longhorn.VolumeRobustnessHealthy
		}, "disk disk-1 on node n3, engine a-e-0, " + im + ", share manager b, ticket t-b, volume a, volume v"},
		{"another node requests the volume", func(w *world) { ticket(w, "a", "n2", types.ReasonAttachedElsewhere) }, "disk disk-1 on node n3, engine a-e-0, " + im + ", ticket t-a, " + volumes},
		{"a replica there is being deleted", func(w *world) {
			named(w.Replicas, "a-r-3").DeletionTimestamp = &metav1.Time{Time: now}
		}, "disk disk-1 on node n3, engine a-e-0, " + im + ", replica a-r-3, " + volumes},
		{"no disk has a place for another replica", func(w *world) {
			named(w.Volumes, "a").Status.Conditions = nil
			condition(&named(w.Volumes, "a").Status.Conditions, types.ConditionScheduled, longhorn.ConditionFalse, types.ReasonReplicaSchedulingFailure, "m")
		}, "disk disk-1 on node n3, engine a-e-0, " + im + ", " + volumes},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			dead(w)
			tc.change(w)
			causes := Causes(&w.Snapshot)
			assert.Equal(t, []string{"node n3 KubernetesNodeNotReady: " + tc.want}, told(causes))
			assert.Contains(t, causes[0].Next[len(causes[0].Next)-1].Text, "the first in 9m0s", "the node")
		})
	}
}

// TestANodeIsNoCauseForAVolumeThatIsGone: after a new installation, a PersistentVolume of the earlier installation may
// still exist while the data plane of its node starts.
func TestANodeIsNoCauseForAVolumeThatIsGone(t *testing.T) {
	for _, exists := range []bool{true, false} {
		w := newWorld()
		_, pv, _ := w.claimed()
		pv.DeletionTimestamp = &metav1.Time{Time: now}
		w.kubeAttachment(false, "volume v does not exist", "")
		w.InstanceManagers[0].Status.CurrentState = longhorn.InstanceManagerStateStarting
		condition(&w.InstanceManagers[0].Status.Conditions, types.ConditionPodReady, longhorn.ConditionFalse, types.ReasonPodStarting, "m")
		if !exists {
			w.Volumes, w.Engines, w.Replicas, w.Attachments = nil, nil, nil, nil
		}
		follows := false
		for _, c := range Causes(&w.Snapshot) {
			for _, f := range c.Consequences {
				follows = follows || c.Object.Kind == KindInstanceManager && f.Object.Kind == KindPV && f.Reason == "AttachError"
			}
		}
		assert.Equal(t, exists, follows, "the volume exists: %v", exists)
	}
}

func TestCausesComeBeforeConsequences(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(w *world)
		want   []string
	}{
		{"all is in order → nothing", func(*world) {}, nil},
		{"a node dies → its disk, its data plane and the volume follow", func(w *world) { w.nodeDies(3) }, []string{
			"node n3 KubernetesNodeNotReady: disk disk-1 on node n3, instance manager " + types.InstanceManagerName("n3") + ", volume v",
		}},
		{"the node of the engine dies → the engine follows", func(w *world) { w.nodeDies(1) }, []string{
			"node n1 KubernetesNodeNotReady: disk disk-1 on node n1, engine v-e-0, instance manager " + types.InstanceManagerName("n1") + ", volume v",
		}},
		{"a disk fails → its replica and the volume follow", func(w *world) {
			w.diskSays(3, types.ConditionReady, longhorn.ConditionFalse, "NoDiskInfo", "m")
			w.lose(3, types.ReasonDiskNotReady, "m")
		}, []string{"disk disk-1 on node n3 NoDiskInfo: replica v-r-3, volume v"}},
		{"a disk fails, and another node is not ready → two causes, the node first", func(w *world) {
			w.nodeSays(2, types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady, "m")
			w.diskSays(3, types.ConditionReady, longhorn.ConditionFalse, "NoDiskInfo", "m")
			w.lose(3, types.ReasonDiskNotReady, "m")
		}, []string{"node n2 KubernetesNodeNotReady: volume v", "disk disk-1 on node n3 NoDiskInfo: replica v-r-3"}},
		{"a node is cordoned → it is no cause", func(w *world) {
			w.nodeSays(3, types.ConditionSchedulable, longhorn.ConditionFalse, types.ReasonKubernetesNodeCordoned, "m")
			w.lose(3, types.ReasonDataDeleted, "m")
		}, []string{"replica v-r-3 DataDeleted: volume v", "node n3 KubernetesNodeCordoned"}},
		{"a setting is invalid → a cause of its own, behind the errors", func(w *world) {
			setting := &longhorn.Setting{}
			setting.Name = string(settings.DefaultReplicaCount)
			condition(&setting.Status.Conditions, types.ConditionValid, longhorn.ConditionFalse, types.ReasonInvalidValue, "m")
			w.Settings = append(w.Settings, setting)
			w.nodeDies(3)
		}, []string{
			"node n3 KubernetesNodeNotReady: disk disk-1 on node n3, instance manager " + types.InstanceManagerName("n3") + ", volume v",
			"setting default-replica-count InvalidValue",
		}},
		{"a pod waits for a volume whose node is down → the node", func(w *world) {
			_, _, pod := w.claimed()
			waits(pod)
			w.happens(pod, "FailedMount", `volume "pv-1" : no`, 0)
			w.nodeDies(1)
		}, []string{
			"node n1 KubernetesNodeNotReady: disk disk-1 on node n1, engine v-e-0, instance manager " + types.InstanceManagerName("n1") + ", pod shop/db, volume v",
		}},
		{"a claim's PersistentVolume is gone → its pod follows", func(w *world) {
			_, pv, pod := w.claimed()
			waits(pod)
			w.happens(pod, "FailedMount", `volume "pv-1" : no`, 0)
			pv.Spec.CSI.VolumeHandle = "gone"
		}, []string{"persistent volume pv-1 VolumeMissing: pod shop/db"}},
		{"no pod creates volumes → the claims follow", func(w *world) {
			c, _, _ := w.claimed()
			c.Spec.VolumeName, c.Status.Phase = "", corev1.ClaimPending
			w.PersistentVolumes, w.UserPods = nil, nil
		}, []string{"installation longhorn-system NoCSIController: claim shop/data"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			tc.change(w)
			causes := Causes(&w.Snapshot)
			assert.Equal(t, tc.want, told(causes))
			count := len(causes)
			for _, c := range causes {
				count += len(c.Consequences)
			}
			assert.Equal(t, len(All(&w.Snapshot)), count, "a finding is lost, or told twice")
		})
	}
}
