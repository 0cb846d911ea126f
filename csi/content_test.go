package csi

import (
	"testing"
	"testing/synctest"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

func fromSnapshot(id string) *csipb.VolumeContentSource {
	return &csipb.VolumeContentSource{Type: &csipb.VolumeContentSource_Snapshot{Snapshot: &csipb.VolumeContentSource_SnapshotSource{SnapshotId: id}}}
}

func fromVolume(id string) *csipb.VolumeContentSource {
	return &csipb.VolumeContentSource{Type: &csipb.VolumeContentSource_Volume{Volume: &csipb.VolumeContentSource_VolumeSource{VolumeId: id}}}
}

func TestCreateVolumeFromContent(t *testing.T) {
	const create = "create pvc-new"
	source := func(f *fakeService) { f.edit(testVolume, volumeIn("detached", "")); f.editSnapshot("s", taken) }
	for _, c := range []struct {
		name   string
		given  func(f *fakeService)
		off    bool
		source *csipb.VolumeContentSource
		size   int64
		code   codes.Code
		text   string
		want   string // data source of the new volume
	}{
		{name: "a snapshot", source: fromSnapshot("snap://pvc-1/s"), want: "snap://pvc-1/s"},
		{name: "a volume", source: fromVolume("pvc-1"), want: "vol://pvc-1"},
		{name: "a larger volume from a snapshot", source: fromSnapshot("snap://pvc-1/s"), size: 128 << 20, want: "snap://pvc-1/s"},
		{name: "a smaller volume from a snapshot → out of range", source: fromSnapshot("snap://pvc-1/s"), size: 32 << 20, code: codes.OutOfRange, text: "less than the size of the source, 64 MiB"},
		{name: "a smaller volume from a volume → out of range", source: fromVolume("pvc-1"), size: 32 << 20, code: codes.OutOfRange, text: "less than the size of the source"},
		{name: "a snapshot that is gone → not found", source: fromSnapshot("snap://pvc-1/t"), code: codes.NotFound, text: "snap://pvc-1/t does not exist"},
		{name: "a snapshot of another volume → not found", source: fromSnapshot("snap://pvc-2/s"), code: codes.NotFound},
		{name: "a snapshot that was deleted → not found", given: func(f *fakeService) { source(f); f.editSnapshot("s", func(s *Snapshot) { s.Removed = true }) }, source: fromSnapshot("snap://pvc-1/s"), code: codes.NotFound},
		{
			name: "a snapshot that is not ready → aborted, with the reason",
			given: func(f *fakeService) {
				source(f)
				f.editSnapshot("s", func(s *Snapshot) { s.Ready, s.NotReadyMessage = false, "replica r has not stored it" })
			},
			source: fromSnapshot("snap://pvc-1/s"), code: codes.Aborted, text: "replica r has not stored it",
		},
		{name: "an id that cannot be read → not found", source: fromSnapshot("non-existing-snapshot-id"), code: codes.NotFound},
		{name: "a backup → invalid", source: fromSnapshot("bak://pvc-1/b"), code: codes.InvalidArgument, text: "this release has no backups"},
		{name: "a volume that is gone → not found", source: fromVolume("pvc-9"), code: codes.NotFound},
		{name: "a volume that is being deleted → not found", given: func(f *fakeService) { f.edit(testVolume, volumeIn("deleting", "")) }, source: fromVolume("pvc-1"), code: codes.NotFound},
		{name: "no volume's name → not found", source: fromVolume("a/b"), code: codes.NotFound},
		{name: "neither of them → invalid", source: &csipb.VolumeContentSource{}, code: codes.InvalidArgument, text: "must be a snapshot or a volume"},
		{name: "not offered → invalid", off: true, source: fromSnapshot("snap://pvc-1/s"), code: codes.InvalidArgument, text: "this release creates only empty volumes"},
		{name: "not offered, and gone → not found", off: true, source: fromSnapshot("snap://pvc-1/t"), code: codes.NotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeService()
				f.instant = true
				if c.given == nil {
					c.given = source
				}
				c.given(f)
				if c.size == 0 {
					c.size = 64 << 20
				}
				s := &controllerServer{core: coreOver(f)}
				s.core.clones = !c.off
				ask := func() (*csipb.CreateVolumeResponse, error) {
					return s.CreateVolume(t.Context(), &csipb.CreateVolumeRequest{
						Name: "pvc-new", CapacityRange: &csipb.CapacityRange{RequiredBytes: c.size},
						VolumeCapabilities: []*csipb.VolumeCapability{capabilityOf(writer, "ext4")}, VolumeContentSource: c.source,
					})
				}
				response, err := ask()
				wantCode(t, "create", err, c.code)
				if err != nil {
					require.ErrorContains(t, err, c.text)
					assert.Empty(t, f.made())
					return
				}
				assert.Equal(t, []string{create}, f.made())
				assert.Equal(t, c.want, f.volumes["pvc-new"].Asked.DataSource)
				assert.Equal(t, c.source.String(), response.Volume.ContentSource.String())
				f.remove(testVolume)
				_, err = ask()
				require.NoError(t, err, "again, after the source is gone")
				assert.Equal(t, []string{create}, f.made())
			})
		})
	}
}

func TestCreateVolumeTwiceFromOtherContent(t *testing.T) {
	f := newFakeService()
	f.edit("pvc-new", func(v *Volume) { volumeIn("detached", "")(v); v.Asked.DataSource = "snap://pvc-1/s" })
	for _, source := range []string{"", "snap://pvc-1/t", "vol://pvc-1"} {
		err := toStatus(coreOver(f).create(t.Context(), VolumeRequest{Name: "pvc-new", SizeBytes: 64 << 20, DataSource: source}))
		wantCode(t, source, err, codes.AlreadyExists)
		require.ErrorContains(t, err, "data source is snap://pvc-1/s")
	}
}

// TestCloneVolumeIsNotAdvertised: the manager does not offer clones.
func TestCloneVolumeIsNotAdvertised(t *testing.T) {
	for clones, want := range map[bool]bool{clonesOffered: false, true: true} {
		s := &controllerServer{core: &controller{clones: clones}}
		response, err := s.ControllerGetCapabilities(t.Context(), &csipb.ControllerGetCapabilitiesRequest{})
		require.NoError(t, err)
		has := false
		for _, c := range response.Capabilities {
			has = has || c.GetRpc().GetType() == csipb.ControllerServiceCapability_RPC_CLONE_VOLUME
		}
		assert.Equal(t, want, has)
	}
}
