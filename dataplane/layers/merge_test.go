package layers

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMayJoin(t *testing.T) {
	held := mark(2, Deleted)
	held.Holds = []string{"backup-1"}
	for _, tc := range []struct {
		name string
		line Line
		busy Busy
		want bool
	}{
		{"a snapshot → no", line(2, mark(2, Ready)), Busy{}, false},
		{"an attempt under way → no", line(2, mark(2, Intended)), Busy{}, false},
		{"deleted → yes", line(2, mark(2, Deleted)), Busy{}, true},
		{"not in the line → yes", line(2), Busy{}, true},
		{"deleted, a job reads it → no", line(2, held), Busy{}, false},
		{"deleted, between prepare and ready of another point → no", line(3, mark(2, Deleted), mark(3, Intended)), Busy{Barrier: true}, false},
		{"deleted, a rebuild needs it → no", line(2, mark(2, Deleted)), Busy{Needed: []Point{pt(1), pt(2)}}, false},
		{"deleted, a rebuild needs another one → yes", line(2, mark(2, Deleted)), Busy{Needed: []Point{pt(1)}}, true},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, tc.line.MayJoin(pt(2), tc.busy)) })
	}
}

func TestTheDirectionThatCopiesLess(t *testing.T) {
	for _, tc := range []struct {
		name             string
		upper, lowerOnly int64
		userWrites       bool
		want             Direction
		local            bool
	}{
		{"a large layer below a small one → down", 10, 1000, false, Down, false},
		{"a small layer below a large one → up", 1000, 10, false, Up, false},
		{"the only snapshot of 50 GiB, 1 GiB in the head → a local head, then down", 1 << 18, 49 << 18, true, Down, true},
		{"nothing below that the head lacks → up, nothing is copied", 5, 0, true, Up, false},
		{"equal → up, no local head", 7, 7, true, Up, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, local := Cheaper(tc.upper, tc.lowerOnly, tc.userWrites)
			assert.Equal(t, tc.want, d)
			assert.Equal(t, tc.local, local)
		})
	}
}

// blockSet has durable blocks, and after -1 blocks that are in memory only.
type blockSet []int64

func (s blockSet) Has(b int64) bool {
	for _, have := range s {
		if have == b {
			return true
		}
	}
	return false
}

func (s blockSet) Durable(b int64) bool {
	for i, have := range s {
		if have == -1 {
			return s[:i].Has(b)
		}
	}
	return s.Has(b)
}

func TestMerged(t *testing.T) {
	for _, tc := range []struct {
		name         string
		upper, lower blockSet
		userWrites   bool
		up, low      bool
	}{
		{"a block below that the upper file lacks → neither", blockSet{0}, blockSet{0, 1}, false, false, false},
		{"the upper file has all of the lower one → the lower one", blockSet{0, 1}, blockSet{1}, false, false, true},
		{"the upper file has it, not durably → neither", blockSet{-1, 1}, blockSet{1}, false, false, false},
		{"the upper file is empty → the upper one", nil, blockSet{1}, false, true, false},
		{"the upper file is empty and users write to it → neither", nil, blockSet{1}, true, false, false},
		{"both are empty → either", nil, nil, false, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			up, low := Merged(tc.upper, tc.lower, 3, tc.userWrites)
			assert.Equal(t, tc.up, up)
			assert.Equal(t, tc.low, low)
		})
	}
}

func TestPresence(t *testing.T) {
	assert.Equal(t, Entry{}, OnWrite(true, false), "the head has the block: as in a flat file")
	assert.Equal(t, Entry{Fill: true, Enter: true}, OnWrite(false, false))
	assert.Equal(t, Entry{Enter: true}, OnWrite(false, true))
	assert.Equal(t, Entry{Punch: true}, OnDiscard(true, true))
	assert.Equal(t, Entry{Punch: true}, OnDiscard(true, false))
	assert.Equal(t, Entry{Punch: true, Enter: true}, OnDiscard(false, true), "without the bit the lower block would show")
	assert.Equal(t, Entry{}, OnDiscard(false, false), "a trim of an empty volume changes nothing")

	for _, tc := range []struct {
		name string
		o    Opening
		want Trust
	}{
		{"killed, nothing lost → maps and recent", Opening{SameBoot: true, SameSuperblock: true}, Trust{Recent: true}},
		{"another boot → maps", Opening{SameSuperblock: true}, Trust{Distrust: true}},
		{"a failed sync → maps, and the cache is dropped", Opening{SameBoot: true, SameSuperblock: true, FailedSync: true}, Trust{DropCache: true, Distrust: true}},
		{"the disk may have been unplugged → the same", Opening{SameBoot: true}, Trust{DropCache: true, Distrust: true}},
		{"another boot after a failed sync → the same", Opening{FailedSync: true}, Trust{DropCache: true, Distrust: true}},
	} {
		assert.Equal(t, tc.want, Believe(tc.o), tc.name)
	}

	for _, tc := range []struct{ off, length, first, end int64 }{
		{0, 512, 0, 1},
		{512, 512, 0, 1},
		{4096, 4096, 1, 2},
		{4095, 2, 0, 2},
		{8192, 0, 2, 2},
	} {
		first, end := Covered(tc.off, tc.length)
		assert.Equal(t, [2]int64{tc.first, tc.end}, [2]int64{first, end}, "%d bytes at %d", tc.length, tc.off)
	}
}

func TestPairs(t *testing.T) {
	pair := func(lower, upper File, lowest, users, local bool) Pair {
		return Pair{Lower: lower, Upper: upper, Lowest: lowest, UpperDurable: true, UserWrites: users, LocalHead: local}
	}
	for _, tc := range []struct {
		name          string
		chain         Chain
		active, local File
		want          []Pair
	}{
		{"each layer has one file → none", chain(3, sealed(0, 1, 1), head(1, 2)), 2, 0, nil},
		{"the lowest pair comes first", chain(6, sealed(0, 1, 1, 2), head(1, 3, 4, 5)), 5, 0, []Pair{
			pair(1, 2, true, false, false), pair(3, 4, false, false, false), pair(4, 5, false, true, false),
		}},
		{"a local head", chain(5, sealed(0, 1, 1), head(1, 2, 3, 4)), 4, 4, []Pair{
			pair(2, 3, false, false, false), pair(3, 4, false, true, true),
		}},
		{"a local head that was sealed", chain(5, sealed(0, 1, 1, 3), head(1, 4)), 4, 3, []Pair{pair(1, 3, true, false, false)}},
		{"a head that the members have not switched to", chain(4, sealed(0, 1, 1, 2), head(1, 3)), 2, 0, []Pair{pair(1, 2, true, true, false)}},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, tc.chain.Pairs(tc.active, tc.local)) })
	}
}

func TestBlocksOfAPairAreCounted(t *testing.T) {
	p := Pair{UpperDurable: true}
	takes := func(b int64) bool { return b != 1 }
	p.Count(blockSet{0, 1, 2}, blockSet{0, 1, 4}, takes, 5)
	assert.Equal(t, Pair{UpperDurable: true, UpperBlocks: 3, LowerOnly: 1, Hidden: 1}, p)
	p.Count(blockSet{-1, 3}, blockSet{0, 4}, takes, 5) // block 3 is in memory only, and the lower file lacks it
	assert.Equal(t, Pair{UpperDurable: true, UpperBlocks: 4, LowerOnly: 3, Hidden: 1}, p)
	p.Count(blockSet{-1, 3}, blockSet{3}, takes, 5)
	assert.Equal(t, Pair{UpperDurable: false, UpperBlocks: 5, LowerOnly: 3, Hidden: 1}, p)
}
