package replica

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// countedFile is a data file with functions that the test sets.
type countedFile struct {
	fsys.File
	write     func() error
	unwritten func() (int64, error)
}

func (f *countedFile) WriteAt([]byte, int64) error { return f.write() }
func (f *countedFile) WriteBack() error            { return nil }
func (f *countedFile) Datasync() error             { return nil }
func (f *countedFile) Unwritten() (int64, error)   { return f.unwritten() }

// newCounted returns a writeback with a share of 16 KiB.
func newCounted(t *testing.T) (*countedFile, *writeback) {
	t.Helper()
	f := &countedFile{
		write:     func() error { return nil },
		unwritten: func() (int64, error) { return 0, syscall.EOPNOTSUPP },
	}
	p := NewPace()
	p.least, p.most = 16<<10, 16<<10
	p.limit.Store(16 << 10)
	return f, newWriteback(f, p, clock.RealClock{}, func() error { return nil }, func(err error) { t.Error(err) })
}

// Any part of a write that failed for lack of space may be in the file, and so in the kernel.
func TestAWriteThatFailedIsUnsettled(t *testing.T) {
	f, w := newCounted(t)
	f.write = func() error { return syscall.ENOSPC }
	require.ErrorIs(t, w.WriteAt(make([]byte, 512), 0), syscall.ENOSPC)
	assert.EqualValues(t, 512, w.unsettled())
	require.NoError(t, w.Datasync())
	assert.Zero(t, w.unsettled())
}

// The kernel's answer is older than a write that ends during the question.
func TestDataWrittenDuringAMeasurementIsNotCounted(t *testing.T) {
	f, w := newCounted(t)
	w.written.Add(4096)
	f.unwritten = func() (int64, error) {
		w.written.Add(512)
		return 0, nil
	}
	require.True(t, w.measure())
	assert.EqualValues(t, 512, w.backlog())
}

// A write that finds a write-out running leaves the work to that write-out, even if the write-out is about to end. Each
// round writes at a different time.
func TestAWriteAtTheEndOfAWriteOutIsWrittenOut(t *testing.T) {
	f, w := newCounted(t)
	var asked atomic.Bool
	f.unwritten = func() (int64, error) {
		asked.Store(true) // from here on the write-out needs only a few steps to end
		return 0, nil
	}
	var steps atomic.Int64
	for round := range int64(100_000) {
		asked.Store(false)
		w.wrote(16 << 10)
		for !asked.Load() {
			runtime.Gosched()
		}
		for range round % 100 {
			steps.Add(1)
		}
		w.wrote(16 << 10)
		w.goroutine.Wait()
		require.False(t, w.isWorthIt(), "round %d: %d bytes are left", round, w.backlog())
	}
}
