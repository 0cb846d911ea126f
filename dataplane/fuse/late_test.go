package fuse

import (
	"bytes"
	"context"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// lateStore leaves each read of its first half behind in a disk that hangs, and answers the read from other memory.
type lateStore struct {
	*store
	mu    sync.Mutex
	err   error         // guarded by mu; error of the reads from other memory
	left  [][]byte      // guarded by mu; the memory that the disk will write to
	thaws chan struct{} // closed when the disk answers
}

func (s *lateStore) ReadLate(ctx context.Context, p []byte, off int64, elsewhere func([]byte, error)) (bool, error) {
	if left, err := s.read(ctx, p, off, elsewhere); !left {
		return false, err
	}
	<-s.thaws
	for i := range p {
		p[i] = 0xee
	}
	return true, nil
}

func (s *lateStore) read(ctx context.Context, p []byte, off int64, elsewhere func([]byte, error)) (left bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off >= testSize/2 {
		err := s.ReadAt(ctx, p, off)
		for _, left := range s.left { // the disk answers at this moment
			for i := range left {
				left[i] = 0xee
			}
		}
		return false, err
	}
	s.left = append(s.left, p)
	got, failed := make([]byte, len(p)), s.err
	if failed == nil {
		failed = s.ReadAt(ctx, got, off)
	}
	go elsewhere(got, failed)
	return true, nil
}

// Reads are left behind in a disk that hangs, more reads than a server has buffers. All are answered, and none waits
// for a buffer. The data that the disk finally writes appears in none of the earlier answers.
func TestABufferThatADiskStillUsesIsUsedForNothingElse(t *testing.T) {
	s := &lateStore{thaws: make(chan struct{})}
	k := newKernelWith(t, func(server *Server) {
		s.store = server.backend.(*store)
		server.backend = s
	})
	for i := range s.data {
		s.data[i] = byte(i>>12) | 1
	}
	const n = 256 << 10
	read := func(off uint64) {
		t.Helper()
		status, p := k.ask(opRead, imageNode, readBody(off, n))
		require.Zero(t, status)
		assert.True(t, bytes.Equal(s.data[off:off+n], p), "other bytes at %d", off)
	}
	for i := range uint64(large.most + 8) {
		read(i % 4 * n)
		read(testSize - n)
	}
	assert.Len(t, s.left, large.most+8)
	s.err = unix.EIO
	status, _ := k.ask(opRead, imageNode, readBody(0, 4096))
	assert.Equal(t, unix.EIO, status)
	s.err = nil
	status, p := k.ask(opRead, imageNode, readBody(4096, 4096))
	assert.Zero(t, status)
	assert.Equal(t, s.data[4096:8192], p)
	read(testSize - n)
	close(s.thaws)
	k.hangUp() // and all buffers were returned
}

// A read that cannot be left behind is served in the usual way.
func TestABackendThatLeavesNothingBehindIsAskedToRead(t *testing.T) {
	k := newKernel(t)
	k.store.data[5] = 7
	status, p := k.ask(opRead, imageNode, readBody(5, 1))
	assert.Equal(t, syscall.Errno(0), status)
	assert.Equal(t, []byte{7}, p)
}
