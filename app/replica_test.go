package app

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/replica"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys"
)

func TestServingAReplicaThatIsNotThereSaysWhy(t *testing.T) {
	dir := t.TempDir()
	command := root()
	var out bytes.Buffer
	command.Writer = &out
	err := command.Run(t.Context(), []string{"longhorn-manager", "replica", "serve", "--directory", dir + "/r", "--socket", dir + "/s"})
	if err == nil || !strings.Contains(err.Error(), "ReplicaMissing") || out.Len() > 0 {
		t.Errorf("error %v, output %q", err, out.String())
	}
}

// firstLine hands on the first thing that is written.
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
	if err != nil {
		t.Fatal(err)
	}
	d, err := replica.OpenDisk(fsys.Host{}, dir, uuid)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Create(copyDir, spec), d.Close()); err != nil {
		t.Fatal(err)
	}
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
		if want := "nbd+unix:///ro/vol-r-1?socket=" + socket + "\n"; line != want {
			t.Errorf("printed %q, want %q", line, want)
		}
	case err := <-ended:
		t.Fatal(err)
	}
	c, err := nbd.Dial(ctx, "unix", socket, "ro/vol-r-1", nbd.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Size() != 1<<20 || !c.Info().ReadOnly {
		t.Errorf("export %+v", c.Info())
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
