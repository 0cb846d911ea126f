package memory_test

import (
	"bytes"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

// TestBehavesLikeAPlainArray applies the same random changes to a Backend and to a byte slice.
func TestBehavesLikeAPlainArray(t *testing.T) {
	const size = 50_000 // not a whole number of pages
	m, plain, rng := memory.New(size), make([]byte, size), rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		off := rng.IntN(size)
		n := 1 + rng.IntN(min(size-off, 20_000))
		var err error
		switch rng.IntN(4) {
		case 0:
			err = m.Zero(t.Context(), int64(off), int64(n), nbd.ZeroFlags(rng.IntN(4)))
			clear(plain[off : off+n])
		case 1:
			err = m.Trim(t.Context(), int64(off), int64(n), false)
			clear(plain[off : off+n])
		default:
			data := bytes.Repeat([]byte{byte(rng.Uint32())}, n)
			err = m.WriteAt(t.Context(), data, int64(off), false)
			copy(plain[off:], data)
		}
		require.NoError(t, err)
		off = rng.IntN(size)
		got := make([]byte, 1+rng.IntN(size-off))
		err = m.ReadAt(t.Context(), got, int64(off))
		require.NoError(t, err)
		require.True(t, bytes.Equal(got, plain[off:off+len(got)]), "read of %d at %d differs", len(got), off)
	}
}

func TestExtentsFollowAllocation(t *testing.T) {
	const hz = nbd.ExtentHole | nbd.ExtentZero
	m := memory.New(20480)
	for _, err := range []error{
		m.WriteAt(t.Context(), []byte("x"), 5000, false), m.WriteAt(t.Context(), make([]byte, 4096), 8192, false),
		m.Zero(t.Context(), 8192, 4096, 0), m.Zero(t.Context(), 16384, 1, nbd.ZeroNoHole),
	} {
		require.NoError(t, err)
	}
	got, err := m.Extents(t.Context(), 100, 20380)
	want := []nbd.Extent{{Offset: 100, Length: 3996, Flags: hz}, {Offset: 4096, Length: 4096}, {Offset: 8192, Length: 8192, Flags: hz}, {Offset: 16384, Length: 4096}}
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestOutsideIsRefused(t *testing.T) {
	m := memory.New(4096)
	assert.ErrorIs(t, m.ReadAt(t.Context(), make([]byte, 2), 4095), syscall.EINVAL)
	assert.ErrorIs(t, m.WriteAt(t.Context(), make([]byte, 2), 4095, false), syscall.ENOSPC)
	_, err := m.Extents(t.Context(), -1, 2)
	assert.ErrorIs(t, err, syscall.EINVAL)
}
