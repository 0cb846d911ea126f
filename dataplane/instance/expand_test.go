package instance

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// grow increases the size of the replica of a node, and returns its state.
func (n *node) grow(size int64) *proto.ReplicaState {
	n.t.Helper()
	s := n.replicaSpec()
	s.SizeBytes = size
	state, err := n.ReplicaStart(n.t.Context(), s)
	require.NoError(n.t, err)
	return state
}

// A volume with local and remote replicas grows while it is used, step by step as the control plane does it.
func TestAVolumeGrowsWhileItIsUsed(t *testing.T) {
	const size = 3 * testSize
	ctx := t.Context()
	c := newCluster(t)
	home := c[0]
	epoch := c.startEngine(home, c.engineSpec(1, nil))
	v, err := home.dialTool("engine/" + volume)
	require.NoError(t, err)
	want := fill(t, v, 1)
	require.NoError(t, v.Close())

	expand := &proto.EngineExpandRequest{Name: volume + "-e-0", Session: "session-1", SizeBytes: size}
	require.Equal(t, int64(size), home.grow(size).GetSizeBytes())
	require.Equal(t, int64(size), c[1].grow(size).GetSizeBytes())
	_, err = home.EngineExpand(ctx, expand)
	require.Equal(t, reasonTooSmall, reason(err), err)
	require.Equal(t, int64(testSize), home.untilEngine(proto.Phase_PHASE_RUNNING).GetSizeBytes())

	require.Equal(t, int64(size), c[2].grow(size).GetSizeBytes())
	_, err = home.EngineExpand(ctx, &proto.EngineExpandRequest{Name: volume + "-e-0", Session: "session-0", SizeBytes: size})
	require.Equal(t, reasonSession, reason(err), err)
	_, err = home.EngineExpand(ctx, &proto.EngineExpandRequest{Name: volume + "-e-1", Session: "session-1", SizeBytes: size})
	require.Equal(t, reasonNotHosted, reason(err), err)
	for range 2 {
		_, err = home.EngineExpand(ctx, expand)
		require.NoError(t, err)
	}
	home.until("the new size", func(s *proto.State) bool { return s.GetEngines()[0].GetSizeBytes() == size })

	v, err = home.dialTool("engine/" + volume)
	require.NoError(t, err)
	require.Equal(t, int64(size), v.Size())
	head, tail := make([]byte, 4096), []byte(strings.Repeat("beyond..", 512))
	require.NoError(t, v.ReadAt(ctx, head, testSize))
	assert.Equal(t, make([]byte, 4096), head, "what was never written")
	require.NoError(t, v.WriteAt(ctx, tail, size-4096, true))
	require.NoError(t, v.Close())
	home.stopEngine()

	// An engine on another node finds all the data, with the new size.
	c.startEngine(c[2], c.sized(c.engineSpec(2, epoch), size))
	v, err = c[2].dialTool("engine/" + volume)
	require.NoError(t, err)
	got := make([]byte, 4096)
	require.NoError(t, v.ReadAt(ctx, got, size-4096))
	assert.Equal(t, tail, got)
	assert.Equal(t, want, hashOf(t, v))
	require.NoError(t, v.Close())
	c[2].stopEngine()
}

func (c cluster) sized(s *proto.EngineSpec, size int64) *proto.EngineSpec {
	s.SizeBytes = size
	return s
}

// A device grows with its volume, repeatedly. The sizes end anywhere in a page and in a region, up to the largest size
// that the regions allow. Each time the end of the device can be written.
func TestADeviceGrowsWithItsVolume(t *testing.T) {
	needDevices(t)
	n := newNode(t, 1)
	_, device := n.withDevice()
	for _, size := range []int64{testSize + 512, testSize + 4096 + 512, 2*testSize - 512, 2 * testSize, 1 << 40} {
		require.Equal(t, size, n.grow(size).GetSizeBytes())
		_, err := n.EngineExpand(t.Context(), &proto.EngineExpandRequest{Name: volume + "-e-0", Session: "session-1", SizeBytes: size})
		require.NoError(t, err)
		out, err := exec.Command("blockdev", "--getsize64", device).Output()
		require.NoError(t, err)
		assert.Equal(t, strconv.FormatInt(size, 10), strings.TrimSpace(string(out)))
		f, err := os.OpenFile(device, os.O_RDWR, 0)
		require.NoError(t, err)
		_, err = f.WriteAt(bytes.Repeat([]byte("end!"), 128), size-512)
		require.NoError(t, errors.Join(err, f.Sync(), f.Close()))
	}
	n.stopEngine()
}

// Sizes that do not match the replica's regions, or the block size, are refused, and the user of the replica continues.
func TestSizesThatNoReplicaGrowsTo(t *testing.T) {
	c := newCluster(t)
	home := c[0]
	c.startEngine(home, c.engineSpec(1, nil))
	for _, size := range []int64{math.MinInt64, -512, 0, testSize - 512, testSize + 100, 3 << 40, 1 << 62, math.MaxInt64 - 511, math.MaxInt64} {
		for _, n := range c {
			assert.Equal(t, int64(testSize), n.grow(size).GetSizeBytes(), size)
		}
		_, err := home.EngineExpand(t.Context(), &proto.EngineExpandRequest{Name: volume + "-e-0", Session: "session-1", SizeBytes: size})
		if size != testSize-512 { // a size below the current one is no error
			require.Error(t, err, size)
		}
	}
	assert.Equal(t, int64(testSize), home.untilEngine(proto.Phase_PHASE_RUNNING).GetSizeBytes())
	v, err := home.dialTool("engine/" + volume)
	require.NoError(t, err)
	require.NoError(t, v.WriteAt(t.Context(), make([]byte, 512), testSize-512, true))
	require.NoError(t, v.Close())
	home.stopEngine()
}

// The reason shows the caller whether a refusal is temporary.
func TestAnExpansionThatWaitsForAnEpochInVainIsBusy(t *testing.T) {
	err := toStatus(fmt.Errorf("expand the volume to 512 bytes: %w: replica vol-r-1", engine.ErrLeaving))
	assert.Equal(t, reasonBusy, reason(err), err)
}

// A daemon with an older object starts a replica with the size from before the growth. The replica keeps its size. When
// it is stopped, it can still be fenced and read.
func TestAReplicaThatIsStartedWithASmallerSizeCanBeFenced(t *testing.T) {
	const size = 2 * testSize
	c := newCluster(t)
	n := c[0]
	require.Equal(t, int64(size), n.grow(size).GetSizeBytes())
	require.Equal(t, int64(size), n.grow(testSize).GetSizeBytes())
	require.NoError(t, n.stopReplica(0))
	v, err := n.dialTool("ro/" + n.replicaName())
	require.NoError(t, err)
	require.Equal(t, int64(size), v.Size())
	require.NoError(t, v.Close())
	require.NoError(t, n.stopReplica(7))
}
