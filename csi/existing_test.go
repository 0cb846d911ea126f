package csi

import (
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestCreateOfAnExistingVolume(t *testing.T) {
	const prefix = "creating volume pvc-1: a volume of this name already exists and differs from the request: "
	request := VolumeRequest{
		Name: testVolume, SizeBytes: 64 << 20, NumberOfReplicas: 2, StaleReplicaTimeoutMinutes: 30, DataLocality: "best-effort", AccessMode: "rwo",
		VolumeOptions: types.VolumeOptions{
			ReplicaSoftAntiAffinity: "ignored", ReplicaZoneSoftAntiAffinity: "enabled", ReplicaDiskSoftAntiAffinity: "disabled", ReplicaAutoBalance: "ignored",
		},
		DiskSelector: []string{"ssd", "fast"}, NodeSelector: []string{"storage"},
	}
	byRequest := func(v *Volume) {
		v.State, v.SizeBytes, v.AccessMode, v.Asked = stateDetached, 64<<20, "rwo", request
		v.Asked.Name, v.Asked.SizeBytes, v.Asked.AccessMode = "", 0, ""
	}
	cases := []struct {
		name    string
		volume  func(*Volume)
		request func(*VolumeRequest)
		want    string // after the prefix; "": success
	}{
		{name: "the same request → success"},
		{name: "the tags in another order → success", volume: func(v *Volume) { v.Asked.DiskSelector = []string{"fast", "ssd"} }},
		{
			name: "the settings filled two fields and were changed since → success", volume: func(v *Volume) { v.Asked.NumberOfReplicas, v.Asked.DataLocality = 5, "strict-local" },
			request: func(r *VolumeRequest) { r.NumberOfReplicas, r.DataLocality = 0, "" },
		},
		{
			name: "a manager of an earlier release sends few fields → success",
			volume: func(v *Volume) {
				v.AccessMode, v.Asked = "", VolumeRequest{NumberOfReplicas: 2, DiskSelector: []string{"ssd", "fast"}, NodeSelector: []string{"storage"}}
			},
		},
		{name: "another size", volume: func(v *Volume) { v.SizeBytes = 66 << 20 }, want: "size is 66 MiB, but 64 MiB is requested"},
		{name: "another access mode", volume: func(v *Volume) { v.AccessMode = "rwx" }, want: "accessMode is rwx, but rwo is requested"},
		{name: "no access mode is rwo", volume: func(v *Volume) { v.AccessMode = "" }, request: func(r *VolumeRequest) { r.AccessMode = "rwx" }, want: "accessMode is rwo, but rwx is requested"},
		{name: "another number of replicas", volume: func(v *Volume) { v.Asked.NumberOfReplicas = 3 }, want: "numberOfReplicas is 3, but 2 is requested"},
		{name: "another locality", volume: func(v *Volume) { v.Asked.DataLocality = "disabled" }, want: "dataLocality is disabled, but best-effort is requested"},
		{name: "another anti-affinity of nodes", volume: func(v *Volume) { v.Asked.ReplicaSoftAntiAffinity = "enabled" }, want: "replicaSoftAntiAffinity is enabled, but ignored is requested"},
		{name: "another anti-affinity of zones", volume: func(v *Volume) { v.Asked.ReplicaZoneSoftAntiAffinity = "ignored" }, want: "replicaZoneSoftAntiAffinity is ignored, but enabled is requested"},
		{name: "another anti-affinity of disks", volume: func(v *Volume) { v.Asked.ReplicaDiskSoftAntiAffinity = "enabled" }, want: "replicaDiskSoftAntiAffinity is enabled, but disabled is requested"},
		{name: "another balance", volume: func(v *Volume) { v.Asked.ReplicaAutoBalance = "best-effort" }, want: "replicaAutoBalance is best-effort, but ignored is requested"},
		{name: "another timeout", volume: func(v *Volume) { v.Asked.StaleReplicaTimeoutMinutes = 2880 }, want: "staleReplicaTimeout is 2880, but 30 is requested"},
		{name: "fewer tags of disks", volume: func(v *Volume) { v.Asked.DiskSelector = []string{"ssd"} }, want: "diskSelector is ssd, but fast,ssd is requested"},
		{name: "a tag of nodes that is not requested", request: func(r *VolumeRequest) { r.NodeSelector = nil }, want: "nodeSelector is storage, but none is requested"},
		{
			name:   "several fields → all are named",
			volume: func(v *Volume) { v.AccessMode, v.Asked.NumberOfReplicas = "rwx", 3 }, want: "accessMode is rwx, but rwo is requested; numberOfReplicas is 3, but 2 is requested",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeService()
			f.edit(testVolume, byRequest)
			if c.volume != nil {
				f.edit(testVolume, c.volume)
			}
			r := request
			if c.request != nil {
				c.request(&r)
			}
			err := toStatus(coreOver(f).create(t.Context(), r))
			if c.want == "" {
				require.NoError(t, err)
			} else {
				assert.Equal(t, codes.AlreadyExists, status.Code(err))
				assert.Equal(t, prefix+c.want, status.Convert(err).Message())
			}
			assert.Empty(t, f.made(), "calls that change a volume")
		})
	}
}

// TestCreateVolumeTwice: the second request with a name is compared with the volume that the first request created.
func TestCreateVolumeTwice(t *testing.T) {
	f := newFakeService()
	f.instant = true
	s := &controllerServer{core: coreOver(f)}
	ask := func(mode csipb.VolumeCapability_AccessMode_Mode, replicas string) error {
		_, err := s.CreateVolume(t.Context(), &csipb.CreateVolumeRequest{
			Name: testVolume, CapacityRange: &csipb.CapacityRange{RequiredBytes: 64 << 20},
			VolumeCapabilities: []*csipb.VolumeCapability{capabilityOf(mode, "ext4")}, Parameters: map[string]string{"numberOfReplicas": replicas},
		})
		return err
	}
	require.NoError(t, ask(writer, "2"))
	require.NoError(t, ask(writer, "2"))
	for _, c := range []struct {
		mode     csipb.VolumeCapability_AccessMode_Mode
		replicas string
	}{{multiNode, "2"}, {singleWriter, "2"}, {writer, "3"}} {
		assert.Equal(t, codes.AlreadyExists, status.Code(ask(c.mode, c.replicas)), "%s, %s replicas", c.mode, c.replicas)
	}
}

func TestAskedOf(t *testing.T) {
	v, err := volumeOf(&v1.Volume{
		Size: "1", AccessMode: "rwx", NumberOfReplicas: 2, StaleReplicaTimeout: 30, DataLocality: "best-effort",
		VolumeOptions: v1.VolumeOptions{
			ReplicaSoftAntiAffinity: "enabled", ReplicaZoneSoftAntiAffinity: "disabled", ReplicaDiskSoftAntiAffinity: "ignored", ReplicaAutoBalance: "least-effort",
		},
		DiskSelector: []string{"ssd"}, NodeSelector: []string{"storage"},
	})
	require.NoError(t, err)
	assert.Equal(t, "rwx", v.AccessMode)
	assert.Equal(t, VolumeRequest{
		NumberOfReplicas: 2, StaleReplicaTimeoutMinutes: 30, DataLocality: "best-effort",
		VolumeOptions: types.VolumeOptions{
			ReplicaSoftAntiAffinity: "enabled", ReplicaZoneSoftAntiAffinity: "disabled", ReplicaDiskSoftAntiAffinity: "ignored", ReplicaAutoBalance: "least-effort",
		},
		DiskSelector: []string{"ssd"}, NodeSelector: []string{"storage"},
	}, v.Asked)
}
