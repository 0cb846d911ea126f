package replica

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// namesIn lists a replica's directory, and checks that the metadata and the spare have the expected size.
func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
		info, err := e.Info()
		require.NoError(t, err)
		if e.Name() == metaName || e.Name() == metaTempName {
			assert.Equal(t, int64(4096), info.Size(), "%s has %d bytes", e.Name(), info.Size())
		}
	}
	return names
}

// Two releases take turns with a directory, as in an update and a downgrade. Each reads the files of the other. There
// is never a name that would make the first release refuse the removal.
func TestTheFirstReleaseAndThisOneAlternate(t *testing.T) {
	ctx := context.Background()
	dir, spec := filepath.Join(t.TempDir(), "r"), testSpec("uid-1", 16*mib)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	known := []string{"data.img", "intent.map", "replica.meta", "replica.meta.tmp"}
	for generation := int64(1); generation < 5; generation++ {
		r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
		s := admit(t, r, generation, fmt.Sprint("s", generation))
		assert.Equal(t, known, namesIn(t, dir))
		require.NoError(t, record(s, membership.NewEpoch(generation, 1, []string{"a"})))
		require.NoError(t, s.Close())
		require.NoError(t, r.Close(ctx))

		d, err := fsys.Host{}.OpenDir(dir)
		require.NoError(t, err)
		m, err := readMeta(d)
		require.NoError(t, err)
		m.Clean = false
		require.NoError(t, replaceAsFirstRelease(d, m))
		require.NoError(t, d.Close())
	}
}

func TestAReplicaOfTheFirstReleaseGetsItsSpareAlsoWhenTheSameEngineComesBack(t *testing.T) {
	dir, spec := filepath.Join(t.TempDir(), "r"), testSpec("uid-1", 16*mib)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
	require.NoError(t, admit(t, r, 1, "s").Close())
	require.NoError(t, os.Remove(filepath.Join(dir, metaTempName)))
	require.NoError(t, admit(t, r, 1, "s").Close())
	assert.Contains(t, namesIn(t, dir), metaTempName)
}

func TestMetadataThatIsLargerThanTheSpareIsWrittenToANewFile(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	members := []string{}
	for i := range 400 {
		members = append(members, fmt.Sprintf("a-member-with-a-name-%03d", i))
	}
	large := membership.NewEpoch(1, 2, members)
	require.NoError(t, record(s, membership.NewEpoch(1, 1, []string{"a"})))
	require.NoError(t, record(s, large))
	require.NoError(t, record(s, membership.NewEpoch(1, 3, members[:399])))
	require.NoError(t, record(s, membership.NewEpoch(1, 4, []string{"a"})))
	f.Fill()
	require.NoError(t, record(s, membership.NewEpoch(1, 5, []string{"a"})))
	large.Counter = 6
	assert.ErrorIs(t, record(s, large), syscall.ENOSPC, "large metadata on a full disk")
	got := r.State()
	require.NoError(t, got.Failure)
	assert.Equal(t, int64(5), got.Epoch.Counter)
}

// If it is unknown whether an exchange is durable, the spare may be the metadata after a loss of power. So it is not
// written to.
func TestAnExchangeThatIsNotKnownToBeDurableLeavesBothFilesWhole(t *testing.T) {
	for seed := range uint64(40) {
		f, r := newMemReplica(t, 16*mib)
		require.NoError(t, admit(t, r, 1, "one").Close())
		failed := false
		f.Before(func(op memfs.Op) error {
			if op.Kind == "syncdir" && !failed {
				failed = true
				return syscall.EIO
			}
			return nil
		})
		_, err := r.Admit(context.Background(), 2, "two")
		require.ErrorIs(t, err, fsys.ErrUncertain)
		steps := 0
		f.Before(func(memfs.Op) error {
			if steps++; steps > int(seed%8) {
				return memfs.ErrCrashed
			}
			return nil
		})
		fenced := r.Fence(context.Background(), 3)
		f.Crash(rand.New(rand.NewPCG(seed, 0)))
		again, err := Open(f, "/disk/replicas/r", testSpec("uid-1", 16*mib), Options{BootID: testBoot})
		require.NoError(t, err, "seed %d", seed)
		got := again.State().Generation
		assert.GreaterOrEqual(t, got, int64(1), "seed %d, fenced %v", seed, fenced)
		if fenced == nil {
			assert.GreaterOrEqual(t, got, int64(3))
		}
		require.NoError(t, again.Close(context.Background()))
	}
}

// After a failed sync no later sync is believed: from then on each replacement uses a new file.
func TestAfterAnExchangeThatIsNotKnownToBeDurableNothingIsOverwritten(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	failed, made := false, false
	f.Before(func(op memfs.Op) error {
		switch {
		case op.Kind == "syncdir" && !failed:
			failed = true
			return syscall.EIO
		case op.Kind == "create" && op.Name == metaTempName:
			made = true
		case op.Kind == "exchange":
			made = false
		case op.Kind == "write" && op.Name == metaTempName && failed && !made:
			t.Error("a file was overwritten that may be the metadata")
		}
		return nil
	})
	_, err := r.Admit(context.Background(), 1, "one")
	require.ErrorIs(t, err, fsys.ErrUncertain)
	for generation := range int64(3) {
		require.NoError(t, r.Fence(context.Background(), 2+generation))
	}
}

// tornReads is a directory in which the metadata was opened just before it became the spare.
type tornReads struct {
	fsys.Dir
	left *int
}

func (d tornReads) OpenFile(name string, mode fsys.Mode) (fsys.File, error) {
	if name == metaName && *d.left > 0 {
		*d.left--
		name = "torn"
	}
	return d.Dir.OpenFile(name, mode)
}

func TestMetadataThatIsReplacedWhileItIsReadIsReadAgain(t *testing.T) {
	f, _ := newMemReplica(t, 16*mib)
	d, err := f.OpenDir("/disk/replicas/r")
	require.NoError(t, err)
	b, err := readFile(d, metaName, maxMetaBytes)
	require.NoError(t, err)
	require.NoError(t, fsys.WriteNew(d, "torn", flip(40)(b)))
	for torn, want := range []error{nil, nil, nil, errTorn} {
		left := torn
		m, err := readMeta(tornReads{d, &left})
		assert.ErrorIs(t, err, want, "torn %d times", torn)
		if err == nil {
			assert.Equal(t, "uid-1", m.UID, "torn %d times", torn)
		}
	}
}

// A spare without allocated blocks reserves no room.
func TestASpareThatIsAHoleIsCreatedAgain(t *testing.T) {
	dir, spec := filepath.Join(t.TempDir(), "r"), testSpec("uid-1", 16*mib)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	require.NoError(t, os.WriteFile(filepath.Join(dir, metaTempName), nil, 0o600))
	require.NoError(t, os.Truncate(filepath.Join(dir, metaTempName), metaBlockBytes))
	d, err := fsys.Host{}.OpenDir(dir)
	require.NoError(t, err)
	defer d.Close()
	store := replacesMeta(d)
	store.KeepSpare()
	var st syscall.Stat_t
	require.NoError(t, syscall.Stat(filepath.Join(dir, metaTempName), &st))
	assert.GreaterOrEqual(t, st.Blocks*512, int64(metaBlockBytes), "%d blocks", st.Blocks)
}

// A second name of the metadata must not be mistaken for the spare.
func TestASpareThatIsTheMetadataIsNotOverwritten(t *testing.T) {
	dir, spec := filepath.Join(t.TempDir(), "r"), testSpec("uid-1", 16*mib)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	require.NoError(t, os.Remove(filepath.Join(dir, metaTempName)))
	require.NoError(t, os.Link(filepath.Join(dir, metaName), filepath.Join(dir, metaTempName)))
	d, err := fsys.Host{}.OpenDir(dir)
	require.NoError(t, err)
	held, err := d.OpenFile(metaName, fsys.ReadOnly)
	require.NoError(t, err)
	inForce := make([]byte, metaBlockBytes)
	require.NoError(t, held.ReadAt(inForce, 0))
	m, err := decodeMeta(inForce)
	require.NoError(t, err)
	m.Generation, m.Session = m.Generation+1, "s"
	next, err := m.encode()
	require.NoError(t, err)
	store := replacesMeta(d)
	require.NoError(t, store.Replace(next))
	got := make([]byte, metaBlockBytes)
	require.NoError(t, held.ReadAt(got, 0))
	assert.Equal(t, inForce, got, "the file in force was overwritten")
	require.NoError(t, held.Close())
	require.NoError(t, d.Close())
	r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
	require.NoError(t, admit(t, r, 1, "s").Close())
	namesIn(t, dir)
}
