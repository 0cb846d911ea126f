package replica

import (
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
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
	_, r, s := boundedReplica(t) // of 16 KiB
	f := tell(r, 4096)
	writeBlocks(t, r, s, 41)
	assert.Zero(t, f.writtenBack.Load(), "write-outs")
	assert.Equal(t, int32(14), f.asked.Load(), "questions: at the second block, then as soon as 14 KiB may be there")
	assert.Equal(t, int64(41*4096), r.out.unsettled(), "bytes are not known to be on the disk")
	assert.Equal(t, int64(4096), r.out.backlog())
}

func TestWhatTheKernelHasIsWrittenOut(t *testing.T) {
	_, r, s := boundedReplica(t)
	f := tell(r, 13<<10)
	writeBlocks(t, r, s, 1)
	assert.Zero(t, f.writtenBack.Load(), "write-outs")
	writeBlocks(t, r, s, 3) // the second is the first question, which has room left
	assert.Equal(t, int32(1), f.writtenBack.Load(), "write-outs")
	assert.Zero(t, r.out.unsettled())
	f.has.Store(13<<10 - 1)
	writeBlocks(t, r, s, 8)
	assert.Equal(t, int32(1), f.writtenBack.Load(), "write-outs")
	f.has.Store(1 << 30) // pages are larger than what was written to them
	writeBlocks(t, r, s, 1)
	assert.Equal(t, int32(2), f.writtenBack.Load(), "write-outs")
	assert.Zero(t, r.out.unsettled())
}

// Room opens as a write-out proceeds: a writer does not wait for its end.
func TestAWriteOutThatProceedsMakesRoom(t *testing.T) {
	fs, r, s := boundedReplica(t)
	f := tell(r, 16<<10)
	asked, release := hang(t, fs, "writeback", dataName)
	for i := range int64(4) {
		require.NoError(t, s.WriteAt(t.Context(), make([]byte, 4096), i*4096, false))
	}
	<-asked
	wrote := make(chan error, 1)
	go func() { wrote <- s.WriteAt(t.Context(), make([]byte, 4096), 0, false) }()
	before := f.asked.Load()
	waitFor(t, func() bool { return f.asked.Load() > before+1 })
	assert.Empty(t, wrote, "written without room")
	f.has.Store(8 << 10)
	require.NoError(t, <-wrote)
	assert.NotZero(t, r.out.unsettled())
	release()
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
	for range 22 {
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
