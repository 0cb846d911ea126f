package replica

import (
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// tellingFile is a file of a kernel that reports how much data it has not written out.
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

// tell makes the kernel report that it has not written out has bytes of the replica's data.
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

// The kernel has one copy of a block that is overwritten, so a flush finds the block once.
func TestOverwrittenDataIsNotWrittenOut(t *testing.T) {
	_, r, s := boundedReplica(t) // with a limit of 16 KiB
	f := tell(r, 4096)
	writeBlocks(t, r, s, 41)
	assert.Zero(t, f.writtenBack.Load(), "write-outs")
	assert.Equal(t, int32(14), f.asked.Load(), "questions: at the second block, then as soon as 14 KiB may be there")
	assert.Equal(t, int64(41*4096), r.out.unsettled(), "bytes are not known to be on the disk")
	assert.Equal(t, int64(4096), r.out.backlog())
}

func TestUnwrittenDataOfTheKernelIsWrittenOut(t *testing.T) {
	_, r, s := boundedReplica(t)
	f := tell(r, 13<<10)
	writeBlocks(t, r, s, 1)
	assert.Zero(t, f.writtenBack.Load(), "write-outs")
	writeBlocks(t, r, s, 3) // the second write causes the first question, which finds room
	assert.Equal(t, int32(1), f.writtenBack.Load(), "write-outs")
	assert.Zero(t, r.out.unsettled())
	f.has.Store(13<<10 - 1)
	writeBlocks(t, r, s, 8)
	assert.Equal(t, int32(1), f.writtenBack.Load(), "write-outs")
	f.has.Store(1 << 30) // pages are larger than the data that was written to them
	writeBlocks(t, r, s, 1)
	assert.Equal(t, int32(2), f.writtenBack.Load(), "write-outs")
	assert.Zero(t, r.out.unsettled())
}

// Room becomes available as a write-out proceeds: a writer does not wait for the end of the write-out.
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

// Writers that wait for room continue as soon as the kernel reports less data, although nothing was written out.
func TestDataThatTheKernelWroteOutMakesRoom(t *testing.T) {
	_, r, s := boundedReplica(t)
	f := tell(r, 0)
	r.out.written.Add(1 << 20) // while no goroutine reads it
	require.NoError(t, s.WriteAt(t.Context(), make([]byte, 4096), 0, false))
	assert.Zero(t, f.writtenBack.Load(), "write-outs")
	assert.LessOrEqual(t, r.out.backlog(), int64(4096))
}

// If the kernel no longer has some data, it may have failed to write it out and dropped it. So a read checks for this.
func TestDataThatTheKernelDroppedDoesNotCountAsStored(t *testing.T) {
	f, r, s := boundedReplica(t)
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, false))
	require.NoError(t, s.Flush(t.Context()))
	tell(r, 0)
	for range 22 {
		require.NoError(t, s.WriteAt(t.Context(), append(stampBlock(2), make([]byte, 3584)...), 0, false))
		waitFor(t, func() bool { return !r.out.running.Load() }) // so that the kernel is also asked after the last block
	}
	require.Zero(t, r.out.backlog())
	require.NotZero(t, r.out.unsettled())
	f.LoseUnsynced(dataName)
	err := s.ReadAt(t.Context(), make([]byte, 512), 0)
	require.Error(t, err, "it read the bytes from before")
	assert.ErrorIs(t, r.State().Failure, syscall.EIO)
}
