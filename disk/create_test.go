package disk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/openat"
)

func scanOne(root, path string) Record {
	return Scan(root, map[string]string{"d": path})["d"]
}

func TestCreateWritesADurableFileAndTheReplicasDirectory(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, Create(root, scanOne(root, "/"), NewConfig("d", uuidA)))
	rec := scanOne(root, "/")
	require.NotNil(t, rec.Config)
	assert.Equal(t, Config{Name: "d", UUID: uuidA, State: "ready"}, *rec.Config)
	assertEntries(t, root, ConfigFileName, ReplicasDirName)
}

func TestCreateRefusesExistingFiles(t *testing.T) {
	tests := map[string]func(path string) error{
		"a valid file":    func(p string) error { return os.WriteFile(p, []byte(`{"diskUUID":"`+uuidA+`"}`), 0o600) },
		"a torn file":     func(p string) error { return os.WriteFile(p, []byte(`{"disk`), 0o600) },
		"a dangling link": func(p string) error { return os.Symlink("nowhere", p) },
		"a directory":     func(p string) error { return os.Mkdir(p, 0o700) },
	}
	for name, occupy := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			rec := scanOne(root, "/")
			file := filepath.Join(root, ConfigFileName)
			require.NoError(t, occupy(file))
			before, err := os.Lstat(file)
			require.NoError(t, err)
			assert.ErrorIs(t, Create(root, rec, NewConfig("d", uuidA)), ErrConfigExists)
			after, err := os.Lstat(file)
			require.NoError(t, err)
			assert.True(t, os.SameFile(before, after), "it was changed: %v", after)
			assert.Equal(t, after.Size(), before.Size())
			assertEntries(t, root, ConfigFileName, ReplicasDirName)
		})
	}
}

func TestOneOfManyCreatorsWins(t *testing.T) {
	root := t.TempDir()
	rec := scanOne(root, "/")
	const creators = 16
	errs := make([]error, creators)
	var wg sync.WaitGroup
	for i := range creators {
		wg.Go(func() {
			errs[i] = Create(root, rec, NewConfig(fmt.Sprint(i), uuidA))
		})
	}
	wg.Wait()

	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner < 0:
			winner = i
		case !errors.Is(err, ErrConfigExists):
			t.Errorf("creator %d: %v (winner was %d)", i, err, winner)
		}
	}
	rec = scanOne(root, "/")
	require.NotNil(t, rec.Config, rec.ConfigErr)
	assert.Equal(t, fmt.Sprint(winner), rec.Config.Name)
	assertEntries(t, root, ConfigFileName, ReplicasDirName)
}

func TestCreateRefusesADirectoryThatWasReplacedSinceTheScan(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"mounted", "under"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, name), 0o700))
	}
	rec := scanOne(root, "/mounted")
	// The effect of unmounting on a path: it leads to another directory.
	require.NoError(t, os.Rename(filepath.Join(root, "mounted"), filepath.Join(root, "gone")))
	require.NoError(t, os.Rename(filepath.Join(root, "under"), filepath.Join(root, "mounted")))
	assert.ErrorIs(t, Create(root, rec, NewConfig("d", uuidA)), ErrDirectoryChanged)
	assertEntries(t, filepath.Join(root, "mounted"))
}

func TestCreateRefusesAMalformedUUIDBeforeTouchingTheDisk(t *testing.T) {
	root := t.TempDir()
	assert.ErrorIs(t, Create(root, scanOne(root, "/"), NewConfig("d", "x")), ErrConfigBadUUID)
	assertEntries(t, root)
}

func TestPublishByLinkDoesNotReplace(t *testing.T) {
	root := t.TempDir()
	dir, err := openat.Dir(root, "/")
	require.NoError(t, err)
	defer dir.Close()
	require.NoError(t, (writer{dir: dir}).writeTemp("first", []byte("1")))
	require.NoError(t, (writer{dir: dir}).writeTemp("second", []byte("2")))
	require.NoError(t, publishByLink(int(dir.Fd()), "first"))
	assert.ErrorIs(t, publishByLink(int(dir.Fd()), "second"), unix.EEXIST)
	data, err := os.ReadFile(filepath.Join(root, ConfigFileName))
	require.NoError(t, err)
	assert.Equal(t, "1", string(data))
	assertEntries(t, root, ConfigFileName, "second")
}

func TestPrepare(t *testing.T) {
	tests := map[string]struct {
		setUp   func(root string) error
		path    string
		made    string // below root, where the replicas directory must be
		wantErr error
	}{
		"nothing there → parents are made": {path: "/var/lib/longhorn/", made: "var/lib/longhorn"},
		"the root itself":                  {path: "/", made: "."},
		"a link on the way stays beneath the root": {
			setUp: func(root string) error {
				return errors.Join(os.Mkdir(filepath.Join(root, "data"), 0o755), os.Symlink("/data", filepath.Join(root, "var")))
			},
			path: "/var/longhorn", made: "data/longhorn",
		},
		"dots stay beneath the root": {path: "/../../a/../b", made: "b"},
		"a dangling link is refused": {
			setUp:   func(root string) error { return os.Symlink("/nowhere", filepath.Join(root, "var")) },
			path:    "/var/longhorn",
			wantErr: unix.ENOENT,
		},
		"a file on the way is refused": {
			setUp:   func(root string) error { return os.WriteFile(filepath.Join(root, "var"), nil, 0o600) },
			path:    "/var/longhorn",
			wantErr: unix.ENOTDIR,
		},
		"a relative path is refused": {path: "var", wantErr: openat.ErrRelative},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if tt.setUp != nil {
				require.NoError(t, tt.setUp(root))
			}
			for range 2 { // it may be repeated
				err := Prepare(root, tt.path)
				require.ErrorIs(t, err, tt.wantErr)
				require.Equal(t, tt.wantErr == nil, err == nil)
			}
			if tt.wantErr != nil {
				return
			}
			info, err := os.Stat(filepath.Join(root, tt.made, ReplicasDirName))
			require.NoError(t, err)
			assert.Equal(t, os.ModeDir|0o700, info.Mode(), "replicas directory %v", info)
			_, err = os.Stat(filepath.Join(root, tt.made, ConfigFileName))
			assert.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}

func TestRepairCommandRestoresTheFile(t *testing.T) {
	for _, path := range []string{"/plain", "/with space/", "/it's; $(touch x) \"quoted\""} {
		t.Run(path, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, path)
			require.NoError(t, os.Mkdir(dir, 0o700))
			command := RepairCommand(root+path, "disk's", uuidA)
			require.NotContains(t, command, "\n", "more than one line")
			out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput()
			require.NoError(t, err, "%s: %s", command, out)
			rec := scanOne(root, path)
			require.NotNil(t, rec.Config, "after %s", command)
			assert.Equal(t, NewConfig("disk's", uuidA), *rec.Config)
		})
	}
}

func assertEntries(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	got := make([]string, 0, len(entries))
	for _, e := range entries {
		got = append(got, e.Name())
	}
	assert.Equal(t, strings.Join(want, " "), strings.Join(got, " "))
}
