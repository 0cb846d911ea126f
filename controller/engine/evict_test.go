package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

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
	require.NoError(t, err)
	reason := types.FindCondition(e.Status.Conditions, types.ConditionInstanceCreation).Reason
	assert.Equal(t, "Stopped", reason)
	assert.Equal(t, int64(2), e.Status.Generation)
}

func TestEngineThatTheClusterMovedOnFrom(t *testing.T) {
	left := Observed{Phase: types.PhaseRunning, Generation: 1, Session: "s"}
	elsewhere := func(e *longhorn.Engine) { e.Spec.NodeID = "another" }
	assumedStopped := func(e *longhorn.Engine) {
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
		{name: "the object is on another node and shows this session still → ended by force", engine: wantedEngine(elsewhere, func(e *longhorn.Engine) { e.Status.Session = "s" }), observed: left, want: []string{"stop vol-e-0 of s by force"}},
		{name: "the object is gone → ended by force", observed: left, want: []string{"stop vol-e-0 of s by force"}},
		{name: "the object is here and was assumed stopped → stopped by force", engine: wantedEngine(assumedStopped), observed: left, want: []string{"stop vol-e-0 of s by force"}},
		{name: "the object is elsewhere, the server does not answer → left alone", engine: wantedEngine(elsewhere), observed: left, fail: errors.New("away"), wantErr: true},
		{name: "it was assumed stopped, the server does not answer → left alone", engine: wantedEngine(assumedStopped), observed: left, fail: errors.New("away"), wantErr: true},
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
			_, err := c.sync(t.Context(), "vol-e-0")
			assert.Equal(t, tc.wantErr, err != nil, err)
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

// notifying signals that an engine was stopped.
type notifying struct {
	*fakePlane
	stopped chan struct{}
}

func (n notifying) StopEngine(ctx context.Context, name, session string, force bool) error {
	defer close(n.stopped)
	return n.fakePlane.StopEngine(ctx, name, session, force)
}
