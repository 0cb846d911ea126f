package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// detachingInVain is a served volume with a detach that its node refused: its device is in use. The volume is
// requested there again.
func detachingInVain() Input {
	in := served(2, member, member)
	in.Volume.Status.State, in.Volume.Status.CurrentNodeID = longhorn.VolumeStateDetaching, "a"
	in.Engine.Spec.DesireState, in.Engine.Status.CurrentState = longhorn.DesireStateStopped, longhorn.InstanceStateStopping
	in.Engine.Status.Conditions = []longhorn.Condition{{Type: types.ConditionDeviceInUse, Status: longhorn.ConditionTrue}}
	return in
}

func TestWhenAStopIsTakenBack(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Input)
		want   bool
	}{
		{name: "refused, wanted there again → taken back", change: func(*Input) {}, want: true},
		{name: "not refused, or not yet → it may be ending, and ends first", change: func(in *Input) { in.Engine.Status.Conditions = nil }},
		{name: "refused, wanted nowhere → goes on", change: func(in *Input) { in.Volume.Spec.NodeID = "" }},
		{name: "refused, wanted on another node → goes on", change: func(in *Input) { in.Volume.Spec.NodeID = "b" }},
		{name: "refused, wanted there without a device → goes on", change: func(in *Input) { in.Volume.Spec.DisableFrontend = true }},
		{name: "the engine has failed since → goes on", change: func(in *Input) { in.Engine.Status.CurrentState = longhorn.InstanceStateError }},
		{name: "nothing is known of the engine → left", change: func(in *Input) { in.Engine.Status.CurrentState = longhorn.InstanceStateUnknown }},
		{name: "its node is down → left", change: func(in *Input) { in.Nodes["a"] = copies.NodeFact{Down: true} }},
		{name: "the engine is deleted → goes on", change: func(in *Input) { in.Engine.DeletionTimestamp = &metav1.Time{Time: now} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := detachingInVain()
			tc.change(&in)
			p := plan(in)
			assert.Empty(t, p.Status.RemountRequestedAt)
			assert.Empty(t, p.UpdateReplicas, "no replica stops before its engine")
			if !tc.want {
				assert.Equal(t, longhorn.VolumeStateDetaching, p.Status.State)
				assert.Nil(t, p.UpdateEngine)
				return
			}
			require.NotNil(t, p.UpdateEngine)
			want := in.Engine.Spec.DeepCopy()
			want.DesireState = longhorn.DesireStateRunning
			assert.Equal(t, *want, p.UpdateEngine.Spec, "its members and its device stay")
			assert.Equal(t, longhorn.VolumeStateAttaching, p.Status.State)
			c := types.FindCondition(p.Status.Conditions, types.ConditionAttaching)
			assert.Equal(t, "the engine keeps running on node a: its device is in use and the volume is requested there again", c.Message)
		})
	}
}

// The engine is the same before and after, so its users need not mount the device again.
func TestAfterAStopWasTakenBackTheVolumeIsAttachedAsBefore(t *testing.T) {
	in := detachingInVain()
	for _, step := range []struct {
		engine longhorn.InstanceState // the state that its node reports then
		want   longhorn.VolumeState
	}{
		{longhorn.InstanceStateStopping, longhorn.VolumeStateAttaching},
		{longhorn.InstanceStateStopping, longhorn.VolumeStateAttaching},
		{longhorn.InstanceStateRunning, longhorn.VolumeStateAttached},
	} {
		in.Engine = in.Engine.DeepCopy()
		in.Engine.Status.CurrentState = step.engine
		p := plan(in)
		assert.Equal(t, step.want, p.Status.State)
		assert.Empty(t, p.Status.RemountRequestedAt)
		assert.Equal(t, "a", p.Status.CurrentNodeID)
		if p.UpdateEngine != nil {
			in.Engine = p.UpdateEngine
		}
		in.Volume.Status = p.Status
	}
	assert.False(t, types.IsConditionTrue(in.Volume.Status.Conditions, types.ConditionAttaching))
	assert.Equal(t, longhorn.VolumeRobustnessHealthy, in.Volume.Status.Robustness)
}
