package layers

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func blocksOf(changed []bool) (out []int64) {
	for b, is := range changed {
		if is {
			out = append(out, int64(b))
		}
	}
	return out
}

func TestChanged(t *testing.T) {
	c := chain(6, sealed(0, 1, 1), sealed(1, 3, 2, 3), sealed(3, 4, 4), head(4, 5))
	has := bits(map[File][]int64{1: {0, 1, 2, 3}, 2: {1}, 3: {2}, 4: {3}, 5: {0}})
	kept := []KeptMap{
		{From: pt(2), End: 3, Blocks: []bool{true}}, // from before the volume grew
		{From: Point{2, 7}, End: 3},
	}
	for _, tc := range []struct {
		name     string
		from, to Point
		want     []int64
		unknown  bool
	}{
		{"two neighbours, while a merge is under way → both files", pt(1), pt(3), []int64{1, 2}, false},
		{"over a layer", pt(1), pt(4), []int64{1, 2, 3}, false},
		{"a point and itself → nothing", pt(3), pt(3), nil, false},
		{"from a deleted point → its kept map and the files from its end on", pt(2), pt(4), []int64{0, 2, 3}, false},
		{"the same, up to a nearer point", pt(2), pt(3), []int64{0, 2}, false},
		{"a kept map with another nonce is another point", Point{2, 8}, pt(4), nil, true},
		{"no such point", pt(1), pt(2), nil, true},
		{"from the later to the earlier point → unknown, not nothing", pt(4), pt(3), nil, true},
		{"from a deleted point to an earlier one", pt(2), pt(1), nil, true},
		{"one number with two nonces", Point{3, 7}, pt(3), nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := c.Changed(tc.from, tc.to, 4, has, kept)
			require.Equal(t, !tc.unknown, ok)
			assert.Equal(t, tc.want, blocksOf(got))
		})
	}
}

func TestAMapIsKeptOfAWantedPoint(t *testing.T) {
	c := chain(8, sealed(0, 1, 1), sealed(1, 2, 3, 4), open(2, 3, 5), head(3, 6))
	one := KeptMap{From: pt(1), End: 3}
	assert.Equal(t, []KeptMap{one}, c.Keep(pt(1), nil), "empty; it ends at the lowest file above the point")
	assert.Equal(t, []KeptMap{one, {From: pt(2), End: 5}}, c.Keep(pt(2), []KeptMap{one}), "also below the head")
	assert.Equal(t, []KeptMap{one}, c.Keep(pt(1), []KeptMap{one}), "it is safe to repeat")
	other := KeptMap{From: Point{1, 7}, End: 3}
	assert.Equal(t, []KeptMap{other, one}, c.Keep(pt(1), []KeptMap{other}), "another nonce is another point")
	assert.Empty(t, c.Keep(pt(3), nil), "the border is not flushed")
	assert.Empty(t, c.Keep(pt(4), nil), "no such border")
}

func TestTakeUp(t *testing.T) {
	has := bits(map[File][]int64{3: {0}, 5: {2}})
	low := KeptMap{From: pt(1), End: 3, Blocks: []bool{false, true}}
	for _, tc := range []struct {
		name         string
		lower, upper File
		kept         []KeptMap
		changes      bool
		want         []KeptMap
		wait         bool
	}{
		{"no kept map", 1, 3, nil, true, nil, false},
		{"it ends above both files: they are in it already", 1, 2, []KeptMap{low}, true, []KeptMap{low}, false},
		{"it ends below both files", 3, 5, []KeptMap{low}, true, []KeptMap{low}, false},
		{"it ends at the upper file, which changes → waits", 1, 3, []KeptMap{low}, true, []KeptMap{low}, true},
		{"it ends at the upper file → takes its bits up", 1, 3, []KeptMap{low}, false, []KeptMap{{pt(1), 4, []bool{true, true, false}}}, false},
		{
			"two maps, one of them ends between two files of which one is gone", 2, 5,
			[]KeptMap{{From: pt(1), End: 3}, {From: pt(2), End: 2}},
			false,
			[]KeptMap{{pt(1), 6, []bool{false, false, true}}, {From: pt(2), End: 2}},
			false,
		},
		{"a map of more blocks than are asked for stays as long", 1, 3, []KeptMap{{pt(1), 3, make([]bool, 4)}}, false, []KeptMap{{pt(1), 4, []bool{true, false, false, false}}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := fmt.Sprint(tc.kept)
			got, ok := TakeUp(tc.kept, tc.lower, tc.upper, 3, has, tc.changes)
			assert.Equal(t, !tc.wait, ok)
			assert.Equal(t, tc.want, got)
			assert.Equal(t, before, fmt.Sprint(tc.kept), "the earlier maps stay as they are until the new ones are durable")
		})
	}
}

func TestWhichKeptMapsStay(t *testing.T) {
	one, five := KeptMap{From: pt(1), End: 3}, KeptMap{From: pt(5), End: 9}
	assert.Equal(t, []KeptMap{one}, DropKept([]KeptMap{one, {From: pt(3), End: 4}}, Interval{To: 2, By: 4}), "the revert gave up point 3")
	assert.Equal(t, []KeptMap{one, five}, DropKept([]KeptMap{one, five}, Interval{To: 1, By: 4}), "repeated at a later start: point 5 is newer than the revert")
	assert.Equal(t, []KeptMap{five}, line(9).base(5, "x").StillWanted([]KeptMap{one, five}))
	again := line(9)
	again.Bases = []Base{{Point{5, 7}, "x"}}
	assert.Empty(t, again.StillWanted([]KeptMap{five}), "another nonce")
}

func TestSetBase(t *testing.T) {
	held := mark(2, Deleted)
	held.Holds = []string{"backup-1"}
	for _, tc := range []struct {
		name string
		line Line
		want []Base
		err  error
	}{
		{"ready", line(2, mark(2, Ready)), []Base{{pt(2), "x"}}, nil},
		{"deleted and held", line(2, held), []Base{{pt(2), "x"}}, nil},
		{"deleted without a hold: it may be merged away already", line(2, mark(2, Deleted)), nil, ErrNoPoint},
		{"intended", line(2, mark(2, Intended)), nil, ErrNoPoint},
		{"not in the line", line(2), nil, ErrNoPoint},
		{"the job's next base replaces the earlier one", line(2, mark(2, Ready)).base(1, "x").base(1, "y"), []Base{{pt(1), "y"}, {pt(2), "x"}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := tc.line.SetBase("x", pt(2))
			require.ErrorIs(t, err, tc.err)
			if err == nil {
				assert.Equal(t, tc.want, got.Bases)
				assert.True(t, got.Wanted(pt(2)))
				assert.False(t, got.DropBase("x").Wanted(pt(2)))
			}
		})
	}
	full := line(2, mark(2, Ready))
	for i := range MostBases {
		full = full.base(1, fmt.Sprint(i))
	}
	_, err := full.SetBase("x", pt(2))
	require.ErrorIs(t, err, ErrManyBases)
	_, err = full.SetBase("0", pt(2))
	require.NoError(t, err, "a job that has a base already")
}

func TestTheTargetOfARebuildGetsMaps(t *testing.T) {
	source := chain(9, sealed(0, 3, 1, 3), sealed(3, 5, 5), head(5, 7))
	has := bits(map[File][]int64{1: {0, 1, 2, 3}, 3: {1}, 5: {2}, 7: {3}})
	kept := []KeptMap{{From: pt(1), End: 3, Blocks: []bool{true}}}
	target := chain(20, sealed(0, 3, 11), sealed(3, 5, 12), head(5, 14, 15))
	l := line(8).base(1, "x").base(1, "y").base(2, "z").base(3, "shown").base(7, "later")
	assert.Equal(t, []KeptMap{{pt(1), 14, []bool{true, true, true, false}}}, l.HandOver(source, target, pt(5), 4, has, kept))
	assert.Empty(t, l.HandOver(source, target, Point{}, 4, has, kept), "no point was sealed")
}
