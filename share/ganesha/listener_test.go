package ganesha

import (
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestAListenerKeepsConnections: clients of all nodes may connect before a server accepts any of them.
func TestAListenerKeepsConnections(t *testing.T) {
	l, err := Listen(0, "listener.go") // any existing file
	require.NoError(t, err)
	address, err := unix.Getsockname(int(l.file.Fd()))
	require.NoError(t, err)
	var port int
	switch a := address.(type) {
	case *unix.SockaddrInet6:
		port = a.Port
	case *unix.SockaddrInet4:
		port = a.Port
	}
	for range 100 {
		conn, err := net.DialTimeout("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), time.Minute)
		require.NoError(t, err)
		defer conn.Close()
	}
	alive, err := unix.GetsockoptInt(int(l.file.Fd()), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
	require.NoError(t, err)
	assert.Equal(t, 1, alive, "connections inherit it, also those that no server has accepted")

	cmd := exec.Command("server")
	l.pass(cmd)
	assert.Equal(t, []string{"LONGHORN_LISTEN_FD=3"}, cmd.Env)
	require.NoError(t, l.Close())
	_, err = net.DialTimeout("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), time.Minute)
	require.Error(t, err)
}

func TestWithoutTheLibraryNoListener(t *testing.T) {
	l, err := Listen(0, filepath.Join(t.TempDir(), "none"))
	require.NoError(t, err)
	assert.Nil(t, l)
	require.NoError(t, l.Close())
	cmd := exec.Command("server")
	l.pass(cmd)
	assert.Empty(t, cmd.Env)
	assert.Empty(t, cmd.ExtraFiles)
}
