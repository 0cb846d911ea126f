package replica

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// edit and the other damage helpers change the files of a replica in dir.
func edit(name string, change func(b []byte) []byte) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		path := filepath.Join(dir, name)
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, change(b), 0o600))
	}
}

func remove(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, name))) }
}

// instead replaces a file with another object.
func instead(name string, put func(path string) error) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.Rename(path, filepath.Join(filepath.Dir(dir), "moved-away")))
		require.NoError(t, put(path))
	}
}

func linkToMoved(path string) error {
	return os.Symlink(filepath.Join(filepath.Dir(filepath.Dir(path)), "moved-away"), path)
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte { b[at] ^= 0x10; return b }
}

// reseal changes a metadata file and recomputes its checksum.
func reseal(change func(b []byte)) func([]byte) []byte {
	return func(b []byte) []byte {
		change(b)
		binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
		return b
	}
}

// otherMap replaces a replica's intent map with a sound intent map of another replica.
func otherMap(t *testing.T, dir string) {
	require.NoError(t, os.WriteFile(filepath.Join(dir, intentName), newIntentImage("another-uid", 4*mib, 6144).b, 0o600))
}

func replaceIn(b []byte, from, to string) {
	copy(b, strings.Replace(string(b), from, to, 1))
}

// corruptions lists damages to a sound replica of 24 GiB (6144 regions, two sectors of marks), with the reason that
// Open returns.
var corruptions = []struct {
	name   string
	damage func(t *testing.T, dir string)
	want   Reason // "" means that the replica opens
}{
	{"nothing", func(*testing.T, string) {}, ""},
	{"a temporary metadata file is left over", func(t *testing.T, dir string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, metaTempName), []byte("half"), 0o600))
	}, ""},
	{"a stranger's file lies beside ours", func(t *testing.T, dir string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("x"), 0o600))
	}, ""},
	{"marks are set", edit(intentName, func(b []byte) []byte { b[520] = 0xff; b[1032] = 1; return b }), ""},
	{"the directory is gone", func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(dir)) }, ReplicaMissing},
	{"the directory above is gone", func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(filepath.Dir(dir))) }, DiskMissing},
	{"the directory is a file", func(t *testing.T, dir string) {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.WriteFile(dir, nil, 0o600))
	}, NotAReplica},
	{"the directory is a link to the replica", func(t *testing.T, dir string) {
		require.NoError(t, os.Rename(dir, dir+".real"))
		require.NoError(t, os.Symlink(dir+".real", dir))
	}, NotAReplica},
	{"the directory is empty", func(t *testing.T, dir string) {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.Mkdir(dir, 0o700))
	}, NotAReplica},
	{"another system's replica is there", func(t *testing.T, dir string) {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "volume.meta"), []byte(`{"Size":1}`), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "volume-head-000.img"), []byte("data"), 0o600))
	}, NotAReplica},
	{"the metadata alone is gone", remove(metaName), DataMissing},
	{"the metadata is gone, and the map says of no replica", func(t *testing.T, dir string) {
		remove(metaName)(t, dir)
		edit(intentName, flip(40))(t, dir)
	}, NotAReplica},
	{"metadata and map are gone", func(t *testing.T, dir string) {
		remove(metaName)(t, dir)
		remove(intentName)(t, dir)
	}, NotAReplica},
	{"the metadata is gone, and the map is of another replica", func(t *testing.T, dir string) {
		remove(metaName)(t, dir)
		otherMap(t, dir)
	}, NotAReplica},
	{"the metadata is empty", edit(metaName, func([]byte) []byte { return nil }), NotAReplica},
	{"the metadata is zeroes", edit(metaName, func(b []byte) []byte { clear(b); return b }), NotAReplica},
	{"the metadata has another magic", edit(metaName, flip(0)), NotAReplica},
	{"the metadata is a link", instead(metaName, linkToMoved), NotAReplica},
	{"the metadata is a directory", instead(metaName, func(p string) error { return os.Mkdir(p, 0o700) }), NotAReplica},
	{"the metadata is cut in its header", edit(metaName, func(b []byte) []byte { return b[:12] }), MetadataTorn},
	{"the metadata is cut in its payload", edit(metaName, func(b []byte) []byte { return b[:len(b)/2] }), MetadataTorn},
	{"the metadata lacks its last byte", edit(metaName, func(b []byte) []byte { return b[:len(b)-1] }), MetadataTorn},
	{"the metadata has a byte too many", edit(metaName, func(b []byte) []byte { return append(b, 0) }), MetadataTorn},
	{"the metadata is far too long", edit(metaName, func(b []byte) []byte { return append(b, make([]byte, 1<<20)...) }), MetadataTorn},
	{"a bit of the metadata's payload flipped", edit(metaName, flip(40)), MetadataTorn},
	{"a bit of the metadata's checksum flipped", edit(metaName, func(b []byte) []byte { return flip(len(b) - 2)(b) }), MetadataTorn},
	{"the metadata has a key that is not known", edit(metaName, reseal(func(b []byte) { replaceIn(b, `"clean"`, `"cream"`) })), MetadataTorn},
	{"the metadata is sound but senseless", edit(metaName, reseal(func(b []byte) { replaceIn(b, `"generation":0`, `"generation":5`) })), MetadataTorn},
	{"the metadata's mark of a rebuild is no truth value", edit(metaName, reseal(func(b []byte) { replaceIn(b, `"rebuilding":false`, `"rebuilding":"yes"`) })), MetadataTorn},
	{"the metadata is marked as being rebuilt", edit(metaName, reseal(func(b []byte) { replaceIn(b, `"rebuilding":false`, `"rebuilding": true`) })), ""},
	{"the metadata is of a later version", edit(metaName, func(b []byte) []byte { b[8] = 3; return b }), UnknownVersion},
	{"the metadata is of version 2 without layers", edit(metaName, reseal(func(b []byte) { b[8] = 2 })), MetadataTorn},
	{"the metadata is of another uid", edit(metaName, reseal(func(b []byte) { replaceIn(b, "uid-1", "uid-2") })), OtherReplica},
	{"the metadata is of another name", edit(metaName, reseal(func(b []byte) { replaceIn(b, "vol-r-1", "vol-r-2") })), OtherReplica},
	{"the metadata is of another size", edit(metaName, reseal(func(b []byte) { replaceIn(b, "25769803776", "25769804288") })), SizeMismatch},
	{"the intent map is gone", remove(intentName), IntentMapMissing},
	{"the intent map is empty", edit(intentName, func([]byte) []byte { return nil }), IntentMapTorn},
	{"the intent map is zeroes", edit(intentName, func(b []byte) []byte { clear(b); return b }), IntentMapTorn},
	{"the intent map lacks its last sector", edit(intentName, func(b []byte) []byte { return b[:1024] }), IntentMapTorn},
	{"the intent map has a sector too many", edit(intentName, func(b []byte) []byte { return append(b, make([]byte, 512)...) }), IntentMapTorn},
	{"a bit of the intent map's header flipped", edit(intentName, flip(20)), IntentMapTorn},
	{"a bit of the intent map's checksum flipped", edit(intentName, flip(510)), IntentMapTorn},
	{"a sector of marks is zeroes", edit(intentName, func(b []byte) []byte { clear(b[512:1024]); return b }), IntentMapTorn},
	{"two sectors of marks changed places", edit(intentName, func(b []byte) []byte {
		one := append([]byte{}, b[512:1024]...)
		copy(b[512:], b[1024:1536])
		copy(b[1024:], one)
		return b
	}), IntentMapTorn},
	{"a mark past the last region", edit(intentName, func(b []byte) []byte { b[len(b)-1] = 0x80; return b }), IntentMapTorn},
	{"the intent map is of another replica", edit(intentName, func(b []byte) []byte {
		return newIntentImage("uid-9", 4<<20, 6144).b
	}), IntentMapTorn},
	{"the intent map is of a later version", edit(intentName, func(b []byte) []byte { b[8] = 2; return b }), UnknownVersion},
	{"the intent map is a link", instead(intentName, linkToMoved), NotAReplica},
	{"the data is gone", remove(dataName), DataMissing},
	{"the data is a link", instead(dataName, linkToMoved), NotAReplica},
	{"the data is a pipe", instead(dataName, func(p string) error { return syscall.Mkfifo(p, 0o600) }), NotAReplica},
	{"the data is cut short", func(t *testing.T, dir string) {
		require.NoError(t, os.Truncate(filepath.Join(dir, dataName), 24<<30-512))
	}, DataWrongSize},
	{"the data is too long", func(t *testing.T, dir string) {
		require.NoError(t, os.Truncate(filepath.Join(dir, dataName), 24<<30+512))
	}, DataWrongSize},
}

func TestADamagedReplicaIsRefusedWithItsReasonAndNotTouched(t *testing.T) {
	for _, tc := range corruptions {
		t.Run(tc.name, func(t *testing.T) {
			top := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(top, "replicas"), 0o700))
			dir := filepath.Join(top, "replicas", "r")
			spec := testSpec("uid-1", 24<<30)
			require.NoError(t, Create(fsys.Host{}, dir, spec))
			tc.damage(t, dir)

			before := treeHash(t, top)
			r, err := Open(fsys.Host{}, dir, spec, Options{BootID: testBoot})
			got := ReasonOf(err)
			assert.Equal(t, tc.want, got, err)
			assert.Equal(t, err == nil, tc.want == "")
			assert.Equal(t, before, treeHash(t, top), "Open changed something")
			if r != nil {
				require.NoError(t, r.Close(context.Background()))
				assert.Equal(t, before, treeHash(t, top), "Close of a replica that was not used changed something")
			}
		})
	}
}

func TestAReplicaThatIsOpenIsLocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	spec := testSpec("uid-1", mib)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
	_, err := Open(fsys.Host{}, dir, spec, Options{})
	assert.Equal(t, Locked, ReasonOf(err), "second Open: %v", err)
	err = Remove(fsys.Host{}, dir, spec.UID)
	assert.Equal(t, Locked, ReasonOf(err), err)
	require.NoError(t, r.Close(context.Background()))
	require.NoError(t, Remove(fsys.Host{}, dir, spec.UID))
}
