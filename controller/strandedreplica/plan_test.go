package strandedreplica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func replica(options ...func(*longhorn.Replica)) *longhorn.Replica {
	r := &longhorn.Replica{}
	r.Name = "vol-r-1"
	r.Spec.NodeID, r.Spec.DiskID, r.Spec.DataDirectoryName = "n", "uuid", "vol-1"
	r.Spec.DesireState = longhorn.DesireStateStopped
	for _, o := range options {
		o(r)
	}
	return r
}

func deleted(r *longhorn.Replica) { r.DeletionTimestamp = &metav1.Time{Time: now} }
func placeless(r *longhorn.Replica) {
	r.Spec.NodeID, r.Spec.DiskID, r.Spec.DataDirectoryName = "", "", ""
}

func failedAt(at time.Time, reason string) func(*longhorn.Replica) {
	return func(r *longhorn.Replica) {
		r.Status.CurrentState = longhorn.InstanceStateError
		r.Status.Conditions = []longhorn.Condition{{
			Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: reason, Message: "m", LastTransitionTime: types.Timestamp(at),
		}}
	}
}

func TestPlan(t *testing.T) {
	const failed = longhorn.InstanceStateError
	running := func(r *longhorn.Replica) {
		r.Status.CurrentState, r.Status.IP = longhorn.InstanceStateRunning, "10.0.0.7"
	}
	deletedFor := func(d time.Duration) func(*longhorn.Replica) {
		return func(r *longhorn.Replica) { r.DeletionTimestamp = &metav1.Time{Time: now.Add(-d)} }
	}
	for _, tc := range []struct {
		name       string
		in         Input
		wantAction Action
		wantState  longhorn.InstanceState
		wantReason string
		wantAfter  time.Duration
	}{
		{name: "its node is gone while it ran → it has failed", in: Input{NodeGone: true, Replica: replica(created, wanted, running)}, wantAction: ActionSetFailed, wantState: failed, wantReason: types.ReasonNodeGone},
		{name: "its node is gone while it was stopped → it has failed", in: Input{NodeGone: true, Replica: replica(created)}, wantAction: ActionSetFailed, wantState: failed, wantReason: types.ReasonNodeGone},
		{name: "its node is gone and that was said → nothing", in: Input{NodeGone: true, Replica: replica(created, failedAt(now, types.ReasonNodeGone))}, wantState: failed, wantReason: types.ReasonNodeGone},
		{name: "its node is gone, it had failed otherwise → that its node is gone is said", in: Input{NodeGone: true, Replica: replica(created, failedAt(now, "MetadataTorn"))}, wantAction: ActionSetFailed, wantState: failed, wantReason: types.ReasonNodeGone},
		{name: "it has no node → nothing", in: Input{NodeGone: true, Replica: replica(placeless)}},
		{name: "its node is there → nothing by the leader", in: Input{Replica: replica(created, running)}, wantState: longhorn.InstanceStateRunning},
		{name: "deleted, its node and its disk are gone → removed by force", in: Input{NodeGone: true, Replica: replica(created, deleted)}, wantAction: ActionForceRemove},
		{name: "deleted, its node is gone, its disk is on another → waits to be moved", in: Input{NodeGone: true, DiskRecorded: true, Replica: replica(created, deleted)}, wantAction: ActionSetFailed, wantState: failed, wantReason: types.ReasonNodeGone},
		{name: "deleted, no node has its disk, for less than 10 minutes → waits for the disk", in: Input{Replica: replica(created, deletedFor(4*time.Minute))}, wantAfter: 6 * time.Minute},
		{name: "deleted, no node has its disk, for 10 minutes → removed by force", in: Input{Replica: replica(created, deletedFor(10*time.Minute))}, wantAction: ActionForceRemove},
		{name: "deleted, its node is back without its disk → removed by force at once", in: Input{LacksDisk: true, Replica: replica(created, deletedFor(time.Second))}, wantAction: ActionForceRemove},
		{name: "not deleted, its node is back without its disk → kept", in: Input{LacksDisk: true, Replica: replica(created)}},
		{name: "deleted, a node has its disk → kept for that node, however long", in: Input{DiskRecorded: true, Replica: replica(created, deletedFor(time.Hour))}},
		{name: "not deleted, no node has its disk → kept", in: Input{Replica: replica(created)}},
		{name: "deleted without ever having a place → the finalizer is dropped", in: Input{NodeGone: true, Replica: replica(placeless, deleted)}, wantAction: ActionDropFinalizer},
		{name: "deleted, it has a node and no directory yet → the finalizer is dropped", in: Input{Replica: replica(deleted, func(r *longhorn.Replica) { r.Spec.DataDirectoryName = "" })}, wantAction: ActionDropFinalizer},
		{name: "deleted, it has a directory and no longer a node → the finalizer is dropped", in: Input{NodeGone: true, Replica: replica(deleted, func(r *longhorn.Replica) { r.Spec.NodeID = "" })}, wantAction: ActionDropFinalizer},
		{name: "not deleted, without a place → kept", in: Input{NodeGone: true, Replica: replica(placeless)}},
		{name: "deleted, the last copy, its node and its disk are gone → kept, and it has failed", in: Input{NodeGone: true, Kept: true, Replica: replica(created, deleted)}, wantAction: ActionSetFailed, wantState: failed, wantReason: types.ReasonNodeGone, wantAfter: 30 * time.Second},
		{name: "deleted, the last copy, no node has its disk for an hour → kept", in: Input{Kept: true, Replica: replica(created, deletedFor(time.Hour))}, wantAfter: 30 * time.Second},
		{name: "deleted, the last copy, its node is back without its disk → kept", in: Input{LacksDisk: true, Kept: true, Replica: replica(created, deletedFor(time.Hour))}, wantAfter: 30 * time.Second},
		{name: "its node is gone again while it started → it has failed again", in: Input{NodeGone: true, Replica: replica(created, failedAt(now, types.ReasonNodeGone), func(r *longhorn.Replica) { r.Status.CurrentState = longhorn.InstanceStateStarting })}, wantAction: ActionSetFailed, wantState: failed, wantReason: types.ReasonNodeGone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.in.Owner, tc.in.Now = "n", now
			p := plan(tc.in)
			c := types.FindCondition(p.Status.Conditions, types.ConditionInstanceCreation)
			assert.Equal(t, tc.wantAction, p.Action)
			assert.Equal(t, tc.wantState, p.Status.CurrentState)
			assert.Equal(t, tc.wantAfter, p.After)
			assert.Equal(t, tc.wantReason, c.Reason)
			if p.Action == ActionSetFailed {
				assert.Empty(t, p.Status.IP, "an address is left")
			}
		})
	}
}
