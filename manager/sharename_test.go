package manager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// The Service of a share has the volume's name, which must start with a letter. For kubectl the refusal has the same
// words (test/policy).
func TestTheNameOfASharedVolumeStartsWithALetter(t *testing.T) {
	const rule = `name: "2024-media" must start with a letter if accessMode is rwx: the Service of a shared volume has the volume's name`
	b := newBench(t, threeNodes()...)
	_, err := b.CreateVolume(t.Context(), VolumeRequest{Name: "2024-media", Size: "1Gi", AccessMode: "rwx"})
	wantInvalid(t, err, "name", rule)
	b.ExpectWrites()
	_, err = b.CreateVolume(t.Context(), VolumeRequest{Name: "2024-media", Size: "1Gi"})
	require.NoError(t, err)
	b.ExpectWrites("create volumes/2024-media")
	b.CatchUp()
	_, err = b.UpdateVolume(t.Context(), "2024-media", VolumeUpdate{AccessMode: ptr("rwx")})
	wantInvalid(t, err, "name", rule)
	b.ExpectWrites()

	// A volume that an earlier release accepted.
	b = newBench(t, append(threeNodes(), build.Volume("2024-media", func(v *longhorn.Volume) { v.Spec.AccessMode = longhorn.AccessModeReadWriteMany }))...)
	_, err = b.UpdateVolume(t.Context(), "2024-media", VolumeUpdate{NumberOfReplicas: ptr(2)})
	require.NoError(t, err)
	b.ExpectWrites("update volumes/2024-media")
	b.CatchUp()
	v, err := b.UpdateVolume(t.Context(), "2024-media", VolumeUpdate{AccessMode: ptr("rwo")})
	require.NoError(t, err)
	assert.Equal(t, longhorn.AccessModeReadWriteOnce, v.Volume.Spec.AccessMode)
}
