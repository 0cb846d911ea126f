package replica

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// badSector is a disk that cannot read one byte.
type badSector struct {
	blocks
	at int64
}

func (f badSector) ReadAt(p []byte, off int64) error {
	if off <= f.at && f.at < off+int64(len(p)) {
		return syscall.EIO
	}
	return f.blocks.ReadAt(p, off)
}

// A replica that was left out because of a failed read comes back by a copy of the data that it lacks. This copy must
// include the data that it could not read.
func TestARegionThatCouldNotBeReadIsMarked(t *testing.T) {
	f := newCrashDisk(t)
	r, s := awaySince(t, f)
	r.data = badSector{blocks: r.data, at: 4*r.regionBytes + 512}
	require.NoError(t, s.ReadAt(t.Context(), make([]byte, 512), 4*r.regionBytes))
	require.Error(t, s.ReadAt(t.Context(), make([]byte, 512), r.Size()), "past the end")
	require.Empty(t, r.intents.marked())
	require.ErrorIs(t, s.ReadAt(t.Context(), make([]byte, 4096), 4*r.regionBytes), syscall.EIO)
	assert.Equal(t, []int64{4}, r.intents.marked())
	require.NoError(t, r.State().Failure)
	require.NoError(t, s.ReadAt(t.Context(), make([]byte, 512), 0), "the replica goes on")
	require.NoError(t, record(s, epoch(1, 3, "b")))
	assert.Equal(t, epoch(1, 2, self, "b"), s.state().Base)
	f.Crash(rand.New(rand.NewPCG(1, 0)))
	r = openReplica(t, f, crashDir, testSpec("uid-1", crashSize), otherBoot)
	assert.Equal(t, []int64{4}, r.intents.marked(), "after a loss of power")
}

// A tool that reads a replica which was closed in order does not change the replica.
func TestAViewThatCannotReadMarksNothing(t *testing.T) {
	f := newCrashDisk(t)
	r := openReplica(t, f, crashDir, testSpec("uid-1", crashSize), testBoot)
	r.data = badSector{blocks: r.data}
	v, err := r.View()
	require.NoError(t, err)
	defer func() { assert.NoError(t, v.Close()) }()
	require.ErrorIs(t, v.ReadAt(t.Context(), make([]byte, 512), 0), syscall.EIO)
	assert.Empty(t, r.intents.marked())
}

func TestAReplicaThatCanNeitherReadNorMarkHasNoBase(t *testing.T) {
	f := newCrashDisk(t)
	r, s := awaySince(t, f)
	r.data = badSector{blocks: r.data}
	f.Before(func(op memfs.Op) error {
		if op.Name == intentName {
			return syscall.EROFS
		}
		return nil
	})
	require.ErrorIs(t, s.ReadAt(t.Context(), make([]byte, 512), 0), syscall.EIO)
	f.Before(nil)
	require.NoError(t, r.State().Failure, "the last copy serves what can be read")
	require.NoError(t, record(s, epoch(1, 3, "b")))
	assert.Zero(t, s.state().Base)
}
