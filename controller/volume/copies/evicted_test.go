package copies

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// marked sets the annotation by which the leader marks the last healthy replica.
func marked(_ *Facts, r *longhorn.Replica) {
	r.Annotations = map[string]string{types.AnnotationLastGoodCopy: ""}
}

var cordonedNode = nodeCondition(types.ConditionSchedulable, longhorn.ConditionFalse, types.ReasonKubernetesNodeCordoned)

func TestWhichCopiesLeaveACordonedNode(t *testing.T) {
	const every, last = settings.DrainBlockForEviction, settings.DrainBlockForEvictionIfLastReplica
	unschedulable := nodeCondition(types.ConditionSchedulable, longhorn.ConditionFalse, "")
	// The copies r1, r2, r3 of served are on nodes a, b, c.
	for _, tc := range []struct {
		name   string
		policy settings.DrainPolicy
		in     Facts
		nodes  map[string]func(*longhorn.Node) // changes to nodes, by name
		want   []string
	}{
		{"no node is cordoned → none", every, served(2, member, member), nil, nil},
		{"a node is cordoned → its copy", every, served(2, member, member), map[string]func(*longhorn.Node){"b": cordonedNode}, []string{"r2"}},
		{"two nodes are cordoned → both copies", every, served(2, member, member), map[string]func(*longhorn.Node){"a": cordonedNode, "b": cordonedNode}, []string{"r1", "r2"}},
		{"a node takes no copies, and is not cordoned → none", every, served(2, member, member), map[string]func(*longhorn.Node){"b": unschedulable}, nil},
		{"cordoned, under block-if-contains-last-replica → none", settings.DrainBlockIfLastReplica, served(1, all(member, marked)), map[string]func(*longhorn.Node){"a": cordonedNode}, nil},
		{"cordoned, under allow-if-replica-is-stopped → none", settings.DrainAllowIfStopped, served(1, all(member, marked)), map[string]func(*longhorn.Node){"a": cordonedNode}, nil},
		{"cordoned, under always-allow → none", settings.DrainAlwaysAllow, served(1, all(member, marked)), map[string]func(*longhorn.Node){"a": cordonedNode}, nil},

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
			evicted := EvictedOf(tc.in, nodes, tc.policy)
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
	target := func(in Facts) Target {
		in.Evicted = EvictedOf(in, cordoned, settings.DrainBlockForEvictionIfLastReplica)
		return targetFor(in)
	}
	first := target(served(1, all(member, marked)))
	require.NotNil(t, first.Add)
	assert.Equal(t, whyEvict, first.Add.Why)
	then := target(served(1, member, member))
	assert.Equal(t, Decision{fateDrop, whyEvicted}, then.Copies["r1"])
	assert.Equal(t, fateKeep, then.Copies["r2"].Fate)
}

func nodeCondition(kind string, status longhorn.ConditionStatus, reason string) func(*longhorn.Node) {
	return func(n *longhorn.Node) {
		n.Status.Conditions, _ = types.SetCondition(n.Status.Conditions, longhorn.Condition{Type: kind, Status: status, Reason: reason}, now)
	}
}
