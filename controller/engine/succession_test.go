package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const device = "/dev/longhorn/vol"

// kept is the state in the data plane of a device after its process has exited.
func kept(session, process string) Observed {
	return Observed{Phase: types.PhaseKept, Generation: 4, Session: session, Endpoint: device, Process: process}
}

func TestPlanOfAKeptDevice(t *testing.T) {
	run, stop := longhorn.DesireStateRunning, longhorn.DesireStateStopped
	since := func(ago time.Duration) func(*longhorn.Engine) {
		return func(e *longhorn.Engine) {
			e.Status.Conditions = []longhorn.Condition{{
				Type: types.ConditionInstanceCreation, Status: longhorn.ConditionUnknown,
				Reason: types.ReasonEngineSucceeds, LastTransitionTime: types.Timestamp(now.Add(-ago)),
			}}
		}
	}
	untold := func(e *longhorn.Engine) { e.Status.Endpoint = "" }
	for _, tc := range []struct {
		name         string
		engine       *longhorn.Engine
		change       func(*longhorn.Engine)
		observed     Observed
		awaited      []string
		wantAction   Action
		wantState    longhorn.InstanceState
		wantGen      int64
		wantSession  string
		wantEndpoint string
		wantAfter    time.Duration
	}{
		{
			name: "it ran, all replicas here serve → the next generation takes the device over", engine: engine(state{run, longhorn.InstanceStateRunning, "s", "p", false}),
			observed: kept("s", "p2"), wantAction: ActionStart, wantState: longhorn.InstanceStateStarting, wantGen: 5, wantSession: "new", wantEndpoint: device,
		},
		{
			name: "it ran, a replica here does not serve yet → waits", engine: engine(state{run, longhorn.InstanceStateRunning, "s", "p", false}),
			observed: kept("s", "p2"), awaited: []string{"replica r"}, wantState: longhorn.InstanceStateStarting, wantGen: 4, wantSession: "s", wantEndpoint: device, wantAfter: succeedWithout,
		},
		{
			name: "it waited for long → starts without the replica", engine: engine(state{run, longhorn.InstanceStateStarting, "s", "p", false}), change: since(succeedWithout),
			observed: kept("s", "p2"), awaited: []string{"replica r"}, wantAction: ActionStart, wantState: longhorn.InstanceStateStarting, wantGen: 5, wantSession: "new", wantEndpoint: device,
		},
		{
			name: "raised for this process, then the daemon crashed → started, not raised again", engine: engine(state{run, longhorn.InstanceStateStarting, "s", "p2", false}),
			observed: kept("older", "p2"), wantAction: ActionStart, wantState: longhorn.InstanceStateStarting, wantGen: 4, wantSession: "s", wantEndpoint: device,
		},
		{
			name: "raised for a process that has ended before it took the device over → raised again", engine: engine(state{run, longhorn.InstanceStateStarting, "s", "p2", false}),
			observed: kept("older", "p3"), wantAction: ActionStart, wantState: longhorn.InstanceStateStarting, wantGen: 5, wantSession: "new", wantEndpoint: device,
		},
		{
			name: "nobody was told of the device → it is removed", engine: engine(state{run, longhorn.InstanceStateStarting, "s", "p", false}), change: untold,
			observed: kept("s", "p2"), wantAction: ActionAbort, wantState: longhorn.InstanceStateStarting, wantGen: 4, wantSession: "s",
		},
		{
			name: "it was stopped or assumed stopped since, and is wanted here again → the old device is never taken over", engine: engine(state{run, longhorn.InstanceStateStarting, "s", "p", false}), change: untold,
			observed: kept("older", "p"), wantAction: ActionEvict, wantState: longhorn.InstanceStateStarting, wantGen: 4, wantSession: "s",
		},
		{
			name: "it had failed before its process ended → left for the volume to stop", engine: engine(state{run, longhorn.InstanceStateError, "s", "p", false}), change: untold,
			observed: kept("s", "p2"), wantState: longhorn.InstanceStateError, wantGen: 4, wantSession: "s",
		},
		{
			name: "stop wanted → ended by force, for nothing serves its users", engine: engine(state{stop, longhorn.InstanceStateRunning, "s", "p", false}),
			observed: kept("s", "p2"), wantAction: ActionAbort, wantState: longhorn.InstanceStateStopping, wantGen: 4, wantSession: "s", wantEndpoint: device,
		},
		{
			name: "stopped, of another session → ended, and the object stays as it is", engine: engine(state{stop, longhorn.InstanceStateStopped, "", "", false}),
			observed: kept("older", "p2"), wantAction: ActionEvict, wantState: longhorn.InstanceStateStopped, wantGen: 4,
		},
		{
			name:   "waited for by this very process, the replicas here serve now → raised, not started under the old session",
			engine: engine(state{run, longhorn.InstanceStateStarting, "s", "p2", false}), change: since(time.Second),
			observed: kept("s", "p2"), wantAction: ActionStart, wantState: longhorn.InstanceStateStarting, wantGen: 5, wantSession: "new", wantEndpoint: device,
		},
		{
			name: "assumed stopped, and wanted here again → the old device is never taken over", engine: engine(state{run, longhorn.InstanceStateStopped, "", "", false}),
			observed: kept("older", "p2"), wantAction: ActionEvict, wantState: longhorn.InstanceStateStopped, wantGen: 4,
		},
		{
			name: "it was being stopped when its process ended → ended by force", engine: engine(state{stop, longhorn.InstanceStateStopping, "s", "p", false}),
			observed: kept("s", "p2"), wantAction: ActionAbort, wantState: longhorn.InstanceStateStopping, wantGen: 4, wantSession: "s", wantEndpoint: device,
		},
		{
			name: "stop wanted while a successor was raised and not started → the old device is ended, of its own session", engine: engine(state{stop, longhorn.InstanceStateStarting, "s", "p2", false}),
			observed: kept("older", "p2"), wantAction: ActionEvict, wantState: longhorn.InstanceStateStarting, wantGen: 4, wantSession: "s", wantEndpoint: device,
		},
		{
			name: "the device is kept no more, its successor never ran → lost, and its users are to be told", engine: engine(state{run, longhorn.InstanceStateStarting, "s", "p2", false}),
			observed: Observed{Phase: types.PhaseAbsent, Process: "p3"}, wantState: longhorn.InstanceStateError, wantGen: 4, wantSession: "s",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.engine.Status.CurrentState == longhorn.InstanceStateStarting {
				tc.engine.Status.Endpoint = device
			}
			if tc.change != nil {
				tc.change(tc.engine)
			}
			p := plan(Input{Engine: tc.engine, Observed: tc.observed, Awaited: tc.awaited, NewSession: "new", Owner: "n", Now: now})
			s := p.Status
			assert.Equal(t, tc.wantAction, p.Action)
			assert.Equal(t, tc.wantAfter, p.After)
			if p.Action == ActionStart {
				assert.Equal(t, tc.observed.Process, s.UUID, "started for process")
			}
			assert.Equal(t, tc.wantState, s.CurrentState)
			assert.Equal(t, tc.wantGen, s.Generation)
			assert.Equal(t, tc.wantSession, s.Session)
			assert.Equal(t, tc.wantEndpoint, s.Endpoint)
		})
	}
}

// A process may be replaced after the generation was raised for it and before the start. Then the next process runs
// the engine. Otherwise the volume controller would ignore the engine's status.
func TestTheProcessOfAnEngineIsTheOneThatRunsIt(t *testing.T) {
	e := engine(state{longhorn.DesireStateRunning, longhorn.InstanceStateStarting, "s", "p", false})
	p := plan(Input{Engine: e, Observed: Observed{Phase: types.PhaseRunning, Generation: 4, Session: "s", Process: "p2"}, Now: now})
	assert.Equal(t, longhorn.InstanceStateRunning, p.Status.CurrentState)
	assert.Equal(t, "p2", p.Status.UUID)
}

// The spec may have changed since the generation was raised.
func TestASuccessorIsStartedWithTheReplicasThatAreAskedForNow(t *testing.T) {
	e := engine(state{longhorn.DesireStateRunning, longhorn.InstanceStateStarting, "s", "p2", false})
	e.Status.Endpoint = device
	e.Spec.ReplicaAddressMap = map[string]string{"r": "10.0.0.2:8500"}
	e.Status.CurrentReplicaAddressMap = map[string]string{"r": "10.0.0.1:8500"}
	p := plan(Input{Engine: e, Observed: kept("older", "p2"), Now: now})
	got := p.Status.CurrentReplicaAddressMap["r"]
	assert.Equal(t, ActionStart, p.Action)
	assert.Equal(t, "10.0.0.2:8500", got)
}

// The successor gets the session of the device that it takes over. It waits for a replica of this node that is a
// member, and for no other replica.
func TestSuccessorWaitsForTheReplicasHere(t *testing.T) {
	plane := &fakePlane{observed: kept("s", "p2"), phases: map[string]types.Phase{}}
	e := wantedEngine(func(e *longhorn.Engine) {
		e.Spec.ReplicaAddressMap = map[string]string{"vol-r-1": "10.0.0.8:8500", "vol-r-2": "10.0.0.9:8500", "vol-r-3": "10.0.0.9:8500", "vol-r-4": "10.0.0.9:8500", "vol-r-5": "10.0.0.9:8500"}
		e.Status.CurrentState, e.Status.Session, e.Status.Generation = longhorn.InstanceStateRunning, "s", 4
		e.Status.UUID, e.Status.Endpoint = "p", device
		e.Status.Epoch = &longhorn.Epoch{Generation: 4, Counter: 1, Members: []string{"vol-r-1", "vol-r-2", "vol-r-4", "vol-r-5"}}
	})
	running := func(r *longhorn.Replica) { r.Spec.DesireState = longhorn.DesireStateRunning }
	away := build.PlacedReplica("vol-r-1", "vol", "m", "disk", running)
	outside, local := build.PlacedReplica("vol-r-3", "vol", "n", "disk-n", running), build.PlacedReplica("vol-r-2", "vol", "n", "disk-n", running)
	halted, failed := build.PlacedReplica("vol-r-4", "vol", "n", "disk-n"), build.PlacedReplica("vol-r-5", "vol", "n", "disk-n", running)
	plane.phases["vol-r-5"] = types.PhaseError
	h, c := begin(t, plane, e, outside, halted, failed)
	h.Overwrite(local)
	h.Overwrite(away)

	syncOf(t, c, nil)
	plane.expect(t)
	h.CatchUp()
	e, err := c.Engines.GetRO("vol-e-0")
	require.NoError(t, err)
	assert.Equal(t, int64(4), e.Status.Generation)
	assert.Equal(t, device, e.Status.Endpoint)
	assert.True(t, strings.HasSuffix(types.FindCondition(e.Status.Conditions, types.ConditionInstanceCreation).Message, "which waits for replica vol-r-2"), types.FindCondition(e.Status.Conditions, types.ConditionInstanceCreation).Message)

	plane.phases["vol-r-2"] = types.PhaseRunning
	syncOf(t, c, nil)
	plane.expect(t, "start 5 uid-vol-r-1 in place of s")
}
