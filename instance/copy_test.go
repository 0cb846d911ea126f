package instance

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/replica"
)

func TestACopyIsReadWithoutAnyManager(t *testing.T) {
	n, want := parkedNode(t)
	n.stop()
	must(t, os.Remove(filepath.Join(n.directory(), "intent.map"))) // what a person may still do without
	socket := filepath.Join(n.root, "copy.sock")
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error)
	go func() {
		ended <- ServeCopy(ctx, CopyOptions{Directory: n.directory(), Socket: socket, Ready: func(export string) { ready <- export }})
	}()
	if export := <-ready; export != "ro/vol-r-1" {
		t.Errorf("export %q", export)
	}
	for _, export := range []string{"", "ro/vol-r-1"} {
		c, err := nbd.Dial(ctx, "unix", socket, export, nbd.DialOptions{})
		must(t, err)
		if got := hashOf(t, c); got != want {
			t.Errorf("export %q has %s, want %s", export, got, want)
		}
		if err := c.WriteAt(ctx, make([]byte, 512), 0, false); err == nil {
			t.Error("a copy took a write")
		}
		must(t, c.Close())
	}
	if _, err := nbd.Dial(ctx, "unix", socket, "ro/other", nbd.DialOptions{}); !errors.Is(err, nbd.ErrUnknownExport) {
		t.Errorf("another export: %v", err)
	}
	err := ServeCopy(ctx, CopyOptions{Directory: n.directory(), Socket: socket + "2"})
	if replica.ReasonOf(err) != replica.Locked {
		t.Errorf("served twice: %v", err)
	}
	cancel()
	must(t, <-ended)
	if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestACopyThatCannotBeServedSaysWhy(t *testing.T) {
	n, _ := parkedNode(t)
	taken := filepath.Join(n.root, "taken")
	must(t, os.WriteFile(taken, []byte("precious"), 0o600))
	if err := ServeCopy(t.Context(), CopyOptions{Directory: n.directory(), Socket: taken}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("with a file in the socket's place: %v", err)
	}
	if b, err := os.ReadFile(taken); err != nil || string(b) != "precious" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	n.startReplica()
	for dir, want := range map[string]replica.Reason{
		n.directory():                   replica.Locked,
		filepath.Join(n.root, "disk"):   replica.NotAReplica,
		filepath.Join(n.root, "nobody"): replica.ReplicaMissing,
	} {
		err := ServeCopy(t.Context(), CopyOptions{Directory: dir, Socket: filepath.Join(n.root, "copy.sock")})
		if replica.ReasonOf(err) != want {
			t.Errorf("%s: %v, want %s", dir, err, want)
		}
	}
}
