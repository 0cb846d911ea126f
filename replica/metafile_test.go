package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/membership"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys/memfs"
)

// namesIn lists a replica's directory, and sees that the metadata and the spare have the one size.
func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
		info, err := e.Info()
		must(t, err)
		if (e.Name() == metaName || e.Name() == metaTempName) && info.Size() != 4096 {
			t.Errorf("%s has %d bytes", e.Name(), info.Size())
		}
	}
	return names
}

// Two releases take turns at a directory, as in an update and a way back: each reads what the other wrote, and there is never a name that
// the first release would refuse to remove.
func TestTheFirstReleaseAndThisOneTakeTurns(t *testing.T) {
	ctx := context.Background()
	dir, spec := filepath.Join(t.TempDir(), "r"), testSpec("uid-1", 16*mib)
	must(t, Create(fsys.Host{}, dir, spec))
	known := []string{"data.img", "intent.map", "replica.meta", "replica.meta.tmp"}
	for generation := int64(1); generation < 5; generation++ {
		r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
		s := admit(t, r, generation, fmt.Sprint("s", generation))
		if names := namesIn(t, dir); !slices.Equal(names, known) {
			t.Errorf("names %v, want %v", names, known)
		}
		must(t, record(s, membership.NewEpoch(generation, 1, []string{"a"})))
		must(t, s.Close())
		must(t, r.Close(ctx))

		d, err := fsys.Host{}.OpenDir(dir)
		must(t, err)
		m, err := readMeta(d)
		must(t, err)
		m.Clean = false
		must(t, replaceAsFirstRelease(d, m))
		must(t, d.Close())
	}
}

func TestAReplicaOfTheFirstReleaseGetsItsSpareAlsoWhenTheSameEngineComesBack(t *testing.T) {
	dir, spec := filepath.Join(t.TempDir(), "r"), testSpec("uid-1", 16*mib)
	must(t, Create(fsys.Host{}, dir, spec))
	r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
	must(t, admit(t, r, 1, "s").Close())
	must(t, os.Remove(filepath.Join(dir, metaTempName)))
	must(t, admit(t, r, 1, "s").Close())
	if names := namesIn(t, dir); !slices.Contains(names, metaTempName) {
		t.Errorf("names %v", names)
	}
}

func TestMetadataThatIsLargerThanTheSpareTakesTheLongWay(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	members := []string{}
	for i := range 400 {
		members = append(members, fmt.Sprintf("a-member-with-a-name-%03d", i))
	}
	large := membership.NewEpoch(1, 2, members)
	must(t, record(s, membership.NewEpoch(1, 1, []string{"a"})))
	must(t, record(s, large))
	must(t, record(s, membership.NewEpoch(1, 3, members[:399])))
	must(t, record(s, membership.NewEpoch(1, 4, []string{"a"})))
	f.Fill()
	must(t, record(s, membership.NewEpoch(1, 5, []string{"a"})))
	large.Counter = 6
	if err := record(s, large); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("large metadata on a full disk: %v", err)
	}
	if got := r.State(); got.Failure != nil || got.Epoch.Counter != 5 {
		t.Errorf("state %+v", got)
	}
}

// When it is not known whether an exchange is durable, the spare may be the metadata after a loss of power: it is not written to.
func TestAnExchangeThatIsNotKnownToBeDurableLeavesBothFilesWhole(t *testing.T) {
	for seed := range uint64(40) {
		f, r := newMemReplica(t, 16*mib)
		must(t, admit(t, r, 1, "one").Close())
		failed := false
		f.Before(func(op memfs.Op) error {
			if op.Kind == "syncdir" && !failed {
				failed = true
				return syscall.EIO
			}
			return nil
		})
		if _, err := r.Admit(context.Background(), 2, "two"); !errors.Is(err, errUncertain) {
			t.Fatalf("error %v", err)
		}
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
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got := again.State().Generation; got < 1 || fenced == nil && got < 3 {
			t.Errorf("seed %d: generation %d, fenced %v", seed, got, fenced)
		}
		must(t, again.Close(context.Background()))
	}
}

// No sync is believed after one that failed: from then on each replacement takes a new file.
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
	if _, err := r.Admit(context.Background(), 1, "one"); !errors.Is(err, errUncertain) {
		t.Fatalf("error %v", err)
	}
	for generation := range int64(3) {
		must(t, r.Fence(context.Background(), 2+generation))
	}
}

// tornReads is a directory whose metadata was opened just before it became the spare.
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
	must(t, err)
	b, err := readFile(d, metaName, maxMetaBytes)
	must(t, err)
	must(t, writeNew(d, "torn", flip(40)(b)))
	for torn, want := range []error{nil, nil, nil, errTorn} {
		left := torn
		if m, err := readMeta(tornReads{d, &left}); !errors.Is(err, want) || err == nil && m.UID != "uid-1" {
			t.Errorf("torn %d times: %+v, %v", torn, m, err)
		}
	}
}

// A spare without blocks of its own is no room.
func TestASpareThatIsAHoleIsMadeAnew(t *testing.T) {
	dir, spec := filepath.Join(t.TempDir(), "r"), testSpec("uid-1", 16*mib)
	must(t, Create(fsys.Host{}, dir, spec))
	must(t, os.WriteFile(filepath.Join(dir, metaTempName), nil, 0o600))
	must(t, os.Truncate(filepath.Join(dir, metaTempName), metaBlockBytes))
	d, err := fsys.Host{}.OpenDir(dir)
	must(t, err)
	defer d.Close()
	store := metaStore{dir: d}
	store.keepSpare()
	var st syscall.Stat_t
	must(t, syscall.Stat(filepath.Join(dir, metaTempName), &st))
	if st.Blocks*512 < metaBlockBytes {
		t.Errorf("%d blocks", st.Blocks)
	}
}

// The metadata by a second name must not be taken for the spare.
func TestASpareThatIsTheMetadataIsNotOverwritten(t *testing.T) {
	dir, spec := filepath.Join(t.TempDir(), "r"), testSpec("uid-1", 16*mib)
	must(t, Create(fsys.Host{}, dir, spec))
	must(t, os.Remove(filepath.Join(dir, metaTempName)))
	must(t, os.Link(filepath.Join(dir, metaName), filepath.Join(dir, metaTempName)))
	d, err := fsys.Host{}.OpenDir(dir)
	must(t, err)
	store := metaStore{dir: d}
	if f := store.openSpare(metaBlockBytes); f != nil {
		t.Error("taken for a spare")
		must(t, f.Close())
	}
	must(t, d.Close())
	r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
	must(t, admit(t, r, 1, "s").Close())
	namesIn(t, dir)
}
