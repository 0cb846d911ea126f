package holder

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestOneHolderOfANodeHasTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := takeLock(path)
	require.NoError(t, err)
	_, err = takeLock(path)
	require.ErrorIs(t, err, unix.EWOULDBLOCK)
	require.NoError(t, first.Close())
	next, err := takeLock(path)
	require.NoError(t, err)
	require.NoError(t, next.Close())
}

// Holder and serving process die at once, and the next holder creates devices of the other kind. A program that waits
// for the old device gets an error. A holder that starts while the first holder lives takes nothing from it.
func TestTheNextHolderEndsWhatOneThatDiedHasLeft(t *testing.T) {
	if os.Getenv(nbdEnv) == "" {
		t.Skip("needs the kernel's NBD client")
	}
	r := newRig(t)
	s := r.serving(0)
	held := s.Devices[0]
	require.True(t, isConfigured(t, held))

	first, ended := r.holder, r.ended
	lock, err := takeLock(r.control() + ".lock")
	require.ErrorIs(t, err, unix.EWOULDBLOCK, "the first holder has no lock: %v", lock)
	r.flag(onlyFUSE)

	resume := r.disk.pause()
	defer resume()
	file, err := os.OpenFile(r.path(), os.O_WRONLY|unix.O_DIRECT, 0)
	require.NoError(t, err)
	defer file.Close()
	written := make(chan error, 1)
	go func() {
		block, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err == nil {
			_, err = file.Write(block)
		}
		written <- err
	}()
	awaitThreadsInKernel(t, os.Getpid())
	// The holder does not notice the death of the serving process.
	require.NoError(t, syscall.Kill(first.Process.Pid, syscall.SIGSTOP))
	require.NoError(t, syscall.Kill(s.PID, syscall.SIGKILL))
	require.NoError(t, syscall.Kill(first.Process.Pid, syscall.SIGKILL))
	require.Error(t, <-ended)
	assert.True(t, isConfigured(t, held), "who would have ended it?")

	r.start()
	select {
	case err := <-written:
		assert.True(t, errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENODEV), "%v", err)
	case <-time.After(time.Minute):
		t.Error("the write waits for ever")
	}
	require.NoError(t, file.Close())
	r.expectNothingLeft(held, true)
}
