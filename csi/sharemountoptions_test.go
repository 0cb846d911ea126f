package csi

import (
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

func TestMountOptionsOfASharedClaimActOrAreRefused(t *testing.T) {
	of := func(mode csipb.VolumeCapability_AccessMode_Mode, options ...string) *csipb.CreateVolumeRequest {
		return &csipb.CreateVolumeRequest{Name: "pvc-1", VolumeCapabilities: []*csipb.VolumeCapability{{
			AccessMode: &csipb.VolumeCapability_AccessMode{Mode: mode},
			AccessType: &csipb.VolumeCapability_Mount{Mount: &csipb.VolumeCapability_MountVolume{MountFlags: options}},
		}}}
	}
	const one = csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	for name, c := range map[string]struct {
		req *csipb.CreateVolumeRequest
		err string
	}{
		"options of the NFS client, and of any file system → made":  {of(multiNode, "nfsvers=4.1", "hard", "timeo=600", "noatime"), ""},
		"for a file system on a device, which is shared → refused":  {of(multiNode, "discard", "hard", "data=ordered"), "mountOptions: discard, data=ordered: not supported for a shared volume, which is mounted over NFS version 4; use parameter nfsOptions for options of the kernel's NFS client"},
		"a version that shares do not speak → refused":              {of(multiNode, "nfsvers=3"), "mountOptions: nfsvers=3"},
		"for a file system on a device, which one node has → made":  {of(one, "discard", "data=ordered"), ""},
		"shared by a parameter, for a file system on a device → no": {withShare(of(one, "discard")), "mountOptions: discard"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := volumeRequest(c.req)
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.err)
		})
	}
}

func withShare(req *csipb.CreateVolumeRequest) *csipb.CreateVolumeRequest {
	req.Parameters = map[string]string{paramShare: "true"}
	return req
}

func TestAShareIsMountedWithTheMountOptionsOfItsClass(t *testing.T) {
	h := newSharedHost(t)
	h.as.GetMount().MountFlags = []string{"nfsvers=4.1", "hard", "timeo=600", "noatime"}
	wantCode(t, "stage", h.stage(t), codes.OK)
	assert.Equal(t, []string{"mount 10.0.0.1:/pvc-1 vers=4.1,noresvport,hard,timeo=600,retrans=5,addr=10.0.0.1,clientaddr=10.9.0.2"}, h.nfs.calls)
}
