package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// marked sets the annotation by which the leader marks the last good copy.
func marked(_ *Input, r *longhorn.Replica) {
	r.Annotations = map[string]string{types.AnnotationLastGoodCopy: ""}
}

var cordonedNode = nodeCondition(types.ConditionSchedulable, longhorn.ConditionFalse, types.ReasonKubernetesNodeCordoned)

func TestWhichCopiesLeaveACordonedNode(t *testing.T) {
	const every, last = types.DrainBlockForEviction, types.DrainBlockForEvictionIfLastReplica
	unschedulable := nodeCondition(types.ConditionSchedulable, longhorn.ConditionFalse, "")
	// The copies r1, r2, r3 of served are on nodes a, b, c.
	for _, tc := range []struct {
		name   string
		policy types.DrainPolicy
		in     Input
		nodes  map[string]func(*longhorn.Node) // changes to nodes, by name
		want   []string
	}{
		{"no node is cordoned → none", every, served(2, member, member), nil, nil},
		{"a node is cordoned → its copy", every, served(2, member, member), map[string]func(*longhorn.Node){"b": cordonedNode}, []string{"r2"}},
		{"two nodes are cordoned → both copies", every, served(2, member, member), map[string]func(*longhorn.Node){"a": cordonedNode, "b": cordonedNode}, []string{"r1", "r2"}},
		{"a node takes no copies, and is not cordoned → none", every, served(2, member, member), map[string]func(*longhorn.Node){"b": unschedulable}, nil},
		{"cordoned, under block-if-contains-last-replica → none", types.DrainBlockIfLastReplica, served(1, all(member, marked)), map[string]func(*longhorn.Node){"a": cordonedNode}, nil},
		{"cordoned, under allow-if-replica-is-stopped → none", types.DrainAllowIfStopped, served(1, all(member, marked)), map[string]func(*longhorn.Node){"a": cordonedNode}, nil},
		{"cordoned, under always-allow → none", types.DrainAlwaysAllow, served(1, all(member, marked)), map[string]func(*longhorn.Node){"a": cordonedNode}, nil},

		{"only the last: cordoned, another one is good → none", last, served(2, member, member), map[string]func(*longhorn.Node){"b": cordonedNode}, nil},
		{"only the last: cordoned, it is the last → that one", last, served(2, all(member, marked), once(0)), map[string]func(*longhorn.Node){"a": cordonedNode}, []string{"r1"}},
		{"only the last: it is the last, its node is not cordoned → none", last, served(2, all(member, marked), once(0)), map[string]func(*longhorn.Node){"b": cordonedNode}, nil},
		{"only the last: the mark is late, another one is good by now → none", last, served(2, all(member, marked), member), map[string]func(*longhorn.Node){"a": cordonedNode}, nil},
		{"only the last: another one has taken its place → it leaves, marked or not", last, served(1, member, member), map[string]func(*longhorn.Node){"a": cordonedNode}, []string{"r1"}},
		{"only the last: the other one is on a cordoned node, too → none", last, served(1, member, member), map[string]func(*longhorn.Node){"a": cordonedNode, "b": cordonedNode}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var nodes []*longhorn.Node
			for _, name := range []string{"a", "b", "c"} {
				n := build.ReadyNode(name, "disk-"+name)
				if change := tc.nodes[name]; change != nil {
					change(n)
				}
				nodes = append(nodes, n)
			}
			evicted := evictedOf(tc.in.Facts, nodes, tc.policy)
			var got []string
			for _, r := range tc.in.Replicas {
				if evicted[r.Name] {
					got = append(got, r.Name)
				}
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

// TestTheLastCopyMovesOffACordonedNodeOnce: the volume must not delete the copy that replaced the last one, or the
// move would repeat forever.
func TestTheLastCopyMovesOffACordonedNodeOnce(t *testing.T) {
	cordoned := []*longhorn.Node{build.ReadyNode("a", "disk-a", cordonedNode), build.ReadyNode("b", "disk-b")}
	target := func(in Input) Target {
		in.Evicted = evictedOf(in.Facts, cordoned, types.DrainBlockForEvictionIfLastReplica)
		return targetFor(in)
	}
	first := target(served(1, all(member, marked)))
	require.NotNil(t, first.Add)
	assert.Equal(t, whyEvict, first.Add.Why)
	then := target(served(1, member, member))
	assert.Equal(t, Decision{fateDrop, whyEvicted}, then.Copies["r1"])
	assert.Equal(t, fateKeep, then.Copies["r2"].Fate)
}

func TestADetachedVolumeSaysThatAnEvictionWaits(t *testing.T) {
	both := map[string]bool{"vol-r-1": true, "vol-r-2": true}
	const message = "eviction waits until the volume is attached: replica vol-r-2 on node b"
	waiting := []longhorn.Condition{{Type: types.ConditionEvictionWaits, Status: longhorn.ConditionTrue, Reason: "VolumeDetached", Message: message}}
	waits := func(p Plan) longhorn.Condition {
		return types.FindCondition(p.Status.Conditions, types.ConditionEvictionWaits)
	}
	events := func(p Plan) (messages []string) {
		for _, e := range p.Events {
			if e.Reason == types.ConditionEvictionWaits {
				messages = append(messages, e.Type+" "+e.Message)
			}
		}
		return messages
	}
	for _, tc := range []struct {
		name    string
		world   world
		evicted map[string]bool
		change  func(*Input)
		message string
		status  longhorn.ConditionStatus
		events  []string
	}{
		{name: "no replica is to leave → nothing is said", status: longhorn.ConditionUnknown},
		{
			name: "one is to leave → that is said", evicted: map[string]bool{"vol-r-2": true}, message: message, status: longhorn.ConditionTrue,
			events: []string{"Normal volume vol is detached: " + message},
		},
		{
			name: "it was said → no second Event", evicted: map[string]bool{"vol-r-2": true}, message: message, status: longhorn.ConditionTrue,
			change: func(in *Input) { in.Volume.Status.Conditions = waiting },
		},
		{
			name: "another one as well → that is said, too", evicted: both, status: longhorn.ConditionTrue,
			message: "eviction waits until the volume is attached: replica vol-r-1 on node a, replica vol-r-2 on node b",
			events:  []string{"Normal volume vol is detached: eviction waits until the volume is attached: replica vol-r-1 on node a, replica vol-r-2 on node b"},
			change:  func(in *Input) { in.Volume.Status.Conditions = waiting },
		},
		{
			name: "it is being deleted → it waits for nothing", evicted: map[string]bool{"vol-r-2": true}, status: longhorn.ConditionUnknown,
			change: func(in *Input) { in.Replicas[1].DeletionTimestamp = &metav1.Time{Time: now} },
		},
		{name: "the eviction is taken back → it ends", status: longhorn.ConditionFalse, change: func(in *Input) { in.Volume.Status.Conditions = waiting }},
		{
			name: "the volume is to be attached → it ends", world: world{want: "a"}, evicted: both, status: longhorn.ConditionFalse,
			change: func(in *Input) { in.Volume.Status.Conditions = waiting },
		},
		{
			name: "the volume is attached → nothing is said, for they move", evicted: both, status: longhorn.ConditionUnknown,
			world: world{want: "a", engineNode: "a", engineDesire: longhorn.DesireStateRunning, engineState: longhorn.InstanceStateRunning},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.world == (world{}) {
				tc.world.replicaDesire = longhorn.DesireStateStopped // it is detached
			}
			in := tc.world.input()
			in.Evicted = tc.evicted
			if tc.change != nil {
				tc.change(&in)
			}
			p := plan(in)
			assert.Equal(t, tc.status, waits(p).Status)
			assert.Equal(t, tc.message, waits(p).Message)
			assert.Equal(t, tc.events, events(p))
		})
	}
}

// TestADrainMovesCopies: the setting and the cordon reach the plan.
func TestADrainMovesCopies(t *testing.T) {
	foreign := func(_ *longhorn.Engine, r *longhorn.Replica) {
		r.OwnerReferences, r.Spec.VolumeName, r.Labels[types.LabelVolume] = nil, "other", "other"
	}
	for policy, want := range map[types.DrainPolicy]int{types.DrainBlockForEviction: 2, types.DrainBlockIfLastReplica: 1, types.DrainBlockForEvictionIfLastReplica: 1} {
		t.Run(string(policy), func(t *testing.T) {
			h, c := begin(t, append(cluster(2, foreign), build.Setting(types.SettingNodeDrainPolicy, string(policy)))...)
			h.Overwrite(build.ReadyNode("b", "disk-b", cordonedNode))
			h.CatchUp()
			syncOf(t, h, c, nil)
			h.CatchUp()
			replicas, err := c.deps.Replicas.ByIndex(datastore.IndexNode, "c")
			require.NoError(t, err)
			assert.Len(t, replicas, want)
		})
	}
}
