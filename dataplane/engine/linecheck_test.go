package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

func TestALineReplacesAnotherOnlyIfItIsLater(t *testing.T) {
	mark := func(n layers.Number, nonce uint64, s layers.State) layers.Mark {
		return layers.Mark{Point: layers.Point{Number: n, Nonce: nonce}, State: s}
	}
	line := func(counter layers.Number, reverted []layers.Interval, marks ...layers.Mark) layers.Line {
		return layers.Line{Counter: counter, Points: marks, Reverted: reverted}
	}
	reverted := []layers.Interval{{To: 1, By: 3}}
	ready, deleted, intended := mark(4, 40, layers.Ready), mark(5, 50, layers.Deleted), mark(8, 80, layers.Intended)
	now := line(8, reverted, ready, deleted, intended)
	for _, tc := range []struct {
		name string
		next layers.Line
		want error
	}{
		{"the same", now, nil},
		{"the attempt is ready", line(8, reverted, ready, deleted, mark(8, 80, layers.Ready)), nil},
		{"the attempt was given up", line(8, reverted, ready, deleted), nil},
		{"a deleted point is forgotten", line(8, reverted, ready, intended), nil},
		{"a point is deleted", line(8, reverted, mark(4, 40, layers.Deleted), deleted, intended), nil},
		{"a new point", line(9, reverted, ready, mark(9, 90, layers.Intended)), nil},
		{"a lower counter", line(7, reverted, ready, deleted), ErrOldLine},
		{"a deleted point is ready again", line(8, reverted, ready, mark(5, 50, layers.Ready)), ErrOldLine},
		{"a ready point is forgotten", line(9, reverted, deleted, intended), ErrOldLine},
		{"a ready point has another nonce", line(9, reverted, mark(4, 41, layers.Ready)), ErrOldLine},
		{"a ready point is intended", line(9, reverted, mark(4, 40, layers.Intended)), ErrOldLine},
		{"a number is used again", line(9, reverted, ready, mark(7, 71, layers.Ready)), ErrOldLine},
		{"the number of the attempt is used again", line(9, reverted, ready, mark(8, 81, layers.Ready)), ErrOldLine},
		{"a revert", line(9, []layers.Interval{{To: 4, By: 9}}, ready), ErrReverted},
		{"the revert is forgotten", line(9, nil, ready), ErrReverted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.ErrorIs(t, mayReplace(now, tc.next), tc.want)
		})
	}
}

// A revert in the object does not reach a running engine: its members would make changes that the next start drops.
func TestARunningEngineRefusesARevert(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	require.NoError(t, writeOnes(e.Backend()))
	p, _ := r.snapshot(e)
	before := r.api.recordedLine()
	reverted, err := before.Revert(p)
	require.NoError(t, err)
	sent := r.disk("a").count(points.OpLine)
	require.ErrorIs(t, e.SetLine(t.Context(), e.cfg.Session, reverted), ErrReverted)
	next, q, err := reverted.Intend(5, "")
	require.NoError(t, err)
	_, err = e.Snapshot(t.Context(), e.cfg.Session, next, q)
	require.ErrorIs(t, err, ErrReverted)
	assert.Equal(t, before, e.State().Line)
	assert.Equal(t, sent, r.disk("a").count(points.OpLine), "members learned of the revert")
	assert.Zero(t, r.disk("a").data.shown().Reverted)
}

// The API object was restored from a backup after the engine had started. It gives numbers out that the engine knows.
func TestASnapshotNeedsANewNumber(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	first, _ := r.snapshot(e)
	known, q := r.intend()
	require.NoError(t, e.SetLine(t.Context(), e.cfg.Session, known))
	asked := r.disk("a").count(points.OpState)
	refused := func(line layers.Line, p layers.Point) {
		t.Helper()
		_, err := e.Snapshot(t.Context(), e.cfg.Session, line, p)
		require.ErrorIs(t, err, ErrOldLine)
		assert.Equal(t, asked, r.disk("a").count(points.OpState), "the attempt started")
		assert.Nil(t, e.lastSnapshot.err, "the last attempt")
	}
	other := layers.Point{Number: q.Number, Nonce: q.Nonce + 1}
	refused(layers.Line{
		Counter: q.Number, Points: []layers.Mark{known.Points[0], {Point: other, State: layers.Intended}},
	}, other)
	refused(layers.Line{Counter: q.Number, Points: []layers.Mark{{Point: q, State: layers.Intended}}}, q)
	_, err := e.Snapshot(t.Context(), e.cfg.Session, known, q)
	require.NoError(t, err, "the engine knows the point")
	require.NoError(t, r.conclude(e, q, nil))
	r.sameView(first, nil, "a", "b")
	r.sameView(q, nil, "a", "b")
}
