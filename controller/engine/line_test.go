package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/line"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func lineOf(states ...longhorn.PointState) *longhorn.Line {
	l := &longhorn.Line{Counter: int64(len(states))}
	for i, s := range states {
		l.Points = append(l.Points, longhorn.LinePoint{Number: int64(i + 1), Nonce: int64(10 * (i + 1)), State: s, Name: fmt.Sprintf("s%d", i+1)})
	}
	return l
}

const (
	intended = longhorn.PointStateIntended
	ready    = longhorn.PointStateReady
)

func rulesOf(states ...longhorn.PointState) *layers.Line {
	r := line.Rules(lineOf(states...))
	return &r
}

func TestPlanLine(t *testing.T) {
	epoch := longhorn.Epoch{Generation: 4, Counter: 1, Members: []string{"r"}}
	ended := func(change func(*Attempt)) Attempt {
		a := Attempt{State: AttemptEnded, Result: Snapshot{Epoch: epoch, Sealed: []string{"r"}, At: now}}
		if change != nil {
			change(&a)
		}
		return a
	}
	for _, c := range []struct {
		name     string
		object   *longhorn.Line
		engine   *layers.Line // in force
		attempt  Attempt
		unpassed bool
		change   func(*Input)
		action   Action
		states   []longhorn.PointState // of the points, after
		reason   string                // of the failure, after
	}{
		{name: "a volume without snapshots → nothing"},
		{name: "a volume without snapshots, a process without them → nothing", change: func(in *Input) { in.Observed.Snapshots = false }},
		{name: "the engine has the line → nothing", object: lineOf(ready), engine: rulesOf(ready), states: []longhorn.PointState{ready}},
		{
			name: "the engine has the line, which this process never passed → it passes it", object: lineOf(ready), engine: rulesOf(ready), unpassed: true,
			action: ActionSetLine, states: []longhorn.PointState{ready},
		},
		{name: "the engine has another line → it gets it", object: lineOf(ready), engine: rulesOf(intended), action: ActionSetLine, states: []longhorn.PointState{ready}},
		{
			name: "the engine has another line, its process cannot take snapshots → nothing", object: lineOf(ready),
			change: func(in *Input) { in.Observed.Snapshots = false }, states: []longhorn.PointState{ready},
		},
		{
			name: "the engine has another line, and a replica must be added → the replica first", object: lineOf(ready), engine: rulesOf(intended),
			change: addsReplica, action: ActionAdd, states: []longhorn.PointState{ready},
		},
		{name: "a new point → the call", object: lineOf(intended), attempt: Attempt{State: AttemptNew}, action: ActionSnapshot, states: []longhorn.PointState{intended}},
		{
			name: "a new point, and a replica must be added → the replica first", object: lineOf(intended), attempt: Attempt{State: AttemptNew},
			change: addsReplica, action: ActionAdd, states: []longhorn.PointState{intended},
		},
		{
			name: "a new point that the engine has already → given up", object: lineOf(intended), engine: rulesOf(intended), attempt: Attempt{State: AttemptNew},
			action: ActionSetLine, reason: types.ReasonSnapshotInterrupted,
		},
		{
			name: "the call is under way → nothing, although the engine's line differs", object: lineOf(ready, intended), engine: rulesOf(ready),
			attempt: Attempt{State: AttemptRunning}, states: []longhorn.PointState{ready, intended},
		},
		{
			name: "an earlier process may have made the call → given up", object: lineOf(ready, intended), attempt: Attempt{State: AttemptUnknown},
			action: ActionSetLine, states: []longhorn.PointState{ready}, reason: types.ReasonSnapshotInterrupted,
		},
		{name: "all members have sealed → ready", object: lineOf(intended), attempt: ended(nil), action: ActionSetLine, states: []longhorn.PointState{ready}},
		{
			name: "the engine refused → given up with its reason", object: lineOf(intended), action: ActionSetLine, reason: "NoRoom",
			attempt: ended(func(a *Attempt) { a.Err = fmt.Errorf("wrapped: %w", &types.Refusal{Reason: "NoRoom", Message: "full"}) }),
		},
		{
			name: "the call failed → given up", object: lineOf(intended), action: ActionSetLine, reason: types.ReasonSnapshotFailed,
			attempt: ended(func(a *Attempt) { a.Err = errors.New("the connection was reset") }),
		},
		{
			name: "a member has not sealed → given up", object: lineOf(intended), action: ActionSetLine, reason: types.ReasonSnapshotMembersChanged,
			attempt: ended(func(a *Attempt) { a.Result.Sealed = nil }),
		},
		{
			name: "the epoch has changed since the switch → given up", object: lineOf(intended), action: ActionSetLine, reason: types.ReasonSnapshotMembersChanged,
			attempt: ended(func(a *Attempt) { a.Result.Epoch.Counter = 0 }),
		},
		{
			name: "another generation → given up", object: lineOf(intended), action: ActionSetLine, reason: types.ReasonSnapshotMembersChanged,
			attempt: ended(func(a *Attempt) { a.Result.Epoch.Generation = 3 }),
		},
		{
			name: "the engine proposes an epoch → that first", object: lineOf(intended), attempt: ended(nil), action: ActionRecord, states: []longhorn.PointState{intended},
			change: func(in *Input) {
				in.Observed.Proposed = &longhorn.Epoch{Generation: 4, Counter: 2, Members: []string{"r", "s"}}
			},
		},
		{
			name: "the engine is being stopped → the next start gives the point up", object: lineOf(intended), attempt: ended(nil), action: ActionStop,
			change: func(in *Input) { in.Engine.Spec.DesireState = longhorn.DesireStateStopped }, states: []longhorn.PointState{intended},
		},
		{
			name: "the instance manager is silent → nothing", object: lineOf(intended), attempt: ended(nil), states: []longhorn.PointState{intended},
			change: func(in *Input) { in.Observed = Observed{Phase: types.PhaseUnknown} },
		},
		{
			name: "the engine is of another session → it is stopped", object: lineOf(intended), attempt: ended(nil), action: ActionEvict, states: []longhorn.PointState{intended},
			change: func(in *Input) { in.Observed.Session = "t" },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := engine(state{longhorn.DesireStateRunning, longhorn.InstanceStateRunning, "s", "p", false})
			e.Status.Line = c.object
			in := Input{
				Engine: e, Now: now, Attempt: c.attempt, LinePassed: !c.unpassed,
				Observed: Observed{Phase: types.PhaseRunning, Generation: 4, Session: "s", Process: "p", Snapshots: true, Line: c.engine, SizeBytes: 1 << 30},
			}
			if c.change != nil {
				c.change(&in)
			}
			before := c.object.DeepCopy()
			p := plan(in)
			assert.Equal(t, before, c.object, "a plan modifies nothing")
			assert.Equal(t, c.action, p.Action)
			var states []longhorn.PointState
			if p.Status.Line != nil {
				for _, point := range p.Status.Line.Points {
					states = append(states, point.State)
				}
			}
			assert.Equal(t, c.states, states)
			if c.reason == "" {
				assert.Nil(t, p.Status.SnapshotFailure)
				return
			}
			require.NotNil(t, p.Status.SnapshotFailure)
			assert.Equal(t, c.reason, p.Status.SnapshotFailure.Reason)
			assert.Equal(t, c.object.Counter, p.Status.SnapshotFailure.Number)
			assert.NotEmpty(t, p.Status.SnapshotFailure.Message)
		})
	}
}

func addsReplica(in *Input) {
	in.Engine.Spec.ReplicaAddressMap = map[string]string{"new": "10.0.0.9:8500"}
}

func TestAReadyPointHasItsTimeAndSize(t *testing.T) {
	e := engine(state{longhorn.DesireStateRunning, longhorn.InstanceStateRunning, "s", "p", false})
	e.Status.Line, e.Status.SnapshotFailure = lineOf(ready, intended), &longhorn.SnapshotFailure{Number: 1}
	p := plan(Input{
		Engine: e, Now: now, Observed: Observed{Phase: types.PhaseRunning, Generation: 4, Session: "s", Snapshots: true, SizeBytes: 1 << 30},
		Attempt: Attempt{State: AttemptEnded, Result: Snapshot{Epoch: *e.Status.Epoch, Sealed: e.Status.Epoch.Members, At: now}},
	})
	want := longhorn.LinePoint{Number: 2, Nonce: 20, State: ready, Name: "s2", CreatedAt: "2026-01-02T03:04:05Z", SizeBytes: 1 << 30}
	assert.Equal(t, want, p.Status.Line.Points[1])
	assert.Nil(t, p.Status.SnapshotFailure, "it is about an earlier attempt")
}

// TestAStartRecordsItsLineWithItsEpoch: a line without its epoch, or the reverse, would be a state that no start made.
func TestAStartRecordsItsLineWithItsEpoch(t *testing.T) {
	e := engine(state{longhorn.DesireStateRunning, longhorn.InstanceStateStarting, "s", "p", false})
	e.Spec.VolumeName, e.Status.Line = "vol", lineOf(ready, intended)
	proposed := rulesOf(ready)
	proposed.Counter = 3
	proposed.Points = append(proposed.Points, layers.Mark{Point: layers.Point{Number: 3, Nonce: 35}, State: layers.Ready})
	in := Input{Engine: e, Now: now, Observed: Observed{
		Phase: types.PhaseStarting, Generation: 4, Session: "s", ProposedLine: proposed,
		Proposed: &longhorn.Epoch{Generation: 4, Counter: 2, Members: []string{"r"}},
	}}
	p := plan(in)
	assert.Equal(t, ActionRecord, p.Action)
	assert.Equal(t, int64(2), p.Status.Epoch.Counter)
	assert.Equal(t, []string{"s1", "vol-3-z"}, []string{p.Status.Line.Points[0].Name, p.Status.Line.Points[1].Name})

	in.Observed.Proposed = &longhorn.Epoch{Generation: 3, Counter: 9, Members: []string{"r"}}
	p = plan(in)
	require.Error(t, p.Refused)
	assert.Equal(t, lineOf(ready, intended), p.Status.Line, "the epoch is refused, so the line is, too")

	in.Observed.Proposed, in.Observed.ProposedLine = &longhorn.Epoch{Generation: 4, Counter: 2, Members: []string{"r"}}, nil
	assert.Equal(t, lineOf(ready, intended), plan(in).Status.Line, "the start changed nothing")
}

// serving returns an engine that runs in the data plane of begin.
func serving(change func(*longhorn.Engine)) *longhorn.Engine {
	return wantedEngine(func(e *longhorn.Engine) {
		e.Status.Generation, e.Status.Session, e.Status.CurrentState, e.Status.UUID = 1, "s", longhorn.InstanceStateRunning, "p"
		e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"vol-r-1"}}
		e.Status.CurrentReplicaAddressMap = e.Spec.ReplicaAddressMap
		change(e)
	})
}

func snapshotPlane() *fakePlane {
	return &fakePlane{
		observed: Observed{
			Phase: types.PhaseRunning, Generation: 1, Session: "s", Process: "p", Snapshots: true, Endpoint: "/dev/longhorn/vol",
			Modes: map[string]longhorn.ReplicaMode{"vol-r-1": longhorn.ReplicaModeRW},
		},
		snapshot: Snapshot{Epoch: longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"vol-r-1"}}, Sealed: []string{"vol-r-1"}},
	}
}

// intend adds an intended point to the engine's object, as the snapshot controller does.
func intend(t *testing.T, h *testutil.Harness, c *Controller) {
	t.Helper()
	e, err := c.Engines.Live(t.Context(), "vol-e-0")
	require.NoError(t, err)
	e.Status.Line, err = line.Intend(e.Status.Line, "snap", 7)
	require.NoError(t, err)
	h.Overwrite(e)
	h.CatchUp()
}

func lineNow(t *testing.T, c *Controller) *longhorn.Line {
	t.Helper()
	e, err := c.Engines.Live(t.Context(), "vol-e-0")
	require.NoError(t, err)
	return e.Status.Line
}

func TestASnapshotIsTakenOnceAndRecorded(t *testing.T) {
	plane := snapshotPlane()
	h, c := begin(t, plane, serving(func(*longhorn.Engine) {}))
	syncOf(t, c, nil)
	plane.expect(t)
	h.CatchUp()
	intend(t, h, c)

	plane.mu.Lock() // the call is under way
	syncOf(t, c, nil)
	syncOf(t, c, nil)
	plane.mu.Unlock()
	c.attempts.calls.Wait()
	plane.expect(t, "snapshot s 1 in 1")
	assert.Equal(t, intended, lineNow(t, c).Points[0].State)

	conflict := apierrors.NewConflict(longhorn.Resource("engines"), "vol-e-0", errors.New("changed"))
	h.Fail("update", "engines", conflict)
	_, err := c.sync(t.Context(), "vol-e-0")
	require.True(t, apierrors.IsConflict(err))
	plane.expect(t) // the engine hears of nothing that is not recorded
	h.CatchUp()
	syncOf(t, c, nil)
	plane.expect(t, "line s 1")
	assert.Equal(t, ready, lineNow(t, c).Points[0].State)

	h.CatchUp()
	l := line.Rules(lineNow(t, c))
	plane.observed.Line = &l
	h.Writes()
	syncOf(t, c, nil)
	h.ExpectWrites() // at rest
	plane.expect(t)
}

func TestAFailedSnapshotIsGivenUpFirst(t *testing.T) {
	plane := snapshotPlane()
	h, c := begin(t, plane, serving(func(*longhorn.Engine) {}))
	syncOf(t, c, nil)
	h.CatchUp()
	intend(t, h, c)
	plane.err = &types.Refusal{Reason: "Uneven", Message: "a region differs"}
	syncOf(t, c, nil)
	c.attempts.calls.Wait()
	plane.expect(t, "snapshot s 1 in 1")

	_, err := c.sync(t.Context(), "vol-e-0")
	require.Error(t, err, "the line was not passed")
	plane.expect(t, "line s 0")
	e, err := c.Engines.Live(t.Context(), "vol-e-0")
	require.NoError(t, err)
	assert.Empty(t, e.Status.Line.Points)
	assert.Equal(t, &longhorn.SnapshotFailure{Number: 1, Reason: "Uneven", Message: "a region differs"}, e.Status.SnapshotFailure)

	h.CatchUp()
	plane.err = nil
	l := line.Rules(e.Status.Line)
	plane.observed.Line = &l // the engine never had the point, so its line does not differ
	syncOf(t, c, nil)
	plane.expect(t, "line s 0")
}

// TestAnotherProcessGivesUp: the call may have been made by a process that has exited since.
func TestAnotherProcessGivesUp(t *testing.T) {
	plane := snapshotPlane()
	_, c := begin(t, plane, serving(func(e *longhorn.Engine) { e.Status.Line = lineOf(ready, intended) }))
	syncOf(t, c, nil)
	plane.expect(t, "line s 1")
	assert.Len(t, lineNow(t, c).Points, 1)
}

// TestAnotherSessionIsNotMeant: the result of a call for an earlier session decides nothing.
func TestAnotherSessionIsNotMeant(t *testing.T) {
	var a attempts
	e := serving(func(e *longhorn.Engine) {})
	a.look(e, Observed{Session: "s"})
	e.Status.Line = lineOf(intended)
	p := line.Point(e.Status.Line.Points[0])
	state := func() AttemptState {
		attempt, _ := a.look(e, Observed{Session: e.Status.Session})
		return attempt.State
	}
	assert.Equal(t, AttemptNew, state())
	assert.True(t, a.begin(e.Name, "s", p))
	assert.False(t, a.begin(e.Name, "s", p), "once")
	assert.Equal(t, AttemptRunning, state())
	attempt, _ := a.look(e, Observed{Session: "another"})
	assert.Empty(t, attempt.State)

	e.Status.Session = "t"
	assert.Equal(t, AttemptUnknown, state())
	a.end(e.Name, "s", p, Snapshot{}, nil)
	assert.Equal(t, AttemptUnknown, state())
	assert.False(t, a.begin(e.Name, "s", p), "its session is over")
	a.forget(e.Name)
	assert.Empty(t, a.sessions)
}
