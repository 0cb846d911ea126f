package app

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/disk"
)

func TestServingAMissingReplicaReportsTheCause(t *testing.T) {
	dir := t.TempDir()
	command := root()
	var out bytes.Buffer
	command.Writer = &out
	err := command.Run(t.Context(), []string{"longhorn-manager", "replica", "serve", "--directory", dir + "/r", "--socket", dir + "/s"})
	assert.ErrorContains(t, err, "ReplicaMissing")
	assert.LessOrEqual(t, out.Len(), 0)
}

// firstLine sends the first text that is written.
type firstLine chan string

func (f firstLine) Write(p []byte) (int, error) {
	select {
	case f <- string(p):
	default:
	}
	return len(p), nil
}

func TestAReplicaIsServedByHandUntilInterrupted(t *testing.T) {
	dir := t.TempDir()
	copyDir, socket := filepath.Join(dir, "replicas", "vol-r-1"), filepath.Join(dir, "s")
	spec := replica.Spec{UID: "uid-1", Volume: "vol", Name: "vol-r-1", SizeBytes: 1 << 20}
	const uuid = "d15c0000-0000-4000-8000-000000000001"
	err := errors.Join(os.Mkdir(filepath.Dir(copyDir), 0o700), os.WriteFile(filepath.Join(dir, disk.ConfigFileName), []byte(`{"diskUUID":"`+uuid+`"}`), 0o600))
	require.NoError(t, err)
	d, err := replica.OpenDisk(fsys.Host{}, dir, uuid)
	require.NoError(t, err)
	require.NoError(t, errors.Join(d.Create(copyDir, spec), d.Close()))
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	printed, ended := make(firstLine, 1), make(chan error, 1)
	command := root()
	command.Writer = printed
	go func() {
		ended <- command.Run(ctx, []string{
			"longhorn-manager", "--log-level", "error", "replica", "serve", "--directory", copyDir, "--socket", socket,
		})
	}()
	select {
	case line := <-printed:
		assert.Equal(t, "nbd+unix:///ro/vol-r-1?socket="+socket+"\n", line)
	case err := <-ended:
		t.Fatal(err)
	}
	c, err := nbd.Dial(ctx, "unix", socket, "ro/vol-r-1", nbd.DialOptions{})
	require.NoError(t, err)
	assert.Equal(t, int64(1<<20), c.Size(), "export %+v", c.Info())
	assert.True(t, c.Info().ReadOnly)
	assert.NoError(t, c.Close())
	interrupt()
	assert.NoError(t, <-ended)
}
