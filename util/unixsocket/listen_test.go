package unixsocket

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestASocketOfThisUserAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	l, err := Listen(path)
	require.NoError(t, err)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.ModeSocket|0o600, info.Mode())
	assert.Equal(t, path, l.Addr().String())
	names, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	require.NoError(t, err)
	assert.Empty(t, names, "nothing else is left in the directory")

	go func() {
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
		}
	}()
	c, err := net.Dial("unix", path)
	require.NoError(t, err)
	require.NoError(t, c.Close())

	require.NoError(t, l.Close())
	assert.NoFileExists(t, path)
	assert.Error(t, l.Close(), "it is closed")
}

// The path never has another mode, and the name under which the socket is created starts with a dot.
func TestTheModeIsSetBeforeTheSocketHasItsName(t *testing.T) {
	dir := t.TempDir()
	stop, seen := make(chan struct{}), make(chan map[string]fs.FileMode)
	go func() {
		modes := map[string]fs.FileMode{}
		for {
			select {
			case <-stop:
				seen <- modes
				return
			default:
			}
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				if info, err := e.Info(); err == nil && !strings.HasPrefix(e.Name(), ".") {
					modes[e.Name()] |= info.Mode().Perm()
				}
			}
		}
	}()
	for range 300 {
		l, err := Listen(filepath.Join(dir, "s.sock"))
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
	close(stop)
	for name, mode := range <-seen {
		assert.Equal(t, "s.sock", name)
		assert.Equal(t, fs.FileMode(0o600), mode)
	}
}

func TestASuccessorTakesThePathOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	first, err := Listen(path)
	require.NoError(t, err)
	second, err := Listen(path)
	require.NoError(t, err)
	require.NoError(t, first.Close())
	_, err = os.Lstat(path)
	require.NoError(t, err, "closing the first one left the second one's socket")
	require.NoError(t, second.Close())
	assert.NoFileExists(t, path)
}

func TestTheSocketOfADeadProcessIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	for _, left := range []string{path, filepath.Join(filepath.Dir(path), ".s.sock.new")} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: left})
		require.NoError(t, err)
		l.SetUnlinkOnClose(false)
		require.NoError(t, l.Close())
	}
	l, err := Listen(path)
	require.NoError(t, err)
	assert.NoError(t, l.Close())
}

func TestAnotherFileStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	_, err := Listen(path)
	require.ErrorContains(t, err, "listen on "+path)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "x", string(content))
	_, err = Listen(filepath.Join(t.TempDir(), "missing", "s.sock"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
}
