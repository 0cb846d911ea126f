package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

// crash ends an engine without a last flush. The next opening of each replica has no memory of the attempt.
func (r *rig) crash(e *Engine) {
	r.t.Helper()
	require.NoError(r.t, e.StopForce(r.t.Context()))
	for _, d := range r.disks {
		d.data.reopen()
	}
}

// do carries out an operation on a disk, as an engine that is stopped afterwards would.
func (d *disk) do(t *testing.T, op uint16, message any) {
	t.Helper()
	_, err := d.data.control(op, encoded(message))
	require.NoError(t, err)
}

// The engine dies after each step of an attempt. Changes of the users come after the gate has opened.
func TestAStartAfterEachStepOfAnAttempt(t *testing.T) {
	prepare := func(t *testing.T, d *disk, p layers.Point) {
		d.do(t, points.OpPrepare, points.Prepare{Point: p, Limit: layers.MostFiles})
	}
	for _, tc := range []struct {
		name     string
		steps    func(t *testing.T, r *rig, p layers.Point)
		isReady  bool
		wantKept bool
	}{
		{"only the object has the point", func(*testing.T, *rig, layers.Point) {}, false, false},
		{"one member has prepared", func(t *testing.T, r *rig, p layers.Point) { prepare(t, r.disk("b"), p) }, false, false},
		{"one member has switched, and changes follow", func(t *testing.T, r *rig, p layers.Point) {
			for _, d := range r.disks {
				prepare(t, d, p)
			}
			r.disk("b").do(t, points.OpSwitch, p)
			for _, d := range r.disks {
				d.fill(t, 7, 0, 8192)
			}
		}, false, false},
		{"one member has sealed", func(t *testing.T, r *rig, p layers.Point) {
			for _, d := range r.disks {
				prepare(t, d, p)
				d.do(t, points.OpSwitch, p)
				d.fill(t, 7, 512, 512)
			}
			r.disk("a").do(t, points.OpSeal, p)
		}, false, false},
		{"all members have sealed", func(t *testing.T, r *rig, p layers.Point) {
			for _, d := range r.disks {
				prepare(t, d, p)
				d.do(t, points.OpSwitch, p)
				d.do(t, points.OpSeal, p)
			}
		}, false, false},
		{"the object says ready", func(t *testing.T, r *rig, p layers.Point) {
			for _, d := range r.disks {
				prepare(t, d, p)
				d.do(t, points.OpSwitch, p)
				d.do(t, points.OpSeal, p)
				d.fill(t, 7, 512, 512)
			}
		}, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, "a", "b")
			e, _ := r.run(1)
			require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(1, 3*testRegion), 0, false))
			kept, _ := r.snapshot(e)
			require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(2, testRegion), 0, false))
			before := r.disk("a").bytes(t, 0, testSize)
			line, p := r.intend()
			tc.steps(t, r, p)
			want := r.disk("a").bytes(t, 0, testSize)
			if tc.isReady {
				ready, err := line.Ready(p)
				require.NoError(t, err)
				r.api.line = ready
			}
			r.crash(e)
			next, _ := r.run(2)
			r.sameBytes()
			assert.Equal(t, want, r.disk("a").bytes(t, 0, testSize))
			got := r.api.recordedLine()
			numbers := []layers.Number{kept.Number}
			if tc.wantKept {
				numbers = append(numbers, p.Number)
				r.sameView(p, before, "a", "b")
			}
			assert.Equal(t, layers.Ready, got.State(kept))
			assert.Equal(t, tc.wantKept, got.State(p) == layers.Ready)
			assert.NotEqual(t, layers.Intended, got.State(p))
			assert.Equal(t, p.Number, got.Counter)
			assert.True(t, equalLines(got, next.State().Line), "the engine has %+v", next.State().Line)
			for _, d := range r.disks {
				flushed, other := d.data.borders()
				assert.Equal(t, numbers, flushed, d.name)
				assert.Empty(t, other, d.name)
			}
			last, _ := r.snapshot(next)
			r.sameView(last, want, "a", "b")
			require.NoError(t, next.Stop(t.Context()))
		})
	}
}

func TestTheLineAtAStart(t *testing.T) {
	point := func(n layers.Number) layers.Point { return layers.Point{Number: n, Nonce: uint64(n)} }
	ready := func(numbers ...layers.Number) (l layers.Line) {
		for _, n := range numbers {
			l.Counter = n
			l.Points = append(l.Points, layers.Mark{Point: point(n), State: layers.Ready})
		}
		return l
	}
	seal := func(t *testing.T, d *disk, n layers.Number) {
		d.do(t, points.OpPrepare, points.Prepare{Point: point(n), Limit: layers.MostFiles})
		d.do(t, points.OpSwitch, point(n))
		d.do(t, points.OpSeal, point(n))
	}
	for _, tc := range []struct {
		name          string
		line          layers.Line
		make          func(t *testing.T, r *rig)
		reason        string // of a refusal
		text          string // of a member that is left out
		members       []string
		want          layers.Line
		adopted, lost []layers.Point
	}{
		{
			name: "all members show the points → nothing is proposed", line: ready(1, 2), want: ready(1, 2), members: []string{"a", "b"},
			make: func(t *testing.T, r *rig) { r.all(func(d *disk) { seal(t, d, 1); seal(t, d, 2) }) },
		},
		{
			name: "the object was restored → a point of all members is adopted", line: ready(1), want: ready(1, 2), members: []string{"a", "b"},
			adopted: []layers.Point{point(2)},
			make:    func(t *testing.T, r *rig) { r.all(func(d *disk) { seal(t, d, 1); seal(t, d, 2) }) },
		},
		{
			name: "a member does not show a point → it is lost", line: ready(1, 2), members: []string{"a", "b"}, lost: []layers.Point{point(2)},
			want: layers.Line{Counter: 2, Points: ready(1).Points},
			make: func(t *testing.T, r *rig) { r.all(func(d *disk) { seal(t, d, 1) }); seal(t, r.disk("b"), 2) },
		},
		{
			name: "one number has two nonces → refused", line: layers.Line{Counter: 1, Points: []layers.Mark{{Point: layers.Point{Number: 1, Nonce: 9}, State: layers.Ready}}},
			reason: ReasonSnapshotMismatch, make: func(t *testing.T, r *rig) { r.all(func(d *disk) { seal(t, d, 1) }) },
		},
		{
			name: "a member has an older release → it is left out", line: ready(1), want: ready(1), members: []string{"a"}, text: "release without snapshots",
			make: func(t *testing.T, r *rig) { seal(t, r.disk("a"), 1); r.disk("b").old = true },
		},
		{
			name: "the object forgot the points, and a member has an older release → it is left out", want: ready(1), members: []string{"a"},
			text: "release without snapshots", adopted: []layers.Point{point(1)},
			make: func(t *testing.T, r *rig) { seal(t, r.disk("a"), 1); r.disk("b").old = true },
		},
		{
			name: "all members have an older release → refused", line: ready(1), reason: ReasonMemberMissing,
			make: func(_ *testing.T, r *rig) { r.all(func(d *disk) { d.old = true }) },
		},
		{
			name: "all members have an older release, the volume has no points → it starts", line: layers.Line{Counter: 3}, want: layers.Line{Counter: 3},
			members: []string{"a", "b"}, make: func(_ *testing.T, r *rig) { r.all(func(d *disk) { d.old = true }) },
		},
		{
			name: "a member lacks the point of a revert → it is left out", members: []string{"a"}, text: "must be rebuilt",
			line: layers.Line{Counter: 3, Points: ready(1).Points, Reverted: []layers.Interval{{To: 1, By: 3}}},
			want: layers.Line{Counter: 3, Points: ready(1).Points, Reverted: []layers.Interval{{To: 1, By: 3}}},
			make: func(t *testing.T, r *rig) { seal(t, r.disk("a"), 1); seal(t, r.disk("a"), 2); seal(t, r.disk("b"), 2) },
		},
		{
			name: "a member cannot follow → it is expelled", line: layers.Line{Counter: 2, Points: ready(1).Points}, members: []string{"b"},
			want: layers.Line{Counter: 2, Points: ready(1).Points}, text: "follow the line",
			make: func(t *testing.T, r *rig) {
				r.all(func(d *disk) { seal(t, d, 1); seal(t, d, 2) })
				r.disk("a").setControlErr(points.OpFollow, nbd.EIO)
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, "a", "b")
			r.api.line = tc.line
			tc.make(t, r)
			e, changed := r.start(1)
			r.serve(e)
			s := r.await(e, changed, "end of the start", settled)
			require.Equal(t, tc.reason, s.Reason, s.Message)
			if tc.reason != "" {
				assert.True(t, s.ProposedEpoch.IsZero())
				return
			}
			assert.Equal(t, tc.members, s.Epoch.Members)
			assert.True(t, equalLines(tc.want, r.api.recordedLine()), "recorded %+v", r.api.recordedLine())
			assert.True(t, equalLines(tc.want, s.Line), "in force %+v", s.Line)
			assert.Equal(t, tc.adopted, s.Adopted)
			assert.Equal(t, tc.lost, s.Lost)
			for _, m := range s.Members {
				if m.Mode == ModeERR {
					assert.Contains(t, m.Error, tc.text)
				}
			}
			for _, name := range tc.members {
				if d := r.disk(name); !d.old {
					assert.NoError(t, shows(s.Line, d.data.shown()), name)
				}
			}
			require.NoError(t, e.Stop(t.Context()))
		})
	}
}

// all does something with each disk.
func (r *rig) all(do func(*disk)) {
	for _, d := range r.disks {
		do(d)
	}
}

// The object takes a revert after the engine has read it, and before it records the first epoch.
func TestARevertDuringTheStartEndsTheStart(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	p, _ := r.snapshot(e)
	require.NoError(t, writeOnes(e.Backend()))
	require.NoError(t, e.Stop(t.Context()))
	r.recorded = r.api.epoch()
	next, changed := r.start(2)
	s := r.await(next, changed, "proposal", proposed)
	reverted, err := r.api.recordedLine().Revert(p)
	require.NoError(t, err)
	require.ErrorIs(t, next.RecordEpoch("s2", membership.Epoch{}, &reverted), ErrNotProposed)
	require.ErrorIs(t, next.RecordEpoch("s2", s.ProposedEpoch, &reverted), ErrReverted)
	s = r.await(next, changed, "failure", settled)
	assert.Equal(t, ReasonLineFailed, s.Reason)
	require.NoError(t, next.Stop(t.Context()))

	r.api.mu.Lock()
	r.api.line = reverted
	r.api.mu.Unlock()
	last, _ := r.run(3)
	view, err := r.disk("a").data.view(p)
	require.NoError(t, err)
	r.sameContent(view, r.disk("a").bytes(t, 0, testSize), "after the revert")
	r.sameBytes()
	assert.Equal(t, reverted.Reverted, last.State().Line.Reverted)
}
