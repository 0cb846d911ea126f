package engine

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBitmapRuns(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  [][2]int
		want []run
	}{
		{"nothing set", nil, nil},
		{"one bit", [][2]int{{5, 6}}, []run{{5, 6}}},
		{"the last bit of a word and the first of the next are one run", [][2]int{{63, 65}}, []run{{63, 65}}},
		{"a whole word", [][2]int{{64, 128}}, []run{{64, 128}}},
		{"several words", [][2]int{{3, 200}}, []run{{3, 200}}},
		{"two in a word", [][2]int{{1, 3}, {9, 10}}, []run{{1, 3}, {9, 10}}},
		{"overlapping sets", [][2]int{{1, 70}, {60, 130}}, []run{{1, 130}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBitmap(300)
			total := 0
			for _, s := range tc.set {
				b.set(s[0], s[1])
			}
			for _, w := range tc.want {
				total += w.to - w.from
			}
			assert.Equal(t, tc.want, b.runs())
			assert.Equal(t, total, b.count())
			assert.Len(t, b.indexes(), total)
		})
	}
}

func TestRegionsAreQuietOnlyAfterAWholePeriod(t *testing.T) {
	const region = 100
	for _, tc := range []struct {
		name  string
		steps func(r *regions)
		want  []run
	}{
		{"never written → not dirty", func(*regions) {}, nil},
		{"written in this period → not quiet", func(r *regions) { r.begin(0, 1); r.end(0, 1, false) }, nil},
		{
			"written in the period before → quiet",
			func(r *regions) { r.begin(150, 100); r.end(150, 100, false); r.newPeriod(false) },
			[]run{{1, 3}},
		},
		{
			"written again in this period → not quiet",
			func(r *regions) { r.begin(0, 1); r.end(0, 1, false); r.newPeriod(false); r.begin(0, 1) },
			nil,
		},
		{
			"a write that began before and ended in this period → not quiet",
			func(r *regions) { r.begin(0, 1); r.newPeriod(false); r.end(0, 1, false) },
			nil,
		},
		{
			"left uneven → never quiet",
			func(r *regions) { r.begin(0, 300); r.end(0, 100, true); r.newPeriod(false) },
			[]run{{1, 3}},
		},
		{
			"cleared → no longer dirty",
			func(r *regions) { r.begin(0, 300); r.end(0, 300, false); r.newPeriod(false); r.cleared([]int64{1}) },
			[]run{{0, 1}, {2, 3}},
		},
		{
			"written while it was being cleared → dirty still",
			func(r *regions) {
				r.begin(0, 1)
				r.end(0, 1, false)
				r.newPeriod(false)
				r.begin(0, 1) // waits for the range lock
				r.cleared([]int64{0})
				r.end(0, 1, false)
				r.newPeriod(false)
			},
			[]run{{0, 1}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRegions(1000, region)
			tc.steps(r)
			assert.Equal(t, tc.want, r.newPeriod(false))
		})
	}
}

// The end of the last region of the largest possible volume exceeds an int64.
func TestRegionsOfTheLargestVolume(t *testing.T) {
	const size, region = math.MaxInt64 - 511, 1 << 45
	last := int64(size/region) * region
	for name, r := range map[string]*regions{"made": newRegions(size, region), "grown": newRegions(region, region)} {
		r.grow(size)
		assert.EqualValues(t, 1<<18, r.count(), name)
		all := newBitmap(1 << 18)
		all.set(0, 1<<18)
		ranges, total := r.bytes(all, size)
		assert.Equal(t, []byteRange{{0, size}}, ranges, name)
		assert.EqualValues(t, size, total, name)
		assert.Equal(t, byteRange{last, size}, r.bytesOf(run{1<<18 - 1, 1 << 18}, size), name)
		assert.Equal(t, byteRange{0, region}, r.bytesOf(run{0, 1}, size), name)
	}
}

func TestRegionsWakeOnceUntilAllMarksAreCleared(t *testing.T) {
	r := newRegions(1000, 100)
	r.begin(0, 1)
	r.begin(500, 1)
	<-r.wake
	require.False(t, r.isIdle(), "rests with dirty regions")
	select {
	case <-r.wake:
		t.Fatal("kicked twice")
	default:
	}
	r.newPeriod(false)
	r.cleared([]int64{0, 5})
	require.True(t, r.isIdle(), "does not rest when all is clear")
	r.begin(0, 1)
	<-r.wake
}
