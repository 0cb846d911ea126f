package layers

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBase(t *testing.T) {
	l := line(4, mark(1, Ready), mark(2, Deleted), mark(4, Ready))
	source := chain(9, sealed(0, 1, 1), sealed(1, 2, 2), sealed(2, 4, 3), head(4, 4))
	for _, tc := range []struct {
		name   string
		target Chain
		want   Point
	}{
		{"a new replica → none", NewChain(), Point{}},
		{"the newest that both show", chain(4, sealed(0, 1, 1), sealed(1, 2, 2), head(2, 3)), pt(2)},
		{"a border that the source does not show", chain(4, sealed(0, 1, 1), sealed(1, 3, 2), head(3, 3)), pt(1)},
		{"not flushed on the target → the one below", chain(4, sealed(0, 1, 1), open(1, 2, 2), head(2, 3)), pt(1)},
		{"another nonce → the one below", chain(4, sealed(0, 1, 1), Layer{1, Border{Point{2, 7}, true}, []File{2}}, head(2, 3)), pt(1)},
	} {
		assert.Equal(t, tc.want, l.Base(source, tc.target), tc.name)
	}
	assert.Equal(t, pt(1), line(4, mark(1, Ready)).Base(source, source), "a border that is not in the line is no base")
}

func TestARebuildMakesOnePointAfterTheOther(t *testing.T) {
	l := line(7, mark(1, Ready), mark(5, Ready), mark(7, Ready)).reverted(1, 3)
	source := Chain{Layers: []Layer{sealed(0, 1, 1), sealed(3, 5, 2, 3), sealed(5, 7, 4), head(7, 5)}, Next: 6, Reverted: Interval{1, 3}}
	target := l.Follow(chain(4, sealed(0, 1, 1), sealed(1, 2, 2), head(2, 3))).Chain
	base := l.Base(source, target)
	assert.Equal(t, pt(1), base)
	target = StartRebuild(target, base)

	first := NextStage(source, base, true)
	assert.Equal(t, Stage{To: Border{pt(5), true}, Own: true, Source: []int{1}}, first)
	assert.Equal(t, []Point{pt(1), pt(5), pt(7)}, Needed(source, base))
	target = l.SealStage(target, first.To.Point)
	second := NextStage(source, pt(5), false)
	assert.Equal(t, Stage{To: Border{pt(7), true}, Source: []int{2}}, second)
	target = l.SealStage(target, second.To.Point)
	last := NextStage(source, pt(7), false)
	assert.Equal(t, Stage{Source: []int{3}}, last)
	target = l.EndRebuild(target)
	assert.Equal(t, Chain{Layers: []Layer{sealed(0, 1, 1), sealed(4, 5, 4), sealed(6, 7, 5), head(7, 6)}, Next: 7, Reverted: Interval{1, 3}}, target)
	assert.Equal(t, target, l.Follow(target).Chain, "the next start drops nothing of it")
}

func TestAStageOfASourceThatHasMerged(t *testing.T) {
	source := chain(9, sealed(0, 1, 1), sealed(1, 4, 2, 3), open(4, 5, 4), head(5, 5))
	assert.Equal(t, Stage{To: Border{pt(4), true}, Source: []int{1}}, NextStage(source, pt(2), false), "its layer starts below the target's point")
	assert.Equal(t, Stage{Source: []int{2, 3}}, NextStage(source, pt(4), false), "an attempt that is not sealed belongs to the head")
	target := StartRebuild(chain(9, sealed(0, 1, 1), sealed(1, 2, 2), head(2, 3)), pt(1))
	assert.Equal(t, chain(9, sealed(0, 1, 1), head(1, 2, 3)), target, "what is above the base is the target's own")
	assert.Equal(t, chain(9, head(0, 1, 2, 3)), StartRebuild(target, Point{}), "without a base all is its own")
}

func TestWhereABadBlockIsRepaired(t *testing.T) {
	c := chain(5, sealed(0, 1, 1), open(1, 2, 2), head(2, 4))
	at, ok := c.InPlace(1)
	assert.True(t, ok)
	assert.Equal(t, pt(1), at)
	for _, f := range []File{2, 4, 9} {
		_, ok = c.InPlace(f)
		assert.False(t, ok, "file %d", f)
	}
}
