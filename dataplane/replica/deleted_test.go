package replica

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
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
			require.NoError(t, os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600))
		}, false},
		{"the spare goes → sound, for it is made anew", func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, metaTempName)))
		}, false},
		{"the data goes", func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, dataName))) }, true},
		{"the intent map goes", func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, intentName))) }, true},
		{"the metadata goes", func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, metaName))) }, true},
		{"another file takes the data's place", func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "new"), make([]byte, 16*mib), 0o600))
			require.NoError(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, dataName)))
		}, true},
		{"the replica's directory goes", func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(dir)) }, true},
		{"the replica's directory is moved", func(t *testing.T, dir string) { require.NoError(t, os.Rename(dir, dir+".old")) }, true},
		{"another directory takes its place", func(t *testing.T, dir string) {
			require.NoError(t, os.Rename(dir, dir+".old"))
			require.NoError(t, os.Mkdir(dir, 0o700))
		}, true},
		{"the directory for replicas goes", func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(filepath.Dir(dir))) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			top := t.TempDir()
			makeDisk(t, top, diskA)
			d := openDisk(t, fsys.Host{}, top, diskA)
			dir, spec := filepath.Join(top, "replicas/r"), testSpec("uid-1", 16*mib)
			require.NoError(t, d.Create(dir, spec))
			r, err := d.Open(dir, spec, Options{BootID: testBoot})
			require.NoError(t, err)
			s := admit(t, r, 1, "one")
			require.NoError(t, s.WriteAt(ctx, stampBlock(1), 0, false))
			for counter := range int64(3) { // the metadata is another file each time
				require.NoError(t, record(s, membership.NewEpoch(1, counter+1, []string{"a"})))
				lost, err := d.Check(r)
				require.Nil(t, lost)
				require.NoError(t, err, "a sound replica")
			}
			tc.damage(t, dir)
			lost, err := d.Check(r)
			require.Equal(t, tc.gone, lost != nil, "found %v", lost)
			require.NoError(t, err)
			if tc.gone {
				loseDeleted(t, r, s, lost, top)
			}
			require.NoError(t, s.Close())
			require.NoError(t, r.Close(ctx))
			lost, err = d.Check(r)
			assert.Nil(t, lost)
			assert.Error(t, err, "a replica that is closed")
		})
	}
}

// loseDeleted checks that the replica ends at once, and that nothing is created in the place of the deleted files.
func loseDeleted(t *testing.T, r *Replica, s *Session, lost *DiskLostError, top string) {
	t.Helper()
	before := treeHash(t, top)
	r.Lose(lost)
	got := r.State().Failure
	assert.Equal(t, DataDeleted, ReasonOf(got), "failure %v", got)
	assert.ErrorIs(t, s.WriteAt(t.Context(), stampBlock(2), 0, true), ErrFailed)
	require.NoError(t, s.Close())
	require.NoError(t, r.Close(t.Context()))
	assert.Equal(t, before, treeHash(t, top), "something was written after the data was deleted")
}

// The directories to watch can be opened by their paths as long as the replica and its disk are open.
func TestThePathsToWatchLeadToTheDirectories(t *testing.T) {
	top := t.TempDir()
	makeDisk(t, top, diskA)
	d := openDisk(t, fsys.Host{}, top, diskA)
	dir, spec := filepath.Join(top, "replicas/r"), testSpec("uid-1", mib)
	require.NoError(t, d.Create(dir, spec))
	r, err := d.Open(dir, spec, Options{})
	require.NoError(t, err)
	defer r.Close(t.Context())
	for _, tc := range []struct{ want, path string }{{dir, r.WatchPath()}, {filepath.Join(top, "replicas"), d.WatchPath()}} {
		want, err := os.Stat(tc.want)
		require.NoError(t, err)
		got, err := os.Stat(tc.path)
		require.NoError(t, err)
		assert.True(t, os.SameFile(want, got), "%s is not %s", tc.path, tc.want)
	}
}
