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

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/openat"
)

func scanOne(root, path string) Record {
	return Scan(root, map[string]string{"d": path})["d"]
}

func TestCreateMakesADurableFileAndTheReplicasDirectory(t *testing.T) {
	root := t.TempDir()
	if err := Create(root, scanOne(root, "/"), NewConfig("d", uuidA)); err != nil {
		t.Fatal(err)
	}
	rec := scanOne(root, "/")
	if rec.Config == nil || *rec.Config != (Config{Name: "d", UUID: uuidA, State: "ready"}) {
		t.Errorf("record %+v", rec)
	}
	assertEntries(t, root, ConfigFileName, ReplicasDirName)
}

func TestCreateRefusesWhateverIsThere(t *testing.T) {
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
			if err := occupy(file); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := Create(root, rec, NewConfig("d", uuidA)); !errors.Is(err, ErrConfigExists) {
				t.Errorf("error %v, want %v", err, ErrConfigExists)
			}
			after, err := os.Lstat(file)
			if err != nil || !os.SameFile(before, after) || before.Size() != after.Size() {
				t.Errorf("it was changed: %v, %v", after, err)
			}
			assertEntries(t, root, ConfigFileName, ReplicasDirName)
		})
	}
}

func TestOfManyCreatorsOneWins(t *testing.T) {
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
	if rec.Config == nil || rec.Config.Name != fmt.Sprint(winner) {
		t.Errorf("winner %d, file %+v, %v", winner, rec.Config, rec.ConfigErr)
	}
	assertEntries(t, root, ConfigFileName, ReplicasDirName)
}

func TestCreateRefusesADirectoryThatWasReplacedSinceTheScan(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"mounted", "under"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	rec := scanOne(root, "/mounted")
	// What unmounting does to a path: it comes to lead to another directory.
	if err := os.Rename(filepath.Join(root, "mounted"), filepath.Join(root, "gone")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(root, "under"), filepath.Join(root, "mounted")); err != nil {
		t.Fatal(err)
	}
	if err := Create(root, rec, NewConfig("d", uuidA)); !errors.Is(err, ErrDirectoryChanged) {
		t.Errorf("error %v, want %v", err, ErrDirectoryChanged)
	}
	assertEntries(t, filepath.Join(root, "mounted"))
}

func TestCreateRefusesAMalformedUUIDBeforeTouchingTheDisk(t *testing.T) {
	root := t.TempDir()
	if err := Create(root, scanOne(root, "/"), NewConfig("d", "x")); !errors.Is(err, ErrConfigBadUUID) {
		t.Errorf("error %v", err)
	}
	assertEntries(t, root)
}

func TestPublishByLinkDoesNotReplace(t *testing.T) {
	root := t.TempDir()
	dir, err := openat.Dir(root, "/")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := (writer{dir: dir}).writeTemp("first", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := (writer{dir: dir}).writeTemp("second", []byte("2")); err != nil {
		t.Fatal(err)
	}
	if err := publishByLink(int(dir.Fd()), "first"); err != nil {
		t.Fatal(err)
	}
	if err := publishByLink(int(dir.Fd()), "second"); !errors.Is(err, unix.EEXIST) {
		t.Errorf("error %v, want EEXIST", err)
	}
	if data, err := os.ReadFile(filepath.Join(root, ConfigFileName)); err != nil || string(data) != "1" {
		t.Errorf("file %q, %v", data, err)
	}
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
				if err := tt.setUp(root); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // it may be repeated
				if err := Prepare(root, tt.path); !errors.Is(err, tt.wantErr) || (err == nil) != (tt.wantErr == nil) {
					t.Fatalf("error %v, want %v", err, tt.wantErr)
				}
			}
			if tt.wantErr != nil {
				return
			}
			info, err := os.Stat(filepath.Join(root, tt.made, ReplicasDirName))
			if err != nil || info.Mode() != os.ModeDir|0o700 {
				t.Errorf("replicas directory %v, %v", info, err)
			}
			if _, err := os.Stat(filepath.Join(root, tt.made, ConfigFileName)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a UUID file was made: %v", err)
			}
		})
	}
}

func TestRepairCommandPutsTheFileBack(t *testing.T) {
	for _, path := range []string{"/plain", "/with space/", "/it's; $(touch x) \"quoted\""} {
		t.Run(path, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, path)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			command := RepairCommand(root+path, "disk's", uuidA)
			if strings.Contains(command, "\n") {
				t.Fatalf("more than one line: %q", command)
			}
			if out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", command, err, out)
			}
			rec := scanOne(root, path)
			if rec.Config == nil || *rec.Config != NewConfig("disk's", uuidA) {
				t.Errorf("after %s: %+v", command, rec)
			}
		})
	}
}

func assertEntries(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]string, 0, len(entries))
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("directory holds %v, want %v", got, want)
	}
}
