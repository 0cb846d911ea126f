package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type state struct {
	desire  longhorn.DesireState
	current longhorn.InstanceState
	session string
	process string
	deleted bool
}

func engine(s state) *longhorn.Engine {
	e := &longhorn.Engine{}
	e.Name = "vol-e-0"
	e.Spec.NodeID = "n"
	e.Spec.DesireState = s.desire
	e.Status.CurrentState = s.current
	e.Status.Generation = 4
	e.Status.Session = s.session
	e.Status.UUID = s.process
	if s.session != "" && s.current != longhorn.InstanceStateStarting {
		e.Status.Endpoint = "/dev/longhorn/vol"
	}
	e.Status.Epoch = &longhorn.Epoch{Generation: 4, Counter: 1, Members: []string{"r"}}
	if s.deleted {
		e.DeletionTimestamp = &metav1.Time{Time: now}
	}
	return e
}

func TestPlan(t *testing.T) {
	run, stop := longhorn.DesireStateRunning, longhorn.DesireStateStopped
	proposed := &longhorn.Epoch{Generation: 4, Counter: 2, Members: []string{"r", "s"}}
	foreign := &longhorn.Epoch{Generation: 3, Counter: 9, Members: []string{"r"}}
	for _, tc := range []struct {
		name       string
		engine     *longhorn.Engine
		observed   Observed
		wantAction Action
		wantState  longhorn.InstanceState
		wantGen    int64
		wantSess   string
		wantEpoch  int64 // counter
	}{
		{
			name: "instance manager silent, running wanted → nothing is concluded", engine: engine(state{run, longhorn.InstanceStateRunning, "s", "p", false}),
			observed: Observed{Phase: types.PhaseUnknown}, wantState: longhorn.InstanceStateRunning, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "instance manager silent, deleted → the finalizer stays", engine: engine(state{stop, longhorn.InstanceStateRunning, "s", "p", true}),
			observed: Observed{Phase: types.PhaseUnknown}, wantState: longhorn.InstanceStateRunning, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "stopped, running wanted → generation raised, then started", engine: engine(state{run, longhorn.InstanceStateStopped, "", "", false}),
			observed: Observed{Phase: types.PhaseAbsent, Process: "p"}, wantAction: ActionStart, wantState: longhorn.InstanceStateStarting, wantGen: 5, wantSess: "new", wantEpoch: 1,
		},
		{
			name: "raised but not started before a crash → started under the same generation", engine: engine(state{run, longhorn.InstanceStateStarting, "s", "p", false}),
			observed: Observed{Phase: types.PhaseAbsent, Process: "p"}, wantAction: ActionStart, wantState: longhorn.InstanceStateStarting, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "raised for a process that is gone → raised again", engine: engine(state{run, longhorn.InstanceStateStarting, "s", "old", false}),
			observed: Observed{Phase: types.PhaseAbsent, Process: "p"}, wantAction: ActionStart, wantState: longhorn.InstanceStateStarting, wantGen: 5, wantSess: "new", wantEpoch: 1,
		},
		{
			name: "was running, the instance manager has none → an error, not a silent restart", engine: engine(state{run, longhorn.InstanceStateRunning, "s", "p", false}),
			observed: Observed{Phase: types.PhaseAbsent, Process: "p2"}, wantState: longhorn.InstanceStateError, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "proposes an epoch → recorded, then told", engine: engine(state{run, longhorn.InstanceStateStarting, "s", "p", false}),
			observed:   Observed{Phase: types.PhaseStarting, Generation: 4, Session: "s", Proposed: proposed},
			wantAction: ActionRecord, wantState: longhorn.InstanceStateStarting, wantGen: 4, wantSess: "s", wantEpoch: 2,
		},
		{
			name: "proposes an epoch of another generation → not recorded", engine: engine(state{run, longhorn.InstanceStateStarting, "s", "p", false}),
			observed:  Observed{Phase: types.PhaseStarting, Generation: 4, Session: "s", Proposed: foreign},
			wantState: longhorn.InstanceStateStarting, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "an engine of an earlier session → ended by force, its epoch not recorded", engine: engine(state{run, longhorn.InstanceStateStarting, "s", "p", false}),
			observed:   Observed{Phase: types.PhaseRunning, Generation: 3, Session: "old", Proposed: proposed},
			wantAction: ActionEvict, wantState: longhorn.InstanceStateStarting, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "an engine of another session and this generation → ended by force", engine: engine(state{run, longhorn.InstanceStateRunning, "s", "p", false}),
			observed:   Observed{Phase: types.PhaseRunning, Generation: 4, Session: "another"},
			wantAction: ActionEvict, wantState: longhorn.InstanceStateRunning, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "an engine of this session and an earlier generation → ended by force", engine: engine(state{run, longhorn.InstanceStateRunning, "s", "p", false}),
			observed:   Observed{Phase: types.PhaseRunning, Generation: 3, Session: "s"},
			wantAction: ActionEvict, wantState: longhorn.InstanceStateRunning, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "running → said so", engine: engine(state{run, longhorn.InstanceStateStarting, "s", "p", false}),
			observed:  Observed{Phase: types.PhaseRunning, Generation: 4, Session: "s", Endpoint: "/dev/longhorn/vol"},
			wantState: longhorn.InstanceStateRunning, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "failed → an error, and it is left there to be stopped", engine: engine(state{run, longhorn.InstanceStateRunning, "s", "p", false}),
			observed:  Observed{Phase: types.PhaseError, Generation: 4, Session: "s", Reason: "MemberFailed", Message: "m"},
			wantState: longhorn.InstanceStateError, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "stop wanted while it runs → stopped", engine: engine(state{stop, longhorn.InstanceStateRunning, "s", "p", false}),
			observed:   Observed{Phase: types.PhaseRunning, Generation: 4, Session: "s"},
			wantAction: ActionStop, wantState: longhorn.InstanceStateStopping, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "stop wanted, it has failed → ended by force, whoever uses its device", engine: engine(state{stop, longhorn.InstanceStateError, "s", "p", false}),
			observed:   Observed{Phase: types.PhaseError, Generation: 4, Session: "s", Reason: "MemberFailed", Message: "m"},
			wantAction: ActionAbort, wantState: longhorn.InstanceStateStopping, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "stop wanted, another session has failed → not this one's to abort", engine: engine(state{stop, longhorn.InstanceStateStopped, "", "", false}),
			observed:   Observed{Phase: types.PhaseError, Generation: 3, Session: "old"},
			wantAction: ActionEvict, wantState: longhorn.InstanceStateStopped, wantGen: 4, wantEpoch: 1,
		},
		{
			name: "stop wanted, an epoch is proposed → recorded first, for writes may wait for it", engine: engine(state{stop, longhorn.InstanceStateStopping, "s", "p", false}),
			observed:   Observed{Phase: types.PhaseStopping, Generation: 4, Session: "s", Proposed: proposed},
			wantAction: ActionRecord, wantState: longhorn.InstanceStateStopping, wantGen: 4, wantSess: "s", wantEpoch: 2,
		},
		{
			name: "stop was refused and is taken back → goes on, under its generation", engine: engine(state{run, longhorn.InstanceStateStopping, "s", "p", false}),
			observed:  Observed{Phase: types.PhaseRunning, Generation: 4, Session: "s", Endpoint: "/dev/longhorn/vol"},
			wantState: longhorn.InstanceStateRunning, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "stop is taken back too late → an error, for it is gone", engine: engine(state{run, longhorn.InstanceStateStopping, "s", "p", false}),
			observed: Observed{Phase: types.PhaseAbsent, Process: "p"}, wantState: longhorn.InstanceStateError, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "stop is under way → awaited", engine: engine(state{stop, longhorn.InstanceStateStopping, "s", "p", false}),
			observed:  Observed{Phase: types.PhaseStopping, Generation: 4, Session: "s"},
			wantState: longhorn.InstanceStateStopping, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "stop wanted, an engine of an earlier session runs → ended by force, the object stays stopped", engine: engine(state{stop, longhorn.InstanceStateStopped, "", "", false}),
			observed:   Observed{Phase: types.PhaseRunning, Generation: 3, Session: "old"},
			wantAction: ActionEvict, wantState: longhorn.InstanceStateStopped, wantGen: 4, wantEpoch: 1,
		},
		{
			name: "skips an epoch → not recorded", engine: engine(state{run, longhorn.InstanceStateRunning, "s", "p", false}),
			observed:  Observed{Phase: types.PhaseRunning, Generation: 4, Session: "s", Proposed: &longhorn.Epoch{Generation: 4, Counter: 3, Members: []string{"r"}}},
			wantState: longhorn.InstanceStateRunning, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "proposes none of those who hold the data → not recorded", engine: engine(state{run, longhorn.InstanceStateRunning, "s", "p", false}),
			observed:  Observed{Phase: types.PhaseRunning, Generation: 4, Session: "s", Proposed: &longhorn.Epoch{Generation: 4, Counter: 2, Members: []string{"x"}}},
			wantState: longhorn.InstanceStateRunning, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "stop wanted and it is gone → stopped; generation and epoch stay", engine: engine(state{stop, longhorn.InstanceStateStopping, "s", "p", false}),
			observed: Observed{Phase: types.PhaseAbsent}, wantState: longhorn.InstanceStateStopped, wantGen: 4, wantEpoch: 1,
		},
		{
			name: "deleted while it runs → stopped first, the finalizer stays", engine: engine(state{run, longhorn.InstanceStateRunning, "s", "p", true}),
			observed:   Observed{Phase: types.PhaseRunning, Generation: 4, Session: "s"},
			wantAction: ActionStop, wantState: longhorn.InstanceStateStopping, wantGen: 4, wantSess: "s", wantEpoch: 1,
		},
		{
			name: "deleted and gone → forgotten", engine: engine(state{stop, longhorn.InstanceStateStopped, "", "", true}),
			observed: Observed{Phase: types.PhaseAbsent}, wantAction: ActionDropFinalizer, wantState: longhorn.InstanceStateStopped, wantGen: 4, wantEpoch: 1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(Input{Engine: tc.engine, Observed: tc.observed, NewSession: "new", Owner: "n", Now: now})
			s := p.Status
			assert.Equal(t, tc.wantAction, p.Action, "action %q state %q generation %d session %q epoch %v", p.Action, s.CurrentState, s.Generation, s.Session, s.Epoch)
			assert.Equal(t, tc.wantState, s.CurrentState)
			assert.Equal(t, tc.wantGen, s.Generation)
			assert.Equal(t, tc.wantSess, s.Session)
			assert.Equal(t, tc.wantEpoch, s.Epoch.Counter)
			if s.CurrentState == longhorn.InstanceStateStopped || s.CurrentState == longhorn.InstanceStateError {
				assert.Empty(t, s.Endpoint, "an engine that is %s", s.CurrentState)
			}
		})
	}
}

// The reason of the failure stays after the instance manager has removed the engine.
func TestAFailureIsNotOverwrittenByItsAbsence(t *testing.T) {
	e := engine(state{longhorn.DesireStateRunning, longhorn.InstanceStateError, "s", "p", false})
	e.Status.Endpoint = ""
	e.Status.Conditions = []longhorn.Condition{{Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: "MemberFailed", Message: "m"}}
	p := plan(Input{Engine: e, Observed: Observed{Phase: types.PhaseAbsent, Process: "p2"}, Owner: "n", Now: now})
	c := types.FindCondition(p.Status.Conditions, types.ConditionInstanceCreation)
	assert.Empty(t, p.Action)
	assert.Equal(t, longhorn.InstanceStateError, p.Status.CurrentState)
	assert.Equal(t, "MemberFailed", c.Reason)
	assert.Equal(t, "m", c.Message)
}

func TestAnEpochThatWasNeverRefusedHasNoConditionOfThat(t *testing.T) {
	e := engine(state{longhorn.DesireStateRunning, longhorn.InstanceStateRunning, "s", "p", false})
	proposed := &longhorn.Epoch{Generation: 4, Counter: 2, Members: []string{"r"}}
	p := plan(Input{Engine: e, Observed: Observed{Phase: types.PhaseRunning, Generation: 4, Session: "s", Proposed: proposed}, Owner: "n", Now: now})
	c := types.FindCondition(p.Status.Conditions, types.ConditionEpochRefused)
	assert.Equal(t, ActionRecord, p.Action)
	assert.Equal(t, longhorn.ConditionUnknown, c.Status)
}

func TestFailureIsTimedOnce(t *testing.T) {
	e := engine(state{longhorn.DesireStateRunning, longhorn.InstanceStateRunning, "s", "p", false})
	in := Input{Engine: e, Observed: Observed{Phase: types.PhaseError, Generation: 4, Session: "s", Reason: "R", Message: "m"}, Now: now}
	e.Status = plan(in).Status
	in.Now = now.Add(time.Hour)
	c := types.FindCondition(plan(in).Status.Conditions, types.ConditionInstanceCreation)
	assert.Equal(t, "2026-01-02T03:04:05Z", c.LastTransitionTime)
}
