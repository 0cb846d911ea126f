package memory_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/nbd/memory"
)

// TestBehavesLikeAPlainArray does the same random changes to a Backend and to a byte slice.
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
		if err != nil {
			t.Fatal(err)
		}
		off = rng.IntN(size)
		got := make([]byte, 1+rng.IntN(size-off))
		if err := m.ReadAt(t.Context(), got, int64(off)); err != nil || !bytes.Equal(got, plain[off:off+len(got)]) {
			t.Fatalf("read of %d at %d differs; %v", len(got), off, err)
		}
	}
}

func TestExtentsFollowAllocation(t *testing.T) {
	const hz = nbd.ExtentHole | nbd.ExtentZero
	m := memory.New(20480)
	for _, err := range []error{
		m.WriteAt(t.Context(), []byte("x"), 5000, false), m.WriteAt(t.Context(), make([]byte, 4096), 8192, false),
		m.Zero(t.Context(), 8192, 4096, 0), m.Zero(t.Context(), 16384, 1, nbd.ZeroNoHole),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := m.Extents(t.Context(), 100, 20380)
	want := []nbd.Extent{{Offset: 100, Length: 3996, Flags: hz}, {Offset: 4096, Length: 4096}, {Offset: 8192, Length: 8192, Flags: hz}, {Offset: 16384, Length: 4096}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestOutsideIsRefused(t *testing.T) {
	m := memory.New(4096)
	if err := m.ReadAt(t.Context(), make([]byte, 2), 4095); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("read: %v", err)
	}
	if err := m.WriteAt(t.Context(), make([]byte, 2), 4095, false); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write: %v", err)
	}
	if _, err := m.Extents(t.Context(), -1, 2); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("extents: %v", err)
	}
}
