package fsys

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fileBytes is the size of the test's file: more than the part that is mapped at once.
const fileBytes = residentWindow + 1<<20

var wholeFile = []Range{{Length: fileBytes}}

// fileInCache is a file that is cached and synced in its first MiB and in 8 KiB at residentWindow; the rest is a hole.
func fileInCache(t *testing.T) *hostFile {
	t.Helper()
	d, err := Host{}.OpenDir(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	f, err := d.OpenFile("f", CreateNew)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	require.NoError(t, f.WriteAt(make([]byte, 1<<20), 0))
	require.NoError(t, f.Truncate(fileBytes))
	require.NoError(t, f.WriteAt(make([]byte, 8192), residentWindow))
	require.NoError(t, f.Datasync())
	h := f.(*hostFile)
	if cached, err := h.cachedIn(wholeFile, func() {}); err != nil || len(cached) == 0 {
		t.Skipf("the file system of this test does not cache files (%v cached, %v)", cached, err)
	}
	return h
}

// lockPages keeps a part of a file in the cache until the test ends.
func lockPages(t *testing.T, f *hostFile, r Range) {
	t.Helper()
	require.NoError(t, f.control(func(fd int) error {
		b, err := unix.Mmap(fd, r.Off, int(r.Length), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Munmap(b) })
		return unix.Mlock(b)
	}))
}

// within reports whether a range lies in one of the others.
func within(r Range, others []Range) bool {
	for _, o := range others {
		if o.Off <= r.Off && r.Off+r.Length <= o.Off+o.Length {
			return true
		}
	}
	return false
}

func TestADroppedFileIsNotCached(t *testing.T) {
	f := fileInCache(t)
	kept, err := f.DropCache(wholeFile, func() {})
	require.NoError(t, err)
	assert.Empty(t, kept)
	cached, err := f.cachedIn(wholeFile, func() {})
	require.NoError(t, err)
	assert.Empty(t, cached)
}

func TestPagesThatAreLockedAreReportedWhereTheCallerAsks(t *testing.T) {
	f := fileInCache(t)
	first, last := Range{Off: 64 << 10, Length: 4096}, Range{Off: residentWindow, Length: 4096}
	lockPages(t, f, first)
	lockPages(t, f, last)
	for _, tc := range []struct {
		name   string
		ranges []Range
		want   []Range
	}{
		{"the whole file", wholeFile, []Range{first, last}},
		{"the part with the first", []Range{{Length: 1 << 20}}, []Range{first}},
		{"the part with the last, and a hole", []Range{{Off: 1 << 20, Length: 1 << 20}, {Off: residentWindow, Length: 1 << 20}}, []Range{last}},
		{"parts without them", []Range{{Length: 4096}, {Off: 1 << 20, Length: 8 << 20}}, nil},
		{"nothing", nil, nil},
	} {
		kept, err := f.DropCache(tc.ranges, func() {})
		require.NoError(t, err)
		require.Len(t, kept, len(tc.want), tc.name)
		// The kernel also keeps the pages next to a locked page if it allocated them together.
		for i, w := range tc.want {
			assert.True(t, within(w, kept[i:i+1]), "%s: %v", tc.name, kept)
		}
	}
}

// A program reads the file from start to end, and returns to the first part in the last attempt.
func TestAPartThatWasNotCachedOnceIsNotReportedWhenItIsReadAgain(t *testing.T) {
	a, b, c := Range{0, 4096}, Range{4096, 4096}, Range{8192, 4096}
	for _, tc := range []struct {
		name     string
		attempts [][]Range // the cached parts in each attempt
		asked    [][]Range
		want     []Range
	}{
		{"nothing is cached", [][]Range{nil}, [][]Range{{a, b, c}}, nil},
		{"one part stays", [][]Range{{a, b}, {b, c}, {b}, {b}, {a, b, c}}, [][]Range{{a, b, c}, {a, b}, {b}, {b}, {b}}, []Range{b}},
		{"no part stays", [][]Range{{a}, {b}}, [][]Range{{a, b, c}, {a}}, nil},
	} {
		drops, asked := 0, [][]Range{}
		kept, err := keptByAll([]Range{a, b, c}, func() error { drops++; return nil }, func(ranges []Range) (found []Range, err error) {
			asked = append(asked, ranges)
			for _, r := range ranges {
				if within(r, tc.attempts[len(asked)-1]) {
					found = append(found, r)
				}
			}
			return found, nil
		}, func(time.Duration) {})
		require.NoError(t, err)
		assert.Equal(t, tc.want, kept, tc.name)
		assert.Equal(t, tc.asked, asked, tc.name)
		assert.Equal(t, len(tc.attempts), drops, tc.name)
	}
}

func TestBothQueriesFindTheSameParts(t *testing.T) {
	f := fileInCache(t)
	for _, ranges := range [][]Range{
		wholeFile,
		{{Off: 512 << 10, Length: 4096}, {Off: 1<<20 - 4096, Length: 8192}},
		{{Off: residentWindow - 1<<20, Length: 1<<20 + 4096}},
		{{Off: 2 << 20, Length: 1 << 20}},
	} {
		cached, err := f.cachedIn(ranges, func() {})
		require.NoError(t, err)
		resident, err := f.residentIn(ranges, func() {})
		require.NoError(t, err)
		assert.Equal(t, cached, resident, "%v", ranges)
	}
	kept, err := f.DropCache(wholeFile, func() {})
	require.NoError(t, err)
	require.Empty(t, kept)
	windows := 0
	resident, err := f.residentIn(wholeFile, func() { windows++ })
	require.NoError(t, err)
	assert.Empty(t, resident)
	assert.Equal(t, 2, windows, "it reports progress for each part that it maps")
}

func TestWriteThroughLeavesHolesAndContent(t *testing.T) {
	f := fileInCache(t)
	content := []byte("content")
	require.NoError(t, f.WriteAt(content, 64<<10))
	require.NoError(t, f.Datasync())
	before, err := f.AllocatedBytes()
	require.NoError(t, err)
	parts := []Range{{Off: 64 << 10, Length: 4096}, {Off: 8 << 20, Length: 1 << 20}, {Off: residentWindow - 4096, Length: 12288}}
	for _, p := range parts {
		lockPages(t, f, p)
	}
	pieces := 0
	require.NoError(t, f.WriteThrough(parts, func() { pieces++ }))
	require.NoError(t, f.Datasync())
	assert.Equal(t, 1+4+1, pieces)
	got := make([]byte, len(content))
	require.NoError(t, f.ReadAt(got, 64<<10))
	assert.Equal(t, content, got)
	after, err := f.AllocatedBytes()
	require.NoError(t, err)
	assert.LessOrEqual(t, after, before+8192, "a hole was filled")
}
