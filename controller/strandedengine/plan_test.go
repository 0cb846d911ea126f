package strandedengine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type state struct {
	desire  longhorn.DesireState
	current longhorn.InstanceState
	session string
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
	if s.session != "" {
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
	for _, tc := range []struct {
		name   string
		engine state
		down   bool
		want   Action
	}{
		{"its node is up, must stop → its node's to stop", state{stop, longhorn.InstanceStateRunning, "s", false}, false, ActionNone},
		{"its node is down, must run → left alone", state{run, longhorn.InstanceStateRunning, "s", false}, true, ActionNone},
		{"its node is down, must stop → assumed stopped", state{stop, longhorn.InstanceStateRunning, "s", false}, true, ActionAssumeStopped},
		{"its node is down, was stopping → assumed stopped", state{stop, longhorn.InstanceStateStopping, "s", false}, true, ActionAssumeStopped},
		{"its node is down, deleted → assumed stopped", state{run, longhorn.InstanceStateRunning, "s", true}, true, ActionAssumeStopped},
		{"its node is down, stopped already → nothing", state{stop, longhorn.InstanceStateStopped, "", false}, true, ActionNone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(Input{Engine: engine(tc.engine), NodeDown: tc.down, Owner: "leader", Now: now})
			require.Equal(t, tc.want, p.Action)
			s := p.Status
			if tc.want != ActionAssumeStopped {
				assert.Equal(t, int64(4), s.Generation)
				assert.Equal(t, tc.engine.session, s.Session)
				assert.Equal(t, tc.engine.current, s.CurrentState, "status changed")
				return
			}
			c := types.FindCondition(s.Conditions, types.ConditionInstanceCreation)
			assert.Equal(t, int64(5), s.Generation)
			assert.Empty(t, s.Session)
			assert.Equal(t, longhorn.InstanceStateStopped, s.CurrentState)
			assert.Empty(t, s.Endpoint)
			assert.Equal(t, int64(4), s.Epoch.Generation)
			assert.Equal(t, types.ReasonEngineNodeDown, c.Reason)
		})
	}
}

func TestPlanOfEngineWithoutNode(t *testing.T) {
	for _, tc := range []struct {
		name    string
		current longhorn.InstanceState
		deleted bool
		want    Action
	}{
		{"not deleted → left alone", longhorn.InstanceStateStopped, false, ActionNone},
		{"deleted and stopped → the finalizer is dropped", longhorn.InstanceStateStopped, true, ActionDropFinalizer},
		{"deleted but last seen running → the finalizer stays", longhorn.InstanceStateRunning, true, ActionNone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := engine(state{longhorn.DesireStateStopped, tc.current, "", tc.deleted})
			e.Spec.NodeID = ""
			p := plan(Input{Engine: e, Now: now})
			assert.Equal(t, tc.want, p.Action)
		})
	}
}

func TestPlanOfADeletedEngineWhoseNodeIsGone(t *testing.T) {
	stopped := engine(state{longhorn.DesireStateStopped, longhorn.InstanceStateStopped, "", true})
	runs := engine(state{longhorn.DesireStateStopped, longhorn.InstanceStateRunning, "s", true})
	for _, tc := range []struct {
		name      string
		in        Input
		want      Action
		wantAfter time.Duration
	}{
		{"its node is there → its node's to free", Input{Engine: stopped}, ActionNone, 0},
		{"its node is down, not gone → its node's to free", Input{Engine: stopped, NodeDown: true}, ActionNone, 0},
		{"its node is gone, its volume is there → checked again later", Input{Engine: stopped, NodeDown: true, NodeGone: true}, ActionNone, time.Minute},
		{"its node and its volume are gone → removed by force", Input{Engine: stopped, NodeDown: true, NodeGone: true, VolumeGone: true}, ActionForceRemove, 0},
		{"both are gone, it was last seen running → assumed stopped first", Input{Engine: runs, NodeDown: true, NodeGone: true, VolumeGone: true}, ActionAssumeStopped, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.in.Now = now
			p := plan(tc.in)
			assert.Equal(t, tc.want, p.Action)
			assert.Equal(t, tc.wantAfter, p.After)
		})
	}
}
