package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func readiness(status longhorn.ConditionStatus, reason string) func(*longhorn.Node) {
	return func(n *longhorn.Node) {
		n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: status, Reason: reason}}
	}
}

var down = readiness(longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady)

func TestPlanOfTheLeader(t *testing.T) {
	run, stop := longhorn.DesireStateRunning, longhorn.DesireStateStopped
	for _, tc := range []struct {
		name   string
		engine state
		down   bool
		want   Action
	}{
		{"its node is up, shall stop → its node's to stop", state{stop, longhorn.InstanceStateRunning, "s", "p", false}, false, ActionNone},
		{"its node is down, shall run → left alone", state{run, longhorn.InstanceStateRunning, "s", "p", false}, true, ActionNone},
		{"its node is down, shall stop → abandoned", state{stop, longhorn.InstanceStateRunning, "s", "p", false}, true, ActionAbandon},
		{"its node is down, was stopping → abandoned", state{stop, longhorn.InstanceStateStopping, "s", "p", false}, true, ActionAbandon},
		{"its node is down, deleted → abandoned", state{run, longhorn.InstanceStateRunning, "s", "p", true}, true, ActionAbandon},
		{"its node is down, stopped already → nothing", state{stop, longhorn.InstanceStateStopped, "", "", false}, true, ActionNone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(Input{Engine: engine(tc.engine), Observed: Observed{Phase: types.PhaseUnknown}, NodeDown: tc.down, Owner: "leader", Now: now})
			if p.Action != tc.want {
				t.Fatalf("action %q, want %q", p.Action, tc.want)
			}
			s := p.Status
			if tc.want != ActionAbandon {
				if s.Generation != 4 || s.Session != tc.engine.session || s.CurrentState != tc.engine.current {
					t.Errorf("status changed: %+v", s)
				}
				return
			}
			c := types.FindCondition(s.Conditions, types.ConditionInstanceCreation)
			if s.Generation != 5 || s.Session != "" || s.CurrentState != longhorn.InstanceStateStopped || s.Endpoint != "" || s.Epoch.Generation != 4 || c.Reason != types.ReasonEngineNodeDown {
				t.Errorf("got %+v", s)
			}
		})
	}
}

func TestEngineOfADeadNodeIsAbandonedOnlyWhileTheServerSaysSo(t *testing.T) {
	unwanted := func(e *longhorn.Engine) { e.Spec.DesireState = longhorn.DesireStateStopped }
	plane := &fakePlane{}
	h, c := beginAt(t, "", plane, running(unwanted), build.Node("n", down))

	h.Fail("get", "nodes", errors.New("the API server is away"))
	if _, err := c.sync(t.Context(), "vol-e-0"); err == nil {
		t.Error("the failure was swallowed")
	}
	h.ExpectWrites()

	h.Overwrite(build.Node("n", readiness(longhorn.ConditionTrue, ""))) // it is back, the cache is late
	syncOf(t, c, queue.ErrStale)
	h.ExpectWrites()

	h.Overwrite(build.Node("n", down))
	syncOf(t, c, nil)
	h.ExpectWrites("update engines/vol-e-0/status")
	h.ExpectEvents("Warning Stop vol-e-0: engine vol-e-0 is taken for stopped: node n does not answer; replicas refuse the engine that may be left there from generation 2 on")
	h.CatchUp()
	syncOf(t, c, nil)
	h.ExpectWrites() // once
	plane.expect(t)
}

func TestNodeThatComesBackConfirmsThatTheEngineIsGone(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent}}
	h, c := begin(t, plane, wantedEngine(func(e *longhorn.Engine) {
		e.Spec.DesireState = longhorn.DesireStateStopped
		e.Status.Generation, e.Status.CurrentState = 2, longhorn.InstanceStateStopped
		e.Status.Conditions = []longhorn.Condition{{Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: types.ReasonEngineNodeDown}}
	}))
	syncOf(t, c, nil)
	h.CatchUp()
	e, err := c.Engines.GetRO("vol-e-0")
	if err != nil {
		t.Fatal(err)
	}
	if reason := types.FindCondition(e.Status.Conditions, types.ConditionInstanceCreation).Reason; reason != "Stopped" || e.Status.Generation != 2 {
		t.Errorf("reason %q, generation %d", reason, e.Status.Generation)
	}
}

func TestEngineThatTheClusterMovedOnFrom(t *testing.T) {
	left := Observed{Phase: types.PhaseRunning, Generation: 1, Session: "s"}
	elsewhere := func(e *longhorn.Engine) { e.Spec.NodeID = "another" }
	abandoned := func(e *longhorn.Engine) {
		e.Spec.DesireState = longhorn.DesireStateStopped
		e.Status.Generation, e.Status.Session, e.Status.CurrentState = 2, "", longhorn.InstanceStateStopped
	}
	for _, tc := range []struct {
		name     string
		engine   *longhorn.Engine // nil: there is none
		late     bool             // the cache does not show it
		observed Observed
		fail     error
		want     []string
		wantErr  bool
	}{
		{name: "the object is on another node → ended by force", engine: wantedEngine(elsewhere), observed: left, want: []string{"stop vol-e-0 of s by force"}},
		{name: "the object is gone → ended by force", observed: left, want: []string{"stop vol-e-0 of s by force"}},
		{name: "the object is here and was abandoned → ended by force", engine: wantedEngine(abandoned), observed: left, want: []string{"stop vol-e-0 of s by force"}},
		{name: "the object is elsewhere, the server does not answer → left alone", engine: wantedEngine(elsewhere), observed: left, fail: errors.New("away"), wantErr: true},
		{name: "it was abandoned, the server does not answer → left alone", engine: wantedEngine(abandoned), observed: left, fail: errors.New("away"), wantErr: true},
		{name: "the object is here with this session, the cache is late → left alone", engine: running().(*longhorn.Engine), late: true, observed: left, wantErr: true},
		{name: "the instance manager is silent → left alone", engine: wantedEngine(elsewhere), observed: Observed{Phase: types.PhaseUnknown}},
		{name: "it is not hosted → nothing", engine: wantedEngine(elsewhere), observed: Observed{Phase: types.PhaseAbsent}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plane := &fakePlane{observed: tc.observed, hosted: []string{"vol-e-0"}}
			h, c := begin(t, plane)
			if tc.engine != nil {
				h.Seed(tc.engine)
			}
			if !tc.late {
				h.CatchUp()
			}
			if tc.fail != nil {
				h.Fail("get", "engines", tc.fail)
			}
			if _, err := c.sync(t.Context(), "vol-e-0"); (err != nil) != tc.wantErr {
				t.Errorf("sync: %v", err)
			}
			plane.expect(t, tc.want...)
			h.ExpectWrites()
		})
	}
}

func TestHostedEnginesAreLookedAtThoughNoObjectIsHere(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseRunning, Session: "old"}, hosted: []string{"lost-e-0"}}
	_, c := begin(t, plane)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	stopped := make(chan struct{})
	c.DataPlane = notifying{plane, stopped}
	go func() { defer close(done); _ = c.Run(ctx) }()
	c.NotifyAll()
	<-stopped
	cancel()
	<-done
	plane.expect(t, "stop lost-e-0 of old by force")
}

// notifying tells when an engine was stopped.
type notifying struct {
	*fakePlane
	stopped chan struct{}
}

func (n notifying) StopEngine(ctx context.Context, name, session string, force bool) error {
	defer close(n.stopped)
	return n.fakePlane.StopEngine(ctx, name, session, force)
}

// The Node goes with its Kubernetes node; what was left of the engine there is fenced off
// as from a node that does not answer.
func TestEngineOfARemovedNodeIsAbandoned(t *testing.T) {
	plane := &fakePlane{}
	h, c := beginAt(t, "", plane, running(func(e *longhorn.Engine) { e.Spec.DesireState = longhorn.DesireStateStopped }))
	h.Seed(build.Node("n")) // registered again, the cache is late
	syncOf(t, c, queue.ErrStale)
	h.ExpectWrites()

	h, c = beginAt(t, "", plane, running(func(e *longhorn.Engine) { e.Spec.DesireState = longhorn.DesireStateStopped }))
	syncOf(t, c, nil)
	h.ExpectWrites("update engines/vol-e-0/status")
	h.CatchUp()
	syncOf(t, c, nil)
	h.ExpectWrites()
	plane.expect(t)
}
