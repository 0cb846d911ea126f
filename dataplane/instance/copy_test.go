package instance

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
)

func TestACopyIsReadWithoutAnyManager(t *testing.T) {
	n, want := parkedNode(t)
	n.stop()
	require.NoError(t, os.Remove(filepath.Join(n.directory(), "intent.map"))) // a person can read the copy without it
	socket := filepath.Join(n.root, "copy.sock")
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error)
	go func() {
		ended <- ServeCopy(ctx, CopyOptions{Directory: n.directory(), Socket: socket, Ready: func(export string) { ready <- export }})
	}()
	assert.Equal(t, "ro/vol-r-1", <-ready)
	for _, export := range []string{"", "ro/vol-r-1"} {
		c, err := nbd.Dial(ctx, "unix", socket, export, nbd.DialOptions{})
		require.NoError(t, err)
		assert.Equal(t, want, hashOf(t, c), "export %q", export)
		assert.Error(t, c.WriteAt(ctx, make([]byte, 512), 0, false), "a copy took a write")
		require.NoError(t, c.Close())
	}
	_, err := nbd.Dial(ctx, "unix", socket, "ro/other", nbd.DialOptions{})
	assert.ErrorIs(t, err, nbd.ErrUnknownExport, "another export")
	err = ServeCopy(ctx, CopyOptions{Directory: n.directory(), Socket: socket + "2"})
	assert.Equal(t, replica.Locked, replica.ReasonOf(err), "served twice: %v", err)
	cancel()
	require.NoError(t, <-ended)
	_, err = os.Lstat(socket)
	assert.ErrorIs(t, err, fs.ErrNotExist, "the socket is left")
}

func TestACopyThatCannotBeServedSaysWhy(t *testing.T) {
	n, _ := parkedNode(t)
	taken := filepath.Join(n.root, "taken")
	require.NoError(t, os.WriteFile(taken, []byte("precious"), 0o600))
	assert.ErrorIs(t, ServeCopy(t.Context(), CopyOptions{Directory: n.directory(), Socket: taken}), fs.ErrExist, "with a file in the socket's place")
	b, err := os.ReadFile(taken)
	require.NoError(t, err)
	assert.Equal(t, "precious", string(b))
	n.startReplica()
	for dir, want := range map[string]replica.Reason{
		n.directory():                   replica.Locked,
		filepath.Join(n.root, "disk"):   replica.NotAReplica,
		filepath.Join(n.root, "nobody"): replica.ReplicaMissing,
	} {
		err := ServeCopy(t.Context(), CopyOptions{Directory: dir, Socket: filepath.Join(n.root, "copy.sock")})
		assert.Equal(t, want, replica.ReasonOf(err), "%s: %v", dir, err)
	}
}
