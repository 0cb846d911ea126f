package copies

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func placeOf(r *longhorn.Replica) scheduler.Replica {
	return scheduler.Replica{Node: r.Spec.NodeID, DiskUUID: r.Spec.DiskID}
}

func without(list []scheduler.Replica, r scheduler.Replica) []scheduler.Replica {
	i := slices.Index(list, r)
	return slices.Delete(slices.Clone(list), i, i+1)
}

// evictedDisks makes the disks of evicted replicas accept no new replicas.
func evictedDisks(in Facts) Facts {
	for _, r := range in.Replicas {
		for i, n := range in.Cluster.Nodes {
			if in.Evicted[r.Name] && n.Name == r.Spec.NodeID {
				in.Cluster.Nodes[i].Disks[0].EvictionRequested = true
			}
		}
	}
	return in
}

func TestACopyWithoutAPlaceIsSaid(t *testing.T) {
	for _, tc := range []struct {
		name   string
		in     Facts
		reason string // "": Scheduled is True
		says   []string
		made   string // the node of the new replica
		local  bool   // it is created only because it is local
		asked  []string
	}{
		{name: "a copy is to leave its disk, another has room → made there", in: onNodes(3, evictedDisks(served(2, member, all(member, evicted)))), made: "c"},
		{
			name: "a copy is to leave its disk, there is no other → it stays, which is said", in: onNodes(2, evictedDisks(served(2, member, all(member, evicted)))),
			reason: types.ReasonReplicaSchedulingFailure, says: []string{"replica r2 cannot leave its disk on node b", "anti-affinity cannot be satisfied (1 disk)", "disks are unavailable (1 disk: the disk is being evicted)"},
		},
		{
			name: "a failed copy is on such a disk, and there is no other → rebuilt there all the same", in: onNodes(2, evictedDisks(degradedFor(0, served(2, member, all(once(long), evicted))))),
			reason: types.ReasonReplicaSchedulingFailure, says: []string{"replica scheduling failed"}, asked: []string{"r1", "r2"},
		},
		{
			name: "a failed copy is on such a disk, another has room → made there instead", in: onNodes(3, evictedDisks(degradedFor(0, served(2, member, all(once(long), evicted))))),
			made: "c",
		},
		{name: "the volume is used where there is room → made there", in: usedOn("d", served(2, member, member)), made: "d", local: true},
		{
			name: "the volume is used where there is no room → which is said", in: onNodes(3, usedOn("d", served(2, member, member))),
			reason: types.ReasonLocalReplicaSchedulingFailure, says: []string{"on node d, where the volume is used", "hard affinity cannot be satisfied"},
		},
		{name: "one too few, the volume is used where there is room → made there", in: degradedFor(0, usedOn("e", served(3, member, member))), made: "e"},
		{name: "one too few, the volume is used where there is none → made elsewhere", in: onNodes(3, degradedFor(0, usedOn("e", served(3, member, member)))), made: "c"},
		{name: "rebuilds are off, one too few → nothing is made, and nothing lacks a place", in: withoutRebuilds(degradedFor(0, served(3, member, member)))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.in)
			c := types.FindCondition(p.Status.Conditions, types.ConditionScheduled)
			assert.Equal(t, tc.reason, c.Reason)
			assert.Equal(t, tc.reason == "", c.Status == longhorn.ConditionTrue, "it is %s", c.Status)
			for _, part := range tc.says {
				assert.Contains(t, c.Message, part)
			}
			made := ""
			if len(p.CreateReplicas) > 0 {
				made = p.CreateReplicas[0].Spec.NodeID
			}
			assert.Equal(t, tc.made, made)
			assert.Equal(t, tc.local, p.Status.LastLocalReplicaAt != "", "noted that a local one was made")
			if tc.asked == nil {
				assert.Nil(t, p.UpdateEngine)
			} else if assert.NotNil(t, p.UpdateEngine) {
				assert.Len(t, p.UpdateEngine.Spec.ReplicaAddressMap, len(tc.asked))
			}
			assert.Nil(t, p.Surplus)
		})
	}
}

// A volume that has moved soon after a local copy was created waits before it gets the next one, and a condition says
// so.
func TestOnlyAWaitForALocalCopyIsSaid(t *testing.T) {
	moved := func(in Facts) Facts {
		in.Volume.Status.LastLocalReplicaAt, in.Volume.Status.AttachedAt = ago(10*time.Minute), ago(time.Minute)
		in.Volume.Status.CurrentNodeID = in.Engine.Spec.NodeID
		return in
	}
	madeHere := func(in Facts) Facts { // the local replica was created here, and the cache lacks it
		in = moved(in)
		in.Volume.Status.LastLocalReplicaAt = in.Volume.Status.AttachedAt
		return in
	}
	lost := func(in Facts) Facts {
		in = moved(in)
		in.Volume.Status.AttachedAt, in.Volume.Status.LastLocalReplicaAt = ago(2*time.Minute), ago(time.Minute)
		return in
	}
	disabled := func(in Facts) Facts {
		in.Volume.Spec.DataLocality = longhorn.DataLocalityDisabled
		return in
	}
	for name, tc := range map[string]struct {
		in     Facts
		reason string
		after  time.Duration
	}{
		"none is local → said":                       {moved(usedOn("d", served(2, member, member))), types.ReasonLocalReplicaWaits, 4 * time.Minute},
		"made here at once, not seen yet → not said": {madeHere(usedOn("d", served(2, member, member))), "", 4 * time.Minute},
		"made here later, gone since → not said":     {lost(usedOn("d", served(2, member, member))), "", 3 * time.Minute},
		"one is local → nothing to wait for":         {moved(usedOn("a", served(2, member, member))), "", 0},
		"one is becoming local → the same":           {moved(usedOn("c", served(2, member, member, all(fresh, asked, tried, shows(longhorn.ReplicaModeWO))))), "", 0},
		"none is wanted there → the same":            {disabled(moved(usedOn("d", served(2, member, member)))), "", 0},
		"one is evicted, no place → that is said":    {moved(usedOn("d", onNodes(2, evictedDisks(served(2, member, all(member, evicted)))))), types.ReasonReplicaSchedulingFailure, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan(tc.in)
			assert.Equal(t, tc.reason, types.FindCondition(p.Status.Conditions, types.ConditionScheduled).Reason)
			assert.Empty(t, p.CreateReplicas)
			assert.Equal(t, tc.after, p.After)
		})
	}
}

// There is one copy beyond the count at a time: the next one is created when the dropped copies are gone.
func TestACopyBeyondTheCountWaitsForTheOneBefore(t *testing.T) {
	copied := all(fresh, asked, tried, shows(longhorn.ReplicaModeWO))
	for _, tc := range []struct {
		name  string
		in    Facts
		nodes []string // of its replicas at the end
	}{
		{"the volume has moved on from a local one that is being copied", usedOn("e", served(2, member, member, all(copied, onNode("d")))), []string{"a", "e"}},
		{"the volume has moved on from a local one that was never begun", usedOn("e", served(2, member, member, all(fresh, onNode("d")))), []string{"a", "e"}},
		{"one copy fewer is asked for, and none is local", usedOn("e", served(2, member, member, member)), []string{"a", "e"}},
		{"two are to leave their disks, and the first has another in its place", served(2, all(member, evicted), all(member, evicted), member), []string{"c", "d"}},
		{"the one that was to take the place of another is to leave its disk, too", served(2, all(member, evicted), member, all(once(long), evicted)), []string{"b", "d"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in, made := evictedDisks(tc.in), 0
			in.RebuildLimit = 5
			for still, steps := 0, 0; still < 30; steps++ {
				require.Less(t, steps, 500, "it never comes to rest")
				if n := len(plan(in).CreateReplicas); n > 0 {
					made += n
					require.LessOrEqual(t, len(in.Replicas), in.Volume.Spec.NumberOfReplicas, "when another one is made")
				}
				if still++; obey(t, &in) {
					still = 0
				}
			}
			var nodes []string
			for _, r := range in.Replicas {
				nodes = append(nodes, r.Spec.NodeID)
			}
			slices.Sort(nodes)
			assert.Equal(t, tc.nodes, nodes)
			assert.Equal(t, 1, made)
		})
	}
}

// Where a copy is lacking, a dropped copy is not awaited. It counts as gone once its object is being deleted, because
// its node may be down.
func TestACopyThatIsDroppedHoldsNoOtherUp(t *testing.T) {
	stale := 2880 * time.Minute
	for name, in := range map[string]Facts{
		"one is lacking": degradedFor(stale, served(2, member, all(once(stale), away))),
		"the one that is dropped is being deleted, and its node is down": usedOn("e", served(2, member, member, all(once(time.Minute), away, beingDeleted))),
	} {
		t.Run(name, func(t *testing.T) {
			in.RebuildLimit = 5
			assert.Len(t, plan(in).CreateReplicas, 1)
		})
	}
}
