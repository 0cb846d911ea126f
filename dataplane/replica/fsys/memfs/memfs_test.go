package memfs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// After each crash synced data is present. Over all seeds, unsynced data was at least once present and at least once
// lost.
func TestACrashKeepsWhatWasSyncedAndLosesTheRestNowAndThen(t *testing.T) {
	kept, lost, torn, renamed, notRenamed := 0, 0, 0, 0, 0
	for seed := range uint64(60) {
		f := New()
		f.MkdirAll("/d")
		d := must(f.OpenDir("/d"))(t)
		file := must(d.OpenFile("a", fsys.CreateNew))(t)
		no(t, file.WriteAt(bytes.Repeat([]byte{1}, 512), 0))
		no(t, file.Sync())
		no(t, d.Sync())
		no(t, file.WriteAt(bytes.Repeat([]byte{2}, 512), 0))
		no(t, d.Rename("a", "b"))
		f.Crash(rand.New(rand.NewPCG(seed, 0)))

		require.ErrorIs(t, d.Sync(), ErrCrashed, "a handle outlived the crash")
		d = must(f.OpenDir("/d"))(t)
		after, err := d.OpenFile("b", fsys.ReadOnly)
		if renamed++; errors.Is(err, syscall.ENOENT) {
			renamed--
			notRenamed++
			after, err = d.OpenFile("a", fsys.ReadOnly)
		}
		no(t, err)
		got := make([]byte, 512)
		no(t, after.ReadAt(got, 0))
		switch ones := bytes.Count(got, []byte{1}); ones {
		case 512:
			lost++
		case 0:
			kept++
		default:
			torn++
		}
	}
	for name, n := range map[string]int{"kept": kept, "lost": lost, "torn": torn, "renamed": renamed, "not renamed": notRenamed} {
		assert.NotZero(t, n, "no seed gives the outcome %q", name)
	}
}

// The next process sees everything that a killed process wrote, synced or not. Unsynced data stays unsynced.
func TestAKillLosesHandlesAndLocksAlone(t *testing.T) {
	kept, lost := 0, 0
	for seed := range uint64(60) {
		f := New()
		f.MkdirAll("/d")
		d := must(f.OpenDir("/d"))(t)
		no(t, d.TryLock())
		no(t, must(d.OpenFile("a", fsys.CreateNew))(t).WriteAt([]byte{1}, 0))
		f.Before(func(Op) error { return ErrCrashed })
		require.ErrorIs(t, d.Sync(), ErrCrashed)
		f.Kill()

		_, err := d.Names()
		require.ErrorIs(t, err, ErrCrashed, "a handle outlived its process")
		d = must(f.OpenDir("/d"))(t)
		no(t, d.TryLock())
		got := make([]byte, 1)
		no(t, must(d.OpenFile("a", fsys.ReadOnly))(t).ReadAt(got, 0))
		require.Equal(t, byte(1), got[0])
		f.Crash(rand.New(rand.NewPCG(seed, 0)))
		if names := must(must(f.OpenDir("/d"))(t).Names())(t); len(names) == 0 {
			lost++
		} else {
			kept++
		}
	}
	assert.NotZero(t, kept, "the file was kept %d times and lost %d times", kept, lost)
	assert.NotZero(t, lost)
}

func TestAStepThatIsMadeToFailHasNoEffect(t *testing.T) {
	f := New()
	f.MkdirAll("/d")
	d := must(f.OpenDir("/d"))(t)
	f.Before(func(op Op) error {
		if op.Kind == "mkdir" {
			return syscall.EIO
		}
		return nil
	})
	assert.ErrorIs(t, d.Mkdir("x"), syscall.EIO)
	assert.Empty(t, must(d.Names())(t))
}

// A range that was zeroed keeps its space and looks like a hole, until it is written: SEEK_DATA cannot say what a file has been given.
func TestAZeroedRangeIsAllocatedAndLooksLikeAHole(t *testing.T) {
	f := New()
	f.MkdirAll("/d")
	d := must(f.OpenDir("/d"))(t)
	file := must(d.OpenFile("f", fsys.CreateNew))(t)
	no(t, file.Truncate(8*sectorBytes))
	no(t, file.WriteAt(bytes.Repeat([]byte{'x'}, 8*sectorBytes), 0))
	no(t, file.ZeroRange(2*sectorBytes+1, 3*sectorBytes))
	assert.EqualValues(t, 8*sectorBytes, must(file.AllocatedBytes())(t))
	assert.EqualValues(t, 3*sectorBytes, must(file.NextHole(0))(t), "a part of a sector is data")
	assert.EqualValues(t, 5*sectorBytes, must(file.NextData(3*sectorBytes))(t))
	no(t, file.Datasync())
	no(t, file.WriteAt([]byte{'y'}, 3*sectorBytes))
	assert.EqualValues(t, 4*sectorBytes, must(file.NextHole(0))(t), "what was written is data")
	got := make([]byte, sectorBytes)
	no(t, file.ReadAt(got, 4*sectorBytes))
	assert.Equal(t, make([]byte, sectorBytes), got)
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		no(t, err)
		return v
	}
}

func no(t *testing.T, err error) {
	t.Helper()
	require.NoError(t, err)
}
