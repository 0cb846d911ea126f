package csi

import (
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestGetCapacityReturnsTheManagersCapacity(t *testing.T) {
	f := newFakeService("n1")
	s := &controllerServer{core: coreOver(f)}
	at := func(segments map[string]string) *csipb.GetCapacityRequest {
		return &csipb.GetCapacityRequest{
			Parameters:         map[string]string{"numberOfReplicas": "2", "diskSelector": "ssd,fast", "dataLocality": "best-effort"},
			AccessibleTopology: &csipb.Topology{Segments: segments},
		}
	}
	got, err := s.GetCapacity(t.Context(), at(nil))
	require.NoError(t, err)
	assert.Equal(t, int64(1<<30), got.GetAvailableCapacity())
	assert.Equal(t, int64(1<<30), got.GetMaximumVolumeSize().GetValue())
	assert.Equal(t, int64(10<<20), got.GetMinimumVolumeSize().GetValue())
	assert.Equal(t, 2, f.asked.NumberOfReplicas)
	assert.Equal(t, []string{"ssd", "fast"}, f.asked.DiskSelector)
	assert.Equal(t, "best-effort", f.asked.DataLocality)
	assert.Equal(t, "rwo", f.asked.AccessMode)

	got, err = s.GetCapacity(t.Context(), at(map[string]string{"kubernetes.io/hostname": "n1"}))
	require.NoError(t, err)
	assert.Positive(t, got.GetAvailableCapacity())
	got, err = s.GetCapacity(t.Context(), at(map[string]string{"kubernetes.io/hostname": "other"}))
	require.NoError(t, err)
	assert.Zero(t, got.GetAvailableCapacity())

	_, err = s.GetCapacity(t.Context(), at(map[string]string{"topology.kubernetes.io/zone": "a"}))
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	assert.ErrorContains(t, err, `segment "topology.kubernetes.io/zone" is not supported; it must be kubernetes.io/hostname`)
	_, err = s.GetCapacity(t.Context(), &csipb.GetCapacityRequest{Parameters: map[string]string{"numberOfReplicas": "0"}})
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	f.fail["capacity "] = ErrConflict
	_, err = s.GetCapacity(t.Context(), at(nil))
	assert.Error(t, err)
}

func TestManagerIsAskedForTheCapacity(t *testing.T) {
	m, _ := managerOver(t, map[string]restAnswer{
		"GET /v1/storagecapacities?accessMode=rwo&diskSelector=ssd%2Cfast&node=n1&numberOfReplicas=2&replicaDiskSoftAntiAffinity=disabled&replicaSoftAntiAffinity=enabled": {200, `{"maximumSize":"4096"}`},
		"GET /v1/storagecapacities?": {200, `{"maximumSize":"much"}`},
	})
	size, err := m.Capacity(t.Context(), VolumeRequest{
		NumberOfReplicas: 2, AccessMode: "rwo", DiskSelector: []string{"ssd", "fast"},
		VolumeOptions: types.VolumeOptions{ReplicaSoftAntiAffinity: "enabled", ReplicaDiskSoftAntiAffinity: "disabled", ReplicaAutoBalance: "ignored"},
	}, "n1")
	require.NoError(t, err)
	assert.Equal(t, int64(4096), size)
	_, err = m.Capacity(t.Context(), VolumeRequest{}, "")
	assert.ErrorContains(t, err, "much")
}
