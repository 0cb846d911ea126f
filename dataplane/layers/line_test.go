package layers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pt is a point whose nonce follows from its number, so that tables stay short.
func pt(n Number) Point { return Point{Number: n, Nonce: uint64(100 + n)} }

func mark(n Number, s State) Mark { return Mark{Point: pt(n), State: s} }

func line(counter Number, marks ...Mark) Line { return Line{Counter: counter, Points: marks} }

func (l Line) reverted(to, by Number) Line {
	l.Reverted = append(l.Reverted, Interval{To: to, By: by})
	return l
}

func (l Line) base(n Number, by string) Line {
	l.Bases = append(l.Bases, Base{pt(n), by})
	return l
}

func TestLine(t *testing.T) {
	held := mark(2, Deleted)
	held.Holds = []string{"backup-1"}
	for _, tc := range []struct {
		name string
		do   func() (Line, error)
		want Line
		err  error
	}{
		{"an empty line intends point 1", func() (Line, error) {
			l, p, err := Line{}.Intend(101, "")
			assert.Equal(t, pt(1), p)
			return l, err
		}, line(1, mark(1, Intended)), nil},
		{"a number that was given up is not used again", func() (Line, error) {
			l, _, err := line(7, mark(3, Ready)).Intend(108, "")
			return l, err
		}, line(8, mark(3, Ready), mark(8, Intended)), nil},
		{"an intended point → busy", func() (Line, error) {
			l, _, err := line(1, mark(1, Intended)).Intend(102, "")
			return l, err
		}, line(1, mark(1, Intended)), ErrBusy},
		{"intended → ready", func() (Line, error) { return line(1, mark(1, Intended)).Ready(pt(1)) }, line(1, mark(1, Ready)), nil},
		{"an attempt whose start gave it up → not ready", func() (Line, error) { return line(1).Ready(pt(1)) }, line(1), ErrNoPoint},
		{"the same number with another nonce → not ready", func() (Line, error) {
			return line(1, mark(1, Intended)).Ready(Point{Number: 1, Nonce: 7})
		}, line(1, mark(1, Intended)), ErrNoPoint},
		{"given up → the counter stays", func() (Line, error) { return line(1, mark(1, Intended)).GiveUp(pt(1)) }, Line{Counter: 1, Points: []Mark{}}, nil},
		{"a ready point is not given up", func() (Line, error) { return line(1, mark(1, Ready)).GiveUp(pt(1)) }, line(1, mark(1, Ready)), ErrNoPoint},
		{"ready → deleted", func() (Line, error) { return line(1, mark(1, Ready)).Delete(pt(1)) }, line(1, mark(1, Deleted)), nil},
		{"deleted and shown by no member → forgotten", func() (Line, error) { return line(1, mark(1, Deleted)).Forget(pt(1)) }, Line{Counter: 1, Points: []Mark{}}, nil},
		{"held → not forgotten", func() (Line, error) { return line(2, held).Forget(pt(2)) }, line(2, held), ErrHeld},
		{"a deleted point is not held again", func() (Line, error) { return line(2, held).Hold(pt(2), "clone-1") }, line(2, held), ErrNoPoint},
		{"a hold ends", func() (Line, error) { return line(2, held).Release(pt(2), "backup-1"), nil }, line(2, Mark{Point: pt(2), State: Deleted, Holds: []string{}}), nil},
		{
			"revert to the newest point", func() (Line, error) { return line(2, mark(1, Ready), mark(2, Ready)).Revert(pt(2)) },
			line(3, mark(1, Ready), mark(2, Ready)).reverted(2, 3), nil,
		},
		{
			"revert over a later snapshot → refused", func() (Line, error) { return line(2, mark(1, Ready), mark(2, Ready)).Revert(pt(1)) },
			line(2, mark(1, Ready), mark(2, Ready)), ErrLaterSnapshots,
		},
		{
			"revert over a later snapshot that the caller lets go", func() (Line, error) { return line(2, mark(1, Ready), mark(2, Ready)).Revert(pt(1), 2) },
			line(3, mark(1, Ready)).reverted(1, 3), nil,
		},
		{
			"revert over a deleted point", func() (Line, error) { return line(2, mark(1, Ready), mark(2, Deleted)).Revert(pt(1)) },
			line(3, mark(1, Ready)).reverted(1, 3), nil,
		},
		{
			"revert over a deleted point that a job reads → refused", func() (Line, error) { return line(2, mark(1, Ready), held).Revert(pt(1)) },
			line(2, mark(1, Ready), held), ErrHeld,
		},
		{
			"revert to an earlier point than the last revert → contains it", func() (Line, error) {
				return line(5, mark(1, Ready), mark(3, Ready)).reverted(3, 5).Revert(pt(1), 3)
			}, line(6, mark(1, Ready)).reverted(1, 6), nil,
		},
		{
			"revert to a later point than the last revert → all members have followed that one", func() (Line, error) {
				return line(5, mark(1, Ready), mark(5, Ready)).reverted(1, 3).Revert(pt(5))
			}, line(6, mark(1, Ready), mark(5, Ready)).reverted(5, 6), nil,
		},
		{
			"revert → the bases that it gives up go", func() (Line, error) {
				return line(4, mark(2, Ready)).base(1, "x").base(2, "y").base(4, "z").Revert(pt(2))
			}, line(5, mark(2, Ready)).base(1, "x").base(2, "y").reverted(2, 5), nil,
		},
		{"revert to a deleted point → refused", func() (Line, error) { return line(1, mark(1, Deleted)).Revert(pt(1)) }, line(1, mark(1, Deleted)), ErrNoPoint},
		{
			"revert during an attempt → busy", func() (Line, error) { return line(2, mark(1, Ready), mark(2, Intended)).Revert(pt(1)) },
			line(2, mark(1, Ready), mark(2, Intended)), ErrBusy,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := tc.do()
			assert.ErrorIs(t, err, tc.err)
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestReadyAllowed(t *testing.T) {
	abc, ab := []string{"a", "b", "c"}, []string{"a", "b"}
	assert.True(t, ReadyAllowed(abc, []string{"c", "b", "a"}, abc), "all have sealed")
	assert.False(t, ReadyAllowed(abc, abc, ab), "a member has not sealed")
	assert.False(t, ReadyAllowed(abc, ab, ab), "a member was expelled since the switch")
	assert.False(t, ReadyAllowed(ab, abc, abc), "a member joined since the switch")
	assert.False(t, ReadyAllowed(nil, nil, nil), "no member")
}

func TestStand(t *testing.T) {
	l := line(9).reverted(6, 8)
	for _, tc := range []struct{ below, to, want Number }{
		{0, 1, 0},
		{1, 2, 1},
		{1, 4, 3}, // newer than a revert with number 3, which the object has forgotten
		{6, 7, 6},
		{6, 0, 9},
		{9, 0, 9},
		{10, 0, 10}, // the object is older than the data
	} {
		assert.Equal(t, tc.want, l.Stand(tc.below, tc.to), "above border %d and below %d", tc.below, tc.to)
	}
}

func TestALineDoesNotShareMemoryWithItsSuccessor(t *testing.T) {
	l := line(1, mark(1, Ready))
	next, err := l.Delete(pt(1))
	require.NoError(t, err)
	held, err := l.Hold(pt(1), "export-1")
	require.NoError(t, err)
	assert.Equal(t, Deleted, next.State(pt(1)))
	assert.Equal(t, []string{"export-1"}, held.Points[0].Holds)
	assert.Equal(t, line(1, mark(1, Ready)), l)
}
