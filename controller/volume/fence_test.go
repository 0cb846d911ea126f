package volume

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// assumedStopped is the served volume after node "a" of its engine went down and its users left. The leader assumed
// that the engine is stopped, at generation 2.
func assumedStopped(in Input) Input {
	in.Nodes["a"] = copies.NodeFact{Down: true}
	in.Volume.Spec.NodeID = ""
	in.Volume.Status.State = longhorn.VolumeStateDetaching
	e := in.Engine
	e.Spec.DesireState, e.Status.CurrentState, e.Status.Session, e.Status.Generation = longhorn.DesireStateStopped, longhorn.InstanceStateStopped, "", 2
	e.Status.Conditions = []longhorn.Condition{{Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: types.ReasonEngineNodeDown, Message: "m", LastTransitionTime: ago(0)}}
	return in
}

func stopWanted(generation int64, state longhorn.InstanceState, held int64) option {
	return func(_ *Input, r *longhorn.Replica) {
		r.Spec.DesireState, r.Spec.FenceGeneration = longhorn.DesireStateStopped, generation
		r.Status.CurrentState, r.Status.Generation = state, held
	}
}

func TestDetachFromADeadNode(t *testing.T) {
	const stopped, running, failing = longhorn.InstanceStateStopped, longhorn.InstanceStateRunning, longhorn.InstanceStateError
	for _, tc := range []struct {
		name      string
		in        Input
		want      longhorn.VolumeState
		fenced    []string // replicas that now get the desired state stopped and the fence
		wantFault string
	}{
		{name: "replicas run → all are asked to stop behind the fence, those of the dead node for its return", in: assumedStopped(served(3, member, member, member)), want: longhorn.VolumeStateDetaching, fenced: []string{"r1", "r2", "r3"}},
		{
			name: "one member holds the fence, another live one has not stopped yet → detached, nothing depends on it", want: longhorn.VolumeStateDetached,
			in: assumedStopped(served(3, member, all(member, stopWanted(2, stopped, 2)), all(member, stopWanted(2, running, 1)))), fenced: []string{"r1"},
		},
		{
			name: "every live one has stopped and holds the fence → detached", want: longhorn.VolumeStateDetached,
			in: assumedStopped(served(3, all(member, stopWanted(2, running, 1)), all(member, stopWanted(2, stopped, 2)), all(member, stopWanted(2, stopped, 2)))),
		},
		{
			name: "stopped, but none holds the fence yet → waits", want: longhorn.VolumeStateDetaching,
			in: assumedStopped(served(2, all(member, stopWanted(2, running, 1)), all(member, stopWanted(2, stopped, 1)))),
		},
		{
			name: "only one outside the epoch holds the fence → not enough", want: longhorn.VolumeStateDetaching, wantFault: "replica r1 on node a: the node does not answer",
			in: assumedStopped(served(2, all(member, stopWanted(2, running, 1)), all(fresh, stopWanted(2, stopped, 2)))),
		},
		{
			name: "a live member is broken, another one holds the fence → detached", want: longhorn.VolumeStateDetached,
			in: assumedStopped(served(3, all(member, stopWanted(2, running, 1)), all(member, stopWanted(2, failing, 1)), all(member, stopWanted(2, stopped, 2)))),
		},
		{
			name: "no member can take up the fence → faulted, each named", want: longhorn.VolumeStateDetaching,
			wantFault: "replica r1 on node a: the node does not answer; replica r2 on node b: MetadataTorn: m",
			in:        assumedStopped(served(2, all(member, stopWanted(2, running, 1)), all(member, stopWanted(2, failing, 1), broken("MetadataTorn")))),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.in)
			assert.Equal(t, tc.want, p.Status.State)
			var fenced []string
			for _, r := range p.UpdateReplicas {
				assert.Equal(t, int64(2), r.Spec.FenceGeneration, "replica %s", r.Name)
				assert.Equal(t, longhorn.DesireStateStopped, r.Spec.DesireState, "replica %s", r.Name)
				fenced = append(fenced, r.Name)
			}
			assert.Equal(t, strings.Join(tc.fenced, " "), strings.Join(fenced, " "))
			c := types.FindCondition(p.Status.Conditions, types.ConditionFaulted)
			assert.Equal(t, tc.wantFault != "", c.Status == longhorn.ConditionTrue)
			assert.Contains(t, c.Message, tc.wantFault)
			assert.Nil(t, p.Surplus)
			assert.Empty(t, p.CreateReplicas)
		})
	}
}

func TestVolumeDetachedBehindAFenceStaysDetached(t *testing.T) {
	in := assumedStopped(served(2, all(member, stopWanted(2, longhorn.InstanceStateRunning, 1)), all(member, stopWanted(2, longhorn.InstanceStateStopped, 2))))
	in.Engine.Spec.NodeID, in.Engine.Spec.ReplicaAddressMap = "", nil
	for range 2 {
		p := plan(in)
		require.Equal(t, longhorn.VolumeStateDetached, p.Status.State)
		require.Nil(t, p.UpdateEngine)
		require.Empty(t, p.UpdateReplicas)
		in.Volume.Status = p.Status
		in.Replicas[1].Status.Generation = 1 // as if the node's report were late
	}
}

func TestEngineOfADeadNodeIsNotStartedElsewhereBeforeItIsTakenForStopped(t *testing.T) {
	in := served(2, member, member)
	in.Nodes["a"] = copies.NodeFact{Down: true}
	in.Volume.Spec.NodeID = ""
	p := plan(in)
	require.NotNil(t, p.UpdateEngine)
	assert.Equal(t, longhorn.DesireStateStopped, p.UpdateEngine.Spec.DesireState)
	assert.Equal(t, "a", p.UpdateEngine.Spec.NodeID)
	assert.Empty(t, p.UpdateReplicas)
	assert.Equal(t, longhorn.VolumeStateDetaching, p.Status.State)
}

func TestOrderlyStopNeedsNoFence(t *testing.T) {
	in := assumedStopped(served(2, member, all(member, stopWanted(0, longhorn.InstanceStateStopped, 1))))
	in.Engine.Status.Conditions = nil // its node said that it stopped, and then went down
	p := plan(in)
	assert.Equal(t, longhorn.VolumeStateDetached, p.Status.State, "a replica of a dead node holds it up")
	for _, r := range p.UpdateReplicas {
		assert.Zero(t, r.Spec.FenceGeneration, "replica %s", r.Name)
	}
}

func TestDeletionAfterItsNodeDied(t *testing.T) {
	in := assumedStopped(served(2, member, member))
	d := planDeletion(in)
	require.Len(t, d.UpdateReplicas, 2)
	assert.Equal(t, int64(2), d.UpdateReplicas[1].Spec.FenceGeneration)
	require.NotNil(t, d.UpdateEngine)
	assert.Empty(t, d.UpdateEngine.Spec.NodeID)
	assert.Empty(t, d.DeleteReplicas)
}

// A deleted replica that stays as the last good one is the only replica that can fence an engine on a dead node.
func TestAKeptReplicaIsAskedForTheFence(t *testing.T) {
	p := plan(assumedStopped(served(1, all(member, onNode("b"), beingDeleted, kept))))
	require.NotEmpty(t, p.UpdateReplicas)
	assert.EqualValues(t, 2, p.UpdateReplicas[0].Spec.FenceGeneration)
}
