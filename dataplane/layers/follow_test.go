package layers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFollow(t *testing.T) {
	four := chain(5, sealed(0, 1, 1), sealed(1, 2, 2), sealed(2, 3, 3), head(3, 4))
	for _, tc := range []struct {
		name    string
		line    Line
		chain   Chain
		want    Chain
		joined  []Point
		dropped []Point
		short   bool
	}{
		{name: "all borders in the line → nothing", line: line(3, mark(1, Ready), mark(2, Deleted), mark(3, Ready)), chain: four, want: four},
		{
			name: "a border that was given up → joined, the head's content stays",
			line: line(3, mark(1, Ready), mark(2, Ready)), chain: four,
			want: chain(5, sealed(0, 1, 1), sealed(1, 2, 2), head(2, 3, 4)), joined: []Point{pt(3)},
		},
		{
			name: "deleted and forgotten while it was away → joined", line: line(3, mark(1, Ready), mark(3, Ready)), chain: four,
			want: chain(5, sealed(0, 1, 1), sealed(1, 3, 2, 3), head(3, 4)), joined: []Point{pt(2)},
		},
		{
			name: "reverted → dropped with all above", line: line(4, mark(1, Ready)).reverted(1, 4), chain: four,
			want: Chain{Layers: []Layer{sealed(0, 1, 1), head(4, 5)}, Next: 6, Reverted: Interval{1, 4}}, dropped: []Point{pt(2), pt(3)},
		},
		{
			name: "the head stands on the point to which the volume returned → dropped", line: line(4, mark(3, Ready)).reverted(3, 4),
			chain: chain(5, sealed(0, 3, 1), head(3, 4)),
			want:  Chain{Layers: []Layer{sealed(0, 3, 1), head(4, 5)}, Next: 6, Reverted: Interval{3, 4}},
		},
		{
			name: "it has followed the revert → nothing is dropped again", line: line(4, mark(1, Ready)).reverted(1, 4),
			chain: Chain{Layers: []Layer{sealed(0, 1, 1), head(4, 5)}, Next: 6, Reverted: Interval{1, 4}},
			want:  Chain{Layers: []Layer{sealed(0, 1, 1), head(4, 5)}, Next: 6, Reverted: Interval{1, 4}},
		},
		{
			name: "the revert's point was deleted later → first dropped, then joined", line: line(5, mark(5, Ready)).reverted(1, 4),
			chain: chain(4, sealed(0, 1, 1), sealed(1, 2, 2), head(2, 3)),
			want:  Chain{Layers: []Layer{head(0, 1, 4)}, Next: 5, Reverted: Interval{1, 4}}, joined: []Point{pt(1)}, dropped: []Point{pt(2)},
		},
		{
			name: "away since before the point of the revert → the head stays", line: line(4, mark(1, Ready), mark(2, Ready)).reverted(2, 4),
			chain: chain(3, sealed(0, 1, 1), head(1, 2)),
			want:  Chain{Layers: []Layer{sealed(0, 1, 1), head(1, 2)}, Next: 3, Reverted: Interval{2, 4}},
		},
		{
			name: "two reverts to one point: the head of the first is dropped by the second", line: line(6, mark(1, Ready)).reverted(1, 3).reverted(1, 6),
			chain: Chain{Layers: []Layer{sealed(0, 1, 1), head(3, 2)}, Next: 3, Reverted: Interval{1, 3}},
			want:  Chain{Layers: []Layer{sealed(0, 1, 1), head(6, 3)}, Next: 4, Reverted: Interval{1, 6}},
		},
		{
			name: "a snapshot after the revert stays", line: line(5, mark(1, Ready), mark(5, Ready)).reverted(1, 4),
			chain: Chain{Layers: []Layer{sealed(0, 1, 1), sealed(4, 5, 5), head(5, 6)}, Next: 7, Reverted: Interval{1, 4}},
			want:  Chain{Layers: []Layer{sealed(0, 1, 1), sealed(4, 5, 5), head(5, 6)}, Next: 7, Reverted: Interval{1, 4}},
		},
		{
			name: "the point of the revert is missing → it can only be rebuilt", line: line(4, mark(1, Ready), mark(2, Ready)).reverted(2, 4),
			chain: chain(4, sealed(0, 1, 1), sealed(1, 3, 2), head(3, 3)),
			want:  Chain{Layers: []Layer{sealed(0, 1, 1), head(4, 4)}, Next: 5, Reverted: Interval{2, 4}}, dropped: []Point{pt(3)}, short: true,
		},
		{
			name: "another nonce → joined", line: line(2, mark(1, Ready), Mark{Point: Point{2, 7}, State: Ready}),
			chain: chain(4, sealed(0, 1, 1), sealed(1, 2, 2), head(2, 3)),
			want:  chain(4, sealed(0, 1, 1), head(1, 2, 3)), joined: []Point{pt(2)},
		},
		{
			name: "ready, but not flushed here → joined", line: line(2, mark(2, Ready)), chain: chain(3, open(0, 2, 1), head(2, 2)),
			want: chain(3, head(0, 1, 2)), joined: []Point{pt(2)},
		},
		{
			name: "an attempt under way → kept", line: line(2, mark(2, Intended)), chain: chain(3, open(0, 2, 1), head(2, 2)),
			want: chain(3, open(0, 2, 1), head(2, 2)),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.line.Follow(tc.chain)
			assert.Equal(t, tc.want, got.Chain)
			assert.Equal(t, tc.joined, got.Joined)
			assert.Equal(t, tc.dropped, got.Dropped)
			assert.Equal(t, tc.short, got.Short)
			assert.NoError(t, got.Chain.Validate())
			again := tc.line.Follow(got.Chain)
			assert.Equal(t, got.Chain, again.Chain, "it is safe to repeat")
		})
	}
}

func TestPlanStart(t *testing.T) {
	flat := NewChain()
	one := chain(3, sealed(0, 1, 1), head(1, 2))
	two := chain(4, sealed(0, 1, 1), sealed(1, 2, 2), head(2, 3))
	unflushed := chain(4, sealed(0, 1, 1), open(1, 2, 2), head(2, 3))
	returned := Chain{Layers: []Layer{sealed(0, 1, 1), head(3, 4)}, Next: 5, Reverted: Interval{1, 3}}
	later := Chain{Layers: []Layer{sealed(0, 1, 1), head(5, 5)}, Next: 6, Reverted: Interval{1, 5}}
	grouped := Mark{Point: pt(2), State: Intended, Group: "g"}
	for _, tc := range []struct {
		name    string
		line    Line
		members []Chain
		groups  map[string]Outcome
		want    Start
		err     error
	}{
		{name: "the first start", line: Line{}, members: []Chain{flat, flat}, want: Start{Line: Line{}}},
		{
			name: "intended → leaves the line, though all have sealed", line: line(2, mark(1, Ready), mark(2, Intended)), members: []Chain{two, two},
			want: Start{Line: line(2, mark(1, Ready))},
		},
		{
			name: "intended, its group failed → leaves the line", line: line(2, mark(1, Ready), grouped), members: []Chain{two}, groups: map[string]Outcome{"g": Failed},
			want: Start{Line: line(2, mark(1, Ready))},
		},
		{
			name: "intended, its group is complete → ready", line: line(2, mark(1, Ready), grouped), members: []Chain{two}, groups: map[string]Outcome{"g": Complete},
			want: Start{Line: line(2, mark(1, Ready), Mark{Point: pt(2), State: Ready, Group: "g"})},
		},
		{
			name: "a deletion that was merged on one member stays a deletion", line: line(2, mark(1, Deleted), mark(2, Ready)),
			members: []Chain{two, chain(4, sealed(0, 2, 1, 2), head(2, 3))}, want: Start{Line: line(2, mark(1, Deleted), mark(2, Ready))},
		},
		{
			name: "restored, all show the point as flushed → adopted", line: line(1, mark(1, Ready)), members: []Chain{two, two},
			want: Start{Line: line(2, mark(1, Ready), mark(2, Ready)), Adopted: []Point{pt(2)}},
		},
		{
			name: "restored, one has not flushed → not adopted, the number is used up", line: line(1, mark(1, Ready)), members: []Chain{two, unflushed},
			want: Start{Line: line(2, mark(1, Ready))},
		},
		{
			name: "restored, one has merged it → not adopted", line: line(1, mark(1, Ready)), members: []Chain{two, one},
			want: Start{Line: line(2, mark(1, Ready))},
		},
		{
			name: "restored to before a revert that one member has followed → adopted", line: line(2, mark(1, Ready), mark(2, Ready)), members: []Chain{returned, two},
			want: Start{Line: line(3, mark(1, Ready)).reverted(1, 3), Lost: []Point{pt(2)}},
		},
		{
			name: "restored to before a point and a revert over it → the point is not adopted", line: line(1, mark(1, Ready)), members: []Chain{two, returned},
			want: Start{Line: line(3, mark(1, Ready)).reverted(1, 3)},
		},
		{
			name: "restored to before two reverts, each member shows another one → the last one is adopted",
			line: line(1, mark(1, Ready)), members: []Chain{later, returned}, want: Start{Line: line(5, mark(1, Ready)).reverted(1, 5)},
		},
		{
			name: "the revert that is adopted gave up a base → the base goes", members: []Chain{returned, two},
			line: line(2, mark(1, Ready), mark(2, Ready)).base(1, "x").base(2, "y"),
			want: Start{Line: line(3, mark(1, Ready)).reverted(1, 3).base(1, "x"), Lost: []Point{pt(2)}},
		},
		{
			name: "restored to before a deletion that was merged → lost", line: line(2, mark(1, Ready), mark(2, Ready)), members: []Chain{two, one},
			want: Start{Line: line(2, mark(1, Ready)), Lost: []Point{pt(2)}},
		},
		{name: "one number with two nonces in object and member → refused", line: line(1, Mark{Point: Point{1, 7}, State: Ready}), members: []Chain{one}, err: ErrTwoNonces},
		{
			name: "one number with two nonces on two members → refused", line: Line{},
			members: []Chain{one, chain(3, Layer{Top: Border{Point{1, 7}, true}, Files: []File{1}}, head(1, 2))}, err: ErrTwoNonces,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := PlanStart(tc.line, tc.members, tc.groups)
			require.ErrorIs(t, err, tc.err)
			if tc.err != nil {
				return
			}
			assert.Equal(t, tc.want.Line.Counter, got.Line.Counter)
			assert.ElementsMatch(t, tc.want.Line.Points, got.Line.Points)
			assert.ElementsMatch(t, tc.want.Line.Reverted, got.Line.Reverted)
			assert.ElementsMatch(t, tc.want.Line.Bases, got.Line.Bases)
			assert.Equal(t, tc.want.Adopted, got.Adopted)
			assert.Equal(t, tc.want.Lost, got.Lost)
		})
	}
}
