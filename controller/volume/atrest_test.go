package volume

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestWhatADetachedVolumeWithTooFewReplicasSaysOfTheirPlaces(t *testing.T) {
	failing := []longhorn.Condition{{Type: types.ConditionScheduled, Status: longhorn.ConditionFalse, Reason: types.ReasonReplicaSchedulingFailure, Message: "m"}}
	for _, tc := range []struct {
		name    string
		allowed bool
		asked   int
		status  longhorn.ConditionStatus
		reason  string
		message string
	}{
		{"degraded availability is allowed → True", true, 3, longhorn.ConditionTrue, types.ReasonDegradedAvailability, "2 of 3 replicas are scheduled, and setting allow-volume-creation-with-degraded-availability allows the volume to be used with these: missing replicas are scheduled when it is attached"},
		{"it is not allowed → what was said while it was attached stays", false, 3, longhorn.ConditionFalse, types.ReasonReplicaSchedulingFailure, "m"},
		{"enough replicas → True", false, 2, longhorn.ConditionTrue, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := resting(time.Second, served(tc.asked, member, member))
			in.Volume.Spec.NodeID, in.Volume.Status.Conditions, in.AllowDegraded = "", failing, tc.allowed
			c := types.FindCondition(plan(in).Status.Conditions, types.ConditionScheduled)
			assert.Equal(t, tc.status, c.Status)
			assert.Equal(t, tc.reason, c.Reason)
			assert.Equal(t, tc.message, c.Message)
		})
	}
}

func TestTheOneReplicaOfABestEffortVolumeIsPlacedWhereItIsAttachedFirst(t *testing.T) {
	bestEffort := func(in Input) Input {
		in.Volume.Spec.DataLocality = longhorn.DataLocalityBestEffort
		return in
	}
	full := bestEffort(unused("c"))
	full.Cluster.Nodes[2].Disks[0].StorageMaximum = gib / 2
	two := bestEffort(unused(""))
	two.Volume.Spec.NumberOfReplicas = 2
	two.Names = append(two.Names, children.ReplicaNames{Replica: "x2", Directory: "d2"})
	for _, tc := range []struct {
		name   string
		in     Input
		made   int
		node   string // of the only created replica; "": not compared
		reason string
	}{
		{name: "wanted nowhere → none is placed, and that is said", in: bestEffort(unused("")), reason: types.ReasonPlacedWhenAttached},
		{name: "wanted on a node → placed there", in: bestEffort(unused("c")), made: 1, node: "c"},
		{name: "no room there → placed elsewhere", in: full, made: 1, node: "a"},
		{name: "placed elsewhere by an earlier release → no other", in: bestEffort(unused("c", fresh))},
		{name: "two replicas → both are placed at once", in: two, made: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.in)
			assert.Len(t, p.CreateReplicas, tc.made)
			if tc.node != "" {
				assert.Equal(t, tc.node, p.CreateReplicas[0].Spec.NodeID)
			}
			c := types.FindCondition(p.Status.Conditions, types.ConditionScheduled)
			assert.Equal(t, longhorn.ConditionTrue, c.Status)
			assert.Equal(t, tc.reason, c.Reason)
		})
	}
}

func TestADeletedVolumeGoesAfterTheReplicasThatCanBeRemoved(t *testing.T) {
	deletedReplica := func(in *Input, r *longhorn.Replica) { r.DeletionTimestamp = &metav1.Time{Time: now} }
	longAgo := func(in *Input, r *longhorn.Replica) { r.DeletionTimestamp = &metav1.Time{Time: now.Add(-removalWait)} }
	refused := func(_ *Input, r *longhorn.Replica) {
		r.Status.Conditions = []longhorn.Condition{{Type: types.ConditionRemovalRefused, Status: longhorn.ConditionTrue}}
	}
	for _, tc := range []struct {
		name    string
		replica option
		goes    bool
	}{
		{"its replica is on a node that is up → waits", deletedReplica, false},
		{"on a node that is up, which has not removed it in a minute → waits no longer", longAgo, true},
		{"on a node that is down → does not wait", all(deletedReplica, away), true},
		{"on a node that is gone → does not wait", all(deletedReplica, nodeGone), true},
		{"its node is back without the disk → does not wait", all(deletedReplica, diskless), true},
		{"its data cannot be removed → does not wait", all(deletedReplica, refused), true},
		{"it is not deleted yet → that comes first", fresh, false},
		{"the same on a node that is down → that comes first", away, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := served(1, tc.replica)
			if _, known := in.Nodes["a"]; !known {
				in.Nodes["a"] = copies.NodeFact{}
			}
			in.Engine = nil
			d := planDeletion(in)
			assert.Equal(t, tc.goes, d.DropFinalizer)
			assert.Equal(t, !tc.goes, d.After > 0, "no event tells that the wait is over")
			assert.Equal(t, in.Replicas[0].DeletionTimestamp == nil, len(d.DeleteReplicas) == 1)
		})
	}
}
