package fuse

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// countedConn tells each time when the server has nothing to do but to wait in the poller.
type countedConn struct {
	syscall.RawConn
	parked chan struct{}
}

func (c countedConn) Read(f func(fd uintptr) bool) error {
	return c.RawConn.Read(func(fd uintptr) bool {
		done := f(fd)
		if !done {
			c.parked <- struct{}{}
		}
		return done
	})
}

// After a request the server waits for the next one in its own thread, and takes it without the poller. When none came in time the
// connection is left to the poller, until there is one.
func TestTheNextRequestIsTakenWithoutThePoller(t *testing.T) {
	waits, answer := make(chan time.Duration), make(chan bool, 1)
	parked := make(chan struct{}, 16)
	k := newKernelWith(t, func(s *Server) {
		s.raw = countedConn{RawConn: s.raw, parked: parked}
		s.isReadable = func(fd int, patience time.Duration) bool {
			select {
			case waits <- patience:
				return <-answer && isReadable(fd, time.Minute)
			case <-t.Context().Done(): // the test has failed
				return false
			}
		}
	})
	ask := func() {
		k.send(opFsync, 1, imageNode, make([]byte, 16))
	}
	await(t, parked) // it is cold: nothing was asked yet
	ask()
	for range 3 {
		require.Equal(t, 10*time.Millisecond, await(t, waits))
		_, status, _ := k.reply()
		require.Zero(t, status)
		ask()
		answer <- true
	}
	await(t, waits)
	assert.Empty(t, parked, "requests were waited for in the poller")
	answer <- false
	await(t, parked)
	_, status, _ := k.reply()
	require.Zero(t, status)

	ask()
	await(t, waits) // it is warm again
	answer <- false
	await(t, parked)
	_, status, _ = k.reply()
	require.Zero(t, status)
	assert.Equal(t, 5, k.store.flushes)
}

func await[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("the server does something else")
	}
	return v
}

func TestIsReadable(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(pair[0])
	began := time.Now()
	assert.False(t, isReadable(pair[0], 5*time.Millisecond))
	assert.GreaterOrEqual(t, time.Since(began), 5*time.Millisecond)
	_, err = unix.Write(pair[1], []byte("x"))
	require.NoError(t, err)
	assert.True(t, isReadable(pair[0], time.Minute))
	_, err = unix.Read(pair[0], make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, unix.Close(pair[1]))
	assert.True(t, isReadable(pair[0], time.Minute), "the end of a connection is something to read")
}
