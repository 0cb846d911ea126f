package explain

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestATicketThatNobodyHolds(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *world)
		want   bool
		why    string
	}{
		"no VolumeAttachment":                               {change: func(*world) {}, want: true},
		"one for that volume and node":                      {change: func(w *world) { w.asked("pv", "n1") }},
		"one for another node":                              {change: func(w *world) { w.asked("pv", "n2") }, want: true},
		"one for another volume on that node":               {change: func(w *world) { w.asked("pv-other", "n1") }, want: true},
		"one for a PersistentVolume that is not known":      {change: func(w *world) { w.asked("pv-gone", "n1") }},
		"VolumeAttachments may not be read":                 {change: func(w *world) { w.Unseen = []string{ResourceKubeAttachments} }},
		"a person holds it, by REST":                        {change: func(w *world) { w.attached(longhorn.AttacherTypeAPI) }},
		"none, and a kubelet that answers uses it → so why": {change: func(w *world) { w.used(corev1.ConditionTrue) }, want: true, why: "the kubelet of node n1 reports"},
		"none, and a kubelet that is silent used it":        {change: func(w *world) { w.used(corev1.ConditionUnknown) }, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.attached(longhorn.AttacherTypeCSI)
			for pv, handle := range map[string]string{"pv": "v", "pv-other": "other"} {
				o := &corev1.PersistentVolume{}
				o.Name, o.Spec.CSI = pv, &corev1.CSIPersistentVolumeSource{Driver: types.DriverName, VolumeHandle: handle}
				w.PersistentVolumes = append(w.PersistentVolumes, o)
			}
			tc.change(w)
			found := ofTickets(&w.Snapshot, w.v)
			if !tc.want {
				assert.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			assert.Equal(t, Object{Kind: KindTicket, Name: "t", Node: "n1"}, found[0].Object)
			assert.Equal(t, "VolumeAttachmentMissing", found[0].Reason)
			assert.Equal(t, "the CSI driver keeps volume v attached to node n1 for Kubernetes, but no VolumeAttachment of Kubernetes requests it", found[0].What)
			assert.Equal(t, tc.why != "", len(found[0].Why) > 0, found[0].Why)
			for _, line := range found[0].Why {
				assert.Contains(t, line, tc.why)
			}
			assert.Contains(t, found[0].Next[len(found[0].Next)-1].Command, "app=longhorn-csi-controller")
		})
	}
}

// attached attaches the volume to node n1 with a ticket of a type.
func (w *world) attached(kind longhorn.AttacherType) {
	w.va.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{"t": {ID: "t", Type: kind, NodeID: "n1"}}
	s := longhorn.AttachmentTicketStatus{ID: "t", Satisfied: true}
	condition(&s.Conditions, types.ConditionSatisfied, longhorn.ConditionTrue, "", "")
	w.va.Status.AttachmentTicketStatuses = map[string]longhorn.AttachmentTicketStatus{"t": s}
}

// used makes the kubelet of node n1 report that pods use the volume.
func (w *world) used(ready corev1.ConditionStatus) {
	n := named(w.KubeNodes, "n1")
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	n.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/driver.longhorn.io^v"}
}
