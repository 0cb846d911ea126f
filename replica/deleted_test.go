package replica

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/membership"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys"
)

func TestDataThatIsDeletedUnderAnOpenReplicaIsNoticed(t *testing.T) {
	ctx := t.Context()
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		gone   bool
	}{
		{"nothing happens → sound", func(*testing.T, string) {}, false},
		{"a stranger's file comes → sound", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600))
		}, false},
		{"the spare goes → sound, for it is made anew", func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, metaTempName)))
		}, false},
		{"the data goes", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, dataName))) }, true},
		{"the intent map goes", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, intentName))) }, true},
		{"the metadata goes", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, metaName))) }, true},
		{"another file takes the data's place", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "new"), make([]byte, 16*mib), 0o600))
			must(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, dataName)))
		}, true},
		{"the replica's directory goes", func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) }, true},
		{"the replica's directory is moved", func(t *testing.T, dir string) { must(t, os.Rename(dir, dir+".old")) }, true},
		{"another directory takes its place", func(t *testing.T, dir string) {
			must(t, os.Rename(dir, dir+".old"))
			must(t, os.Mkdir(dir, 0o700))
		}, true},
		{"the directory for replicas goes", func(t *testing.T, dir string) { must(t, os.RemoveAll(filepath.Dir(dir))) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			top := t.TempDir()
			makeDisk(t, top, diskA)
			d := openDisk(t, fsys.Host{}, top, diskA)
			dir, spec := filepath.Join(top, "replicas/r"), testSpec("uid-1", 16*mib)
			must(t, d.Create(dir, spec))
			r, err := d.Open(dir, spec, Options{BootID: testBoot})
			must(t, err)
			s := admit(t, r, 1, "one")
			must(t, s.WriteAt(ctx, stampBlock(1), 0, false))
			for counter := range int64(3) { // the metadata is another file each time
				must(t, record(s, membership.NewEpoch(1, counter+1, []string{"a"})))
				if lost, err := d.Check(r); lost != nil || err != nil {
					t.Fatalf("a sound replica: %v, %v", lost, err)
				}
			}
			tc.damage(t, dir)
			lost, err := d.Check(r)
			if (lost != nil) != tc.gone || err != nil {
				t.Fatalf("found %v, %v", lost, err)
			}
			if tc.gone {
				loseDeleted(t, r, s, lost, top)
			}
			must(t, s.Close())
			must(t, r.Close(ctx))
			if lost, err := d.Check(r); lost != nil || err == nil {
				t.Errorf("a replica that is closed: %v, %v", lost, err)
			}
		})
	}
}

// loseDeleted: the replica ends at once, and nothing is made in the place of what was deleted.
func loseDeleted(t *testing.T, r *Replica, s *Session, lost *DiskLostError, top string) {
	t.Helper()
	before := treeHash(t, top)
	r.Lose(lost)
	if got := r.State().Failure; ReasonOf(got) != DataDeleted {
		t.Errorf("failure %v", got)
	}
	if err := s.WriteAt(t.Context(), stampBlock(2), 0, true); !errors.Is(err, ErrFailed) {
		t.Errorf("write: %v", err)
	}
	must(t, s.Close())
	must(t, r.Close(t.Context()))
	if treeHash(t, top) != before {
		t.Error("something was written after the data was deleted")
	}
}

// What is to be watched can be opened by its path as long as the replica and its disk are open.
func TestThePathsToWatchLeadToTheDirectories(t *testing.T) {
	top := t.TempDir()
	makeDisk(t, top, diskA)
	d := openDisk(t, fsys.Host{}, top, diskA)
	dir, spec := filepath.Join(top, "replicas/r"), testSpec("uid-1", mib)
	must(t, d.Create(dir, spec))
	r, err := d.Open(dir, spec, Options{})
	must(t, err)
	defer r.Close(t.Context())
	for _, tc := range []struct{ want, path string }{{dir, r.WatchPath()}, {filepath.Join(top, "replicas"), d.WatchPath()}} {
		want, err := os.Stat(tc.want)
		must(t, err)
		got, err := os.Stat(tc.path)
		must(t, err)
		if !os.SameFile(want, got) {
			t.Errorf("%s is not %s", tc.path, tc.want)
		}
	}
}
