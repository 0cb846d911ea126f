package replica

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	mib       = 1 << 20
	testBoot  = "boot-1"
	otherBoot = "boot-2"
)

func testSpec(uid string, sizeBytes int64) Spec {
	return Spec{UID: uid, Volume: "vol", Name: "vol-r-1", SizeBytes: sizeBytes}
}

// Create, Open and Remove do the same as the methods of a Disk, in any directory, because most tests do not concern the
// disk.
func Create(f fsys.FS, dir string, spec Spec) error {
	parent, name, err := openParent(f, dir)
	if err != nil {
		return err
	}
	return errors.Join(createIn(parent, dir, name, spec), parent.Close())
}

func Open(f fsys.FS, dir string, want Spec, opts Options) (*Replica, error) {
	parent, name, err := openParent(f, dir)
	if err != nil {
		return nil, err
	}
	r, err := openIn(parent, dir, name, want, opts)
	return r, errors.Join(err, parent.Close())
}

func Remove(f fsys.FS, dir, uid string) error {
	parent, name, err := openParent(f, dir)
	if err != nil {
		return err
	}
	return errors.Join(removeIn(parent, dir, name, uid), parent.Close())
}

// newHostReplica creates and opens a replica on the real file system.
func newHostReplica(t testing.TB, sizeBytes int64) *Replica {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "r")
	spec := testSpec("uid-1", sizeBytes)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	return openReplica(t, fsys.Host{}, dir, spec, testBoot)
}

func openReplica(t testing.TB, f fsys.FS, dir string, spec Spec, boot string) *Replica {
	t.Helper()
	r, err := Open(f, dir, spec, Options{BootID: boot})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// admit admits an engine that counts as one that has followed its line, so it may change a chain of layers.
func admit(t testing.TB, r *Replica, generation int64, session string) *Session {
	t.Helper()
	s, err := r.Admit(context.Background(), generation, session)
	require.NoError(t, err)
	s.layering.asked(points.OpState)
	s.layering.follow(false)
	return s
}

// treeHash covers names, types, modes and contents below a directory. For a file larger than 16 MiB it uses only the
// size.
func treeHash(t testing.TB, root string) string {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %s %d %d\n", path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			fmt.Fprintln(h, to)
			return err
		case info.Mode().IsRegular() && info.Size() <= 16*mib:
			b, err := os.ReadFile(path)
			h.Write(b)
			return err
		}
		return nil
	})
	require.NoError(t, err)
	return hex.EncodeToString(h.Sum(nil))
}
