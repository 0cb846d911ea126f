package replica

import (
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/replica/fsys"
)

// tellingFile is a file of a kernel that tells what it has not written out.
type tellingFile struct {
	fsys.File
	has                atomic.Int64
	asked, writtenBack atomic.Int32
}

func (f *tellingFile) Unwritten() (int64, error) {
	f.asked.Add(1)
	return f.has.Load(), nil
}

func (f *tellingFile) WriteBack() error {
	f.writtenBack.Add(1)
	return f.File.WriteBack()
}

// tell has the kernel say that it has so much of the replica's data.
func tell(r *Replica, has int64) *tellingFile {
	f := &tellingFile{File: r.out.File}
	f.has.Store(has)
	r.out.File = f
	return f
}

// writeBlocks writes n blocks of 4 KiB to one place, and waits for the goroutine that these may have started.
func writeBlocks(t *testing.T, r *Replica, s *Session, n int) {
	t.Helper()
	for range n {
		require.NoError(t, s.WriteAt(t.Context(), make([]byte, 4096), 0, false))
		waitFor(t, func() bool { return !r.out.running.Load() })
	}
}

// The kernel has a block that is overwritten once, so a flush finds it once.
func TestWhatWasOverwrittenIsNotWrittenOut(t *testing.T) {
	_, r, s := boundedReplica(t) // 8 KiB are worth it
	f := tell(r, 4096)
	writeBlocks(t, r, s, 40)
	assert.Zero(t, f.writtenBack.Load(), "write-outs")
	assert.Equal(t, int32(39), f.asked.Load(), "questions: at the second block, and with each one more")
	assert.Equal(t, int64(40*4096), r.out.unsettled(), "bytes are not known to be on the disk")
	assert.Equal(t, int64(4096), r.out.backlog())
}

func TestWhatTheKernelHasIsWrittenOut(t *testing.T) {
	_, r, s := boundedReplica(t)
	f := tell(r, 6<<10) // three quarters of what is worth it
	writeBlocks(t, r, s, 2)
	assert.Equal(t, int32(1), f.writtenBack.Load(), "write-outs")
	assert.Zero(t, r.out.unsettled())
	f.has.Store(1 << 30) // pages are larger than what was written to them
	writeBlocks(t, r, s, 2)
	assert.Equal(t, int32(2), f.writtenBack.Load(), "write-outs")
	assert.Zero(t, r.out.unsettled())
}

// Those that wait for room go on as soon as the kernel turns out to have less, though nothing was written out.
func TestWhatTheKernelHasNoMoreMakesRoom(t *testing.T) {
	_, r, s := boundedReplica(t)
	f := tell(r, 0)
	r.out.written.Add(1 << 20) // while no goroutine looked at it
	require.NoError(t, s.WriteAt(t.Context(), make([]byte, 4096), 0, false))
	assert.Zero(t, f.writtenBack.Load(), "write-outs")
	assert.LessOrEqual(t, r.out.backlog(), int64(4096))
}

// A kernel that has nothing more may have failed to write it out, and dropped it: a read asks for that all the same.
func TestWhatTheKernelHasNoMoreIsNotTakenForStored(t *testing.T) {
	f, r, s := boundedReplica(t)
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, false))
	require.NoError(t, s.Flush(t.Context()))
	tell(r, 0)
	for range 20 {
		require.NoError(t, s.WriteAt(t.Context(), append(stampBlock(2), make([]byte, 3584)...), 0, false))
		waitFor(t, func() bool { return !r.out.running.Load() }) // so that the last block is asked about too
	}
	require.Zero(t, r.out.backlog())
	require.NotZero(t, r.out.unsettled())
	f.LoseUnsynced(dataName)
	err := s.ReadAt(t.Context(), make([]byte, 512), 0)
	require.Error(t, err, "it read the bytes from before")
	assert.ErrorIs(t, r.State().Failure, syscall.EIO)
}
