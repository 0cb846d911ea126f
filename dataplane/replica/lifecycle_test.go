package replica

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

func TestCreate(t *testing.T) {
	spec := testSpec("uid-1", mib)
	for _, tc := range []struct {
		name    string
		prepare func(t *testing.T, dir string)
		want    error // nil: succeeds
		reason  Reason
	}{
		{name: "nothing there → made", prepare: func(*testing.T, string) {}},
		{name: "made before and pristine → succeeds again", prepare: func(t *testing.T, dir string) {
			require.NoError(t, Create(fsys.Host{}, dir, spec))
		}},
		{name: "an interrupted creation left its directory → cleared, made", prepare: func(t *testing.T, dir string) {
			left := filepath.Join(filepath.Dir(dir), ".r.creating-uid-1")
			require.NoError(t, os.Mkdir(left, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(left, metaName), []byte("LHREP"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(left, dataName), nil, 0o600))
		}},
		{name: "a stranger's file in what looks like our leftover → refused", want: ErrForeign, prepare: func(t *testing.T, dir string) {
			left := filepath.Join(filepath.Dir(dir), ".r.creating-uid-1")
			require.NoError(t, os.Mkdir(left, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(left, "precious"), []byte("x"), 0o600))
		}},
		{name: "it was used → refused", want: ErrExists, reason: ReplicaUsed, prepare: func(t *testing.T, dir string) {
			require.NoError(t, Create(fsys.Host{}, dir, spec))
			r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
			require.NoError(t, admit(t, r, 1, "s").Close())
			require.NoError(t, r.Close(context.Background()))
		}},
		{name: "another uid's replica → refused", want: ErrForeign, reason: OtherReplica, prepare: func(t *testing.T, dir string) {
			require.NoError(t, Create(fsys.Host{}, dir, testSpec("uid-2", mib)))
		}},
		{name: "same uid, another size → refused", want: ErrForeign, reason: SizeMismatch, prepare: func(t *testing.T, dir string) {
			require.NoError(t, Create(fsys.Host{}, dir, testSpec("uid-1", 2*mib)))
		}},
		{name: "a directory that is not ours → refused", want: ErrForeign, reason: NotAReplica, prepare: func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "volume.meta"), []byte("{}"), 0o600))
		}},
		{name: "an empty directory → refused", want: ErrForeign, reason: NotAReplica, prepare: func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(dir, 0o700))
		}},
		{name: "a dangling link → refused", want: ErrForeign, reason: NotAReplica, prepare: func(t *testing.T, dir string) {
			require.NoError(t, os.Symlink("nowhere", dir))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			top := t.TempDir()
			dir := filepath.Join(top, "r")
			tc.prepare(t, dir)
			before := treeHash(t, top)
			err := Create(fsys.Host{}, dir, spec)
			require.ErrorIs(t, err, tc.want)
			require.Equal(t, tc.reason, ReasonOf(err))
			if tc.want != nil {
				assert.Equal(t, before, treeHash(t, top), "a refused Create changed something")
				return
			}
			names, err := os.ReadDir(top)
			require.NoError(t, err)
			assert.Len(t, names, 1)
			openReplica(t, fsys.Host{}, dir, spec, testBoot)
		})
	}
}

func TestCreateCreatesNoParentDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "unmounted", "replicas", "r")
	err := Create(fsys.Host{}, dir, testSpec("u", mib))
	assert.Equal(t, DiskMissing, ReasonOf(err), err)
}

func TestTheHostRootKeepsPathsBeneathIt(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "real", "replicas"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "var"), 0o700))
	require.NoError(t, os.Symlink("/real", filepath.Join(root, "var", "disk"))) // absolute, as seen on the host
	require.NoError(t, Create(fsys.Host{Root: root}, "/var/disk/replicas/r", testSpec("u", mib)))
	_, err := os.Stat(filepath.Join(root, "real", "replicas", "r", metaName))
	assert.NoError(t, err)
}

func TestRemove(t *testing.T) {
	spec := testSpec("uid-1", mib)
	made := func(t *testing.T, dir string) { require.NoError(t, Create(fsys.Host{}, dir, spec)) }
	for _, tc := range []struct {
		name    string
		prepare func(t *testing.T, dir string)
		reason  Reason // "" means that it is removed completely
		foreign bool   // refused because of the content of a leftover's directory
	}{
		{name: "the replica → removed", prepare: made},
		{name: "nothing there → success", prepare: func(*testing.T, string) {}},
		{name: "a replica without data and map → removed", prepare: func(t *testing.T, dir string) {
			made(t, dir)
			require.NoError(t, os.Remove(filepath.Join(dir, dataName)))
			require.NoError(t, os.Remove(filepath.Join(dir, intentName)))
		}},
		{name: "an interrupted removal left all but the metadata's name → cleared", prepare: func(t *testing.T, dir string) {
			made(t, dir)
			require.NoError(t, os.Rename(dir, filepath.Join(filepath.Dir(dir), ".r.deleting-uid-1")))
		}},
		{name: "an interrupted removal left an empty directory → cleared", prepare: func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(filepath.Join(filepath.Dir(dir), ".r.deleting-uid-1"), 0o700))
		}},
		{name: "an interrupted creation left its directory → cleared", prepare: func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(filepath.Join(filepath.Dir(dir), ".r.creating-uid-1"), 0o700))
		}},
		{name: "another uid's replica → stays", reason: OtherReplica, prepare: func(t *testing.T, dir string) {
			require.NoError(t, Create(fsys.Host{}, dir, testSpec("uid-2", mib)))
		}},
		{name: "a directory without metadata → stays", reason: NotAReplica, prepare: func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, dataName), []byte("x"), 0o600))
		}},
		{name: "the metadata alone is gone → removed, for the map says whose it is", prepare: func(t *testing.T, dir string) {
			made(t, dir)
			remove(metaName)(t, dir)
		}},
		{name: "the metadata is gone, a stranger's file is there → stays whole", reason: NotAReplica, prepare: func(t *testing.T, dir string) {
			made(t, dir)
			remove(metaName)(t, dir)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "precious"), []byte("x"), 0o600))
		}},
		{name: "the metadata is gone, the map is another replica's → stays", reason: NotAReplica, prepare: func(t *testing.T, dir string) {
			made(t, dir)
			remove(metaName)(t, dir)
			otherMap(t, dir)
		}},
		{name: "the metadata is gone, the map is torn → stays", reason: NotAReplica, prepare: func(t *testing.T, dir string) {
			made(t, dir)
			remove(metaName)(t, dir)
			edit(intentName, flip(508))(t, dir)
		}},
		{name: "torn metadata → stays", reason: MetadataTorn, prepare: func(t *testing.T, dir string) {
			made(t, dir)
			edit(metaName, flip(40))(t, dir)
		}},
		{name: "a stranger's file in the replica → stays whole", reason: NotAReplica, prepare: func(t *testing.T, dir string) {
			made(t, dir)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "precious"), []byte("x"), 0o600))
		}},
		{name: "a link to the replica → neither goes", reason: NotAReplica, prepare: func(t *testing.T, dir string) {
			made(t, dir+".real")
			require.NoError(t, os.Symlink(dir+".real", dir))
		}},
		{name: "a file → stays", reason: NotAReplica, prepare: func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(dir, []byte("x"), 0o600))
		}},
		{name: "the disk is away → said so", reason: DiskMissing, prepare: func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Dir(dir)))
		}},
		{name: "a leftover's name holds another uid's metadata → stays", foreign: true, prepare: func(t *testing.T, dir string) {
			require.NoError(t, Create(fsys.Host{}, dir, testSpec("uid-2", mib)))
			require.NoError(t, os.Rename(dir, filepath.Join(filepath.Dir(dir), ".r.deleting-uid-1")))
		}},
		{name: "a leftover's name is a link → stays", foreign: true, prepare: func(t *testing.T, dir string) {
			made(t, dir+".real")
			require.NoError(t, os.Symlink(dir+".real", filepath.Join(filepath.Dir(dir), ".r.deleting-uid-1")))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			top := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(top, "replicas"), 0o700))
			dir := filepath.Join(top, "replicas", "r")
			tc.prepare(t, dir)
			before := treeHash(t, top)
			err := Remove(fsys.Host{}, dir, "uid-1")
			require.Equal(t, tc.reason, ReasonOf(err), "%v, foreign %t", err, tc.foreign)
			require.Equal(t, tc.foreign || strings.HasSuffix(tc.name, "→ stays whole"), errors.Is(err, ErrForeign))
			if err != nil {
				assert.Equal(t, before, treeHash(t, top), "a refused Remove changed something")
				return
			}
			left, err := os.ReadDir(filepath.Dir(dir))
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}

func TestCleanCloseIsRecordedOnlyWhenNothingIsMarked(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		name                 string
		use                  func(t *testing.T, s *Session)
		nextBoot             string
		wantClean, wantCache bool
	}{
		{"nothing written → clean", func(*testing.T, *Session) {}, otherBoot, true, true},
		{"written, marks cleared → clean", func(t *testing.T, s *Session) {
			require.NoError(t, s.WriteAt(ctx, make([]byte, 512), 0, false))
			clearMarks(t, s, 0)
		}, otherBoot, true, true},
		{"marks left, the machine ran on → not clean, but nothing was lost", func(t *testing.T, s *Session) {
			require.NoError(t, s.WriteAt(ctx, make([]byte, 512), 0, false))
		}, testBoot, false, true},
		{"marks left, the machine was restarted → neither", func(t *testing.T, s *Session) {
			require.NoError(t, s.WriteAt(ctx, make([]byte, 512), 0, false))
		}, otherBoot, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "r")
			spec := testSpec("uid-1", 16*mib)
			require.NoError(t, Create(fsys.Host{}, dir, spec))
			r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
			s := admit(t, r, 1, "s1")
			tc.use(t, s)
			require.NoError(t, s.Close())
			require.NoError(t, r.Close(ctx))

			r = openReplica(t, fsys.Host{}, dir, spec, tc.nextBoot)
			got := askState(t, admit(t, r, 2, "s2"))
			assert.Equal(t, tc.wantClean, got.Clean, "boot %q", got.BootID)
			assert.Equal(t, tc.wantCache, got.CacheKept)
			assert.Equal(t, tc.wantClean, got.BootID == testBoot)
			// In the next session of the same opening, the clean close no longer counts.
			got = askState(t, admit(t, r, 3, "s3"))
			assert.False(t, got.Clean)
			assert.Empty(t, got.BootID, "later session")
		})
	}
}
