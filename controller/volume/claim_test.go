package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func TestEventsNameAVolumeByItsClaim(t *testing.T) {
	bound := longhorn.KubernetesStatus{PVName: "pvc-1", PVStatus: "Bound", Namespace: "default", PVCName: "data"}
	gone := bound
	gone.LastPVCRefAt = "2030-01-02T03:04:05Z"
	for _, tc := range []struct {
		name string
		used longhorn.KubernetesStatus
		want string
	}{
		{"a claim → the claim and the name", bound, "volume default/data (pvc-1) is attached to node a"},
		{"no claim → the name", longhorn.KubernetesStatus{}, "volume pvc-1 is attached to node a"},
		{"a claim that was deleted → the name", gone, "volume pvc-1 is attached to node a"},
	} {
		v := &longhorn.Volume{}
		v.Name, v.Status.KubernetesStatus = "pvc-1", tc.used
		next := v.Status
		next.State, next.CurrentNodeID = longhorn.VolumeStateAttached, "a"
		assert.Equal(t, []Event{{"Normal", "Attached", tc.want}}, transitions(Input{Facts: copies.Facts{Volume: v}}, &next), tc.name)
	}
}
