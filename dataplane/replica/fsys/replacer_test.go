package fsys_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

const replacedBytes = 1024

func content(n byte) []byte { return bytes.Repeat([]byte{n}, replacedBytes) }

func replacerOn(t *testing.T, f *memfs.FS, spare int64) *fsys.Replacer {
	t.Helper()
	d, err := f.OpenDir("/d")
	require.NoError(t, err)
	require.NoError(t, d.Sync())
	return &fsys.Replacer{Dir: d, Name: "name", Temp: "name.tmp", SpareBytes: spare}
}

// inForce returns the content of the file; 0 if it does not exist.
func inForce(t *testing.T, f *memfs.FS) byte {
	t.Helper()
	d, err := f.OpenDir("/d")
	require.NoError(t, err)
	o, err := d.OpenFile("name", fsys.ReadOnly)
	if errors.Is(err, syscall.ENOENT) {
		return 0
	}
	require.NoError(t, err)
	b := make([]byte, replacedBytes)
	require.NoError(t, o.ReadAt(b, 0))
	require.Equal(t, content(b[0]), b, "the content is torn")
	return b[0]
}

// At each step, a loss of power or a kill leaves the old content or the new one. After a success it is the new one.
func TestAReplacementIsAllOrNothing(t *testing.T) {
	for _, spare := range []int64{0, replacedBytes} {
		for _, exchanges := range []bool{true, false} {
			for at := 1; ; at++ {
				f := memfs.New()
				f.MkdirAll("/d")
				if !exchanges {
					f.RefuseExchange()
				}
				r := replacerOn(t, f, spare)
				f.Before(func(op memfs.Op) error {
					if op.N == at {
						return memfs.ErrCrashed
					}
					return nil
				})
				done := byte(0)
				for n := byte(1); n <= 3; n++ {
					if r.Replace(content(n)) != nil {
						break
					}
					done = n
				}
				stopped := f.Steps() >= at
				f.Crash(rand.New(rand.NewPCG(uint64(at), 1)))
				got := inForce(t, f)
				if !stopped {
					require.EqualValues(t, 3, got)
					break
				}
				assert.True(t, got == done || got == done+1, "step %d: %d, after %d was done", at, got, done)
				require.NoError(t, replacerOn(t, f, spare).Replace(content(9)))
				f.Crash(rand.New(rand.NewPCG(1, 1)))
				require.EqualValues(t, 9, inForce(t, f))
			}
		}
	}
}

func TestAReplacementWithASpareNeedsNoSpace(t *testing.T) {
	for _, spare := range []int64{0, replacedBytes} {
		f := memfs.New()
		f.MkdirAll("/d")
		r := replacerOn(t, f, spare)
		require.NoError(t, r.Replace(content(1)))
		f.Fill()
		err := r.Replace(content(2))
		if spare == 0 {
			require.ErrorIs(t, err, syscall.ENOSPC)
			require.NotErrorIs(t, err, fsys.ErrUncertain)
			require.EqualValues(t, 1, inForce(t, f))
			continue
		}
		require.NoError(t, err)
		require.NoError(t, r.Replace(content(3)))
		require.EqualValues(t, 3, inForce(t, f))
	}
}

// It is unknown which file a loss of power leaves. So neither of the two is written to.
func TestAnUncertainReplacementWritesToNewFilesOnly(t *testing.T) {
	f := memfs.New()
	f.MkdirAll("/d")
	r := replacerOn(t, f, replacedBytes)
	require.NoError(t, r.Replace(content(1)))
	f.Before(func(op memfs.Op) error {
		if op.Kind == "syncdir" {
			return syscall.EIO
		}
		return nil
	})
	require.ErrorIs(t, r.Replace(content(2)), fsys.ErrUncertain)
	require.True(t, r.IsUncertain())
	created := false
	f.Before(func(op memfs.Op) error {
		created = created || op.Kind == "create"
		return nil
	})
	require.NoError(t, r.Replace(content(3)))
	require.True(t, created)
	require.True(t, r.IsUncertain(), "no later sync is believed")
	require.EqualValues(t, 3, inForce(t, f))
}
