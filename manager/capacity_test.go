package manager

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

const gib = int64(1) << 30

// The disks of threeNodes have 100 GiB. No result may exceed that, and a quarter must stay free.
func TestCapacityIsTheLargestPossibleVolume(t *testing.T) {
	strict := VolumeRequest{DataLocality: "strict-local"}
	for _, c := range []struct {
		name string
		req  VolumeRequest
		node string
		none bool
	}{
		{"three replicas on three nodes", VolumeRequest{NumberOfReplicas: 3}, "", false},
		{"used on one of our nodes", VolumeRequest{NumberOfReplicas: 3}, "node-1", false},
		{"used on a node that is not ours", VolumeRequest{NumberOfReplicas: 3}, "other", true},
		{"strictly local, on any node", strict, "", false},
		{"strictly local, on a node", strict, "node-2", false},
		{"with a tag that a disk has", VolumeRequest{NumberOfReplicas: 1, DiskSelector: []string{"ssd"}}, "", false},
		{"with a tag that no disk has", VolumeRequest{NumberOfReplicas: 1, DiskSelector: []string{"nvme"}}, "", true},
		{"strictly local, where the tagged disk is not", VolumeRequest{DataLocality: "strict-local", DiskSelector: []string{"ssd"}}, "node-1", true},
		{"strictly local, where the tagged disk is", VolumeRequest{DataLocality: "strict-local", DiskSelector: []string{"ssd"}}, "node-2", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, threeNodes()...)
			size, err := b.Capacity(c.req, c.node)
			require.NoError(t, err)
			if c.none {
				assert.Zero(t, size)
				return
			}
			require.Positive(t, size)
			assert.LessOrEqual(t, size, 100*gib)
			b.ExpectWrites() // nothing is created

			// Creation accepts the returned size, and refuses one unit more.
			fits := c.req
			fits.Name, fits.MustFit, fits.Size = "fits", true, strconv.FormatInt(size, 10)
			_, err = b.CreateVolume(t.Context(), fits)
			require.NoError(t, err)
			larger := newBench(t, threeNodes()...)
			fits.Size = strconv.FormatInt(size+sizeUnit, 10)
			_, err = larger.CreateVolume(t.Context(), fits)
			assert.ErrorIs(t, err, ErrInsufficient)
		})
	}
}

func TestCapacityFollowsTheSettings(t *testing.T) {
	four := VolumeRequest{NumberOfReplicas: 4}
	size, err := newBench(t, threeNodes()...).Capacity(four, "")
	require.NoError(t, err)
	assert.Positive(t, size, "three of four replicas are enough")
	size, err = newBench(t, append(threeNodes(), build.Setting(settings.AllowVolumeCreationWithDegradedAvailability, "false"))...).Capacity(four, "")
	require.NoError(t, err)
	assert.Zero(t, size)
	size, err = newBench(t, append(threeNodes(), build.Setting(settings.OverProvisioningPercentage, "0"))...).Capacity(VolumeRequest{}, "")
	require.NoError(t, err)
	assert.Zero(t, size)
}

func TestCapacityOfWhatBreaksARuleIsRefused(t *testing.T) {
	_, err := newBench(t, threeNodes()...).Capacity(VolumeRequest{NumberOfReplicas: 21}, "")
	wantInvalid(t, err, "numberOfReplicas", `numberOfReplicas: "21" must be 1 to 20, or 0 for the value of setting default-replica-count`)
	_, err = newBench(t, threeNodes()...).Capacity(VolumeRequest{DataLocality: "near"}, "")
	require.Error(t, err)
}

func TestLargest(t *testing.T) {
	for _, want := range []int64{0, 1, 2, 3, 7, 8, 9, 1000, math.MaxInt64 / sizeUnit} {
		got, err := largest(func(n int64) (bool, error) { return n <= want, nil }, math.MaxInt64/sizeUnit)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := largest(func(int64) (bool, error) { return false, assert.AnError }, 8)
	assert.ErrorIs(t, err, assert.AnError)
}
