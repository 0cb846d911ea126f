package reach

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAny(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listens := l.Addr().String()
	defer l.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	refuses := closed.Addr().String()
	require.NoError(t, closed.Close())
	silent := silentAddress(t)

	assert.True(t, Any(t.Context(), []string{listens}))
	assert.True(t, Any(t.Context(), []string{refuses}), "what refuses lives")
	assert.True(t, Any(t.Context(), []string{silent, "no address", refuses}))
	assert.False(t, Any(t.Context(), nil))
	began := time.Now()
	assert.False(t, Any(t.Context(), []string{silent}))
	assert.Less(t, time.Since(began), time.Minute, "it waits for ever")
}

// silentAddress is an address that does not answer: its queue of connections is full.
func silentAddress(t *testing.T) string {
	t.Helper()
	l, err := listenWithoutQueue()
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	for {
		conn, err := net.DialTimeout("tcp", l.Addr().String(), 100*time.Millisecond)
		if err != nil {
			return l.Addr().String()
		}
		t.Cleanup(func() { conn.Close() })
	}
}

func listenWithoutQueue() (net.Listener, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, 0); err != nil {
		return nil, err
	}
	return net.FileListener(f)
}
