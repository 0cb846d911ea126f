package types

import (
	"testing"

	"github.com/stretchr/testify/assert"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func TestAVolumeIsNamedByItsClaim(t *testing.T) {
	bound := longhorn.KubernetesStatus{PVName: "pvc-1", PVStatus: "Bound", Namespace: "default", PVCName: "data"}
	with := func(change func(*longhorn.KubernetesStatus)) longhorn.KubernetesStatus {
		s := bound
		change(&s)
		return s
	}
	for _, tc := range []struct {
		name        string
		status      longhorn.KubernetesStatus
		claim, text string
	}{
		{"a claim → the claim and the name", bound, "default/data", "default/data (pvc-1)"},
		{"no claim → the name", longhorn.KubernetesStatus{}, "", "pvc-1"},
		{"no PersistentVolume yet recorded → the claim", with(func(s *longhorn.KubernetesStatus) { s.PVStatus = "" }), "default/data", "default/data (pvc-1)"},
		{"the claim was deleted → the name", with(func(s *longhorn.KubernetesStatus) { s.LastPVCRefAt = "2030-01-02T03:04:05Z" }), "", "pvc-1"},
		{"the claim was deleted just now → the name", with(func(s *longhorn.KubernetesStatus) { s.PVStatus = "Released" }), "", "pvc-1"},
	} {
		v := &longhorn.Volume{}
		v.Name, v.Status.KubernetesStatus = "pvc-1", tc.status
		assert.Equal(t, tc.claim, ClaimOf(v), tc.name)
		assert.Equal(t, tc.text, VolumeText(v), tc.name)
	}
}
