package api

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

func TestTheLastUserOfAnUnusedVolumeIsShown(t *testing.T) {
	last := longhorn.KubernetesStatus{
		PVName: "pv-1", PVStatus: "Bound", Namespace: "ns", PVCName: "data", LastPodRefAt: "2030-01-02T03:04:05Z",
		WorkloadsStatus: []longhorn.WorkloadStatus{{PodName: "db-0", PodStatus: "Running", WorkloadName: "db", WorkloadType: "StatefulSet"}},
	}
	gone := last
	gone.LastPVCRefAt, gone.PVStatus = "2030-01-02T03:05:00Z", ""
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "data"}
	pv.Status.Phase = corev1.VolumeBound
	db := []v1.WorkloadStatus{{PodName: "db-0", PodStatus: "Running", WorkloadName: "db", WorkloadType: "StatefulSet"}}
	for _, tc := range []struct {
		name   string
		last   longhorn.KubernetesStatus
		pv     *corev1.PersistentVolume
		usedBy []manager.Workload
		want   v1.KubernetesStatus
	}{
		{"nobody uses it → the last pods", last, pv, nil, v1.KubernetesStatus{PVName: "pv-1", PVStatus: "Bound", Namespace: "ns", PVCName: "data", LastPodRefAt: "2030-01-02T03:04:05Z", WorkloadsStatus: db}},
		{"a pod uses it → that one", last, pv, []manager.Workload{{Pod: "db-1", Phase: "Running"}}, v1.KubernetesStatus{PVName: "pv-1", PVStatus: "Bound", Namespace: "ns", PVCName: "data", WorkloadsStatus: []v1.WorkloadStatus{{PodName: "db-1", PodStatus: "Running"}}}},
		{"nothing stands for it any more → the last of all", gone, nil, nil, v1.KubernetesStatus{PVName: "pv-1", Namespace: "ns", PVCName: "data", LastPVCRefAt: "2030-01-02T03:05:00Z", LastPodRefAt: "2030-01-02T03:04:05Z", WorkloadsStatus: db}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := &manager.Volume{}
			v.Status.KubernetesStatus = tc.last
			assert.Equal(t, tc.want, kubernetesStatusOf(manager.VolumeView{Volume: v, PersistentVolume: tc.pv, Workloads: tc.usedBy}))
		})
	}
}
