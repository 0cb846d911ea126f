package explain

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
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
			setting.Name = string(types.SettingDefaultReplicaCount)
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
