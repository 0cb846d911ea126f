package relocation

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// replica is on disk "u", on node "a" in /var/lib/longhorn according to its object.
func replica(changes ...func(*longhorn.Replica)) *longhorn.Replica {
	return build.PlacedReplica("r", "vol", "a", "u", changes...)
}

func is(state longhorn.InstanceState) func(*longhorn.Replica) {
	return func(r *longhorn.Replica) { r.Status.CurrentState = state }
}

func failed(reason string) func(*longhorn.Replica) {
	return func(r *longhorn.Replica) {
		r.Status.CurrentState = longhorn.InstanceStateError
		r.Status.Conditions = []longhorn.Condition{{Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: reason}}
	}
}

func wanted(r *longhorn.Replica) { r.Spec.DesireState = longhorn.DesireStateRunning }

func deleted(r *longhorn.Replica) {
	at := metav1.NewTime(testutil.Now)
	r.DeletionTimestamp = &at
}

func TestWhichReplicasMove(t *testing.T) {
	const (
		running, starting, stopping = longhorn.InstanceStateRunning, longhorn.InstanceStateStarting, longhorn.InstanceStateStopping
		stopped, unknown            = longhorn.InstanceStateStopped, longhorn.InstanceStateUnknown
	)
	home, away := Place{"a", "/var/lib/longhorn"}, Place{"b", "/mnt/u"}
	for _, tc := range []struct {
		name    string
		places  []Place
		replica *longhorn.Replica
		served  bool
		want    Place // the zero Place: it is not moved
	}{
		{name: "the disk is where the replica says → nothing", places: []Place{home}, replica: replica(is(stopped))},
		{name: "the disk is on another node, stopped → moves", places: []Place{away}, replica: replica(is(stopped)), want: away},
		{name: "the disk is at another path, stopped → moves", places: []Place{{"a", "/mnt/u"}}, replica: replica(is(stopped)), want: Place{"a", "/mnt/u"}},
		{name: "never started → moves", places: []Place{away}, replica: replica(), want: away},
		{name: "wanted, its disk missing where it is said to be → moves", places: []Place{away}, replica: replica(wanted, failed(types.ReasonDiskNotFound)), want: away},
		{name: "failed in any way, by its node's word → moves, though an engine has not let it go yet", places: []Place{away}, replica: replica(wanted, failed("DiskUnmounted")), served: true, want: away},
		{name: "its node is gone → moves", places: []Place{away}, replica: replica(wanted, failed(types.ReasonNodeGone)), want: away},
		{name: "its node is gone, an engine has it all the same → waits", places: []Place{away}, replica: replica(wanted, failed(types.ReasonNodeGone)), served: true},
		{name: "its node is gone and is back with the disk at another path → moves", places: []Place{{"a", "/mnt/u"}}, replica: replica(failed(types.ReasonNodeGone)), want: Place{"a", "/mnt/u"}},
		{name: "being deleted → moves, so that its data can be removed", places: []Place{away}, replica: replica(deleted, is(stopped)), want: away},
		{name: "runs → waits", places: []Place{away}, replica: replica(wanted, is(running))},
		{name: "runs at the old path of the same node → waits", places: []Place{{"a", "/mnt/u"}}, replica: replica(wanted, is(running))},
		{name: "starts → waits", places: []Place{away}, replica: replica(wanted, is(starting))},
		{name: "stops → waits", places: []Place{away}, replica: replica(is(stopping))},
		{name: "unknown → waits", places: []Place{away}, replica: replica(is(unknown))},
		{name: "the disk is ready nowhere → nothing", replica: replica(is(stopped))},
		{name: "the disk is ready at two places, one of them its own → nothing", places: []Place{home, away}, replica: replica(is(stopped))},
		{name: "the disk is ready at two places, neither its own → nothing", places: []Place{away, {"c", "/mnt/u"}}, replica: replica(is(stopped))},
		{name: "has no place yet → nothing", places: []Place{away}, replica: build.Replica("r", "vol")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := tc.replica.DeepCopy()
			moves := plan(Input{Places: tc.places, Copies: []Copy{{tc.replica, tc.served}}})
			assert.Equal(t, before.Spec, tc.replica.Spec, "what was looked at was changed")
			if tc.want == (Place{}) {
				assert.Empty(t, moves)
				return
			}
			require.Len(t, moves, 1)
			r := moves[0].Replica
			got := Place{r.Spec.NodeID, r.Spec.DiskPath}
			assert.Equal(t, tc.want, got)
			assert.Equal(t, tc.want.Node, r.Labels[types.LabelNode])
			assert.Equal(t, "u", r.Labels[types.LabelDiskUUID])
			assert.Equal(t, home, moves[0].From)
			r.Spec.NodeID, r.Spec.DiskPath = before.Spec.NodeID, before.Spec.DiskPath
			assert.Equal(t, before.Spec, r.Spec, "more than the place was changed")
		})
	}
}

func TestWhereADiskIs(t *testing.T) {
	at := func(name, path string, changes ...func(*longhorn.Node)) *longhorn.Node {
		return build.ReadyNode(name, "u", append([]func(*longhorn.Node){build.WithDisk("disk-1", path), build.WithDiskStatus("disk-1", "u")}, changes...)...)
	}
	status := func(change func(*longhorn.DiskStatus)) func(*longhorn.Node) {
		return func(n *longhorn.Node) {
			s := n.Status.DiskStatus["disk-1"]
			change(&s)
			n.Status.DiskStatus["disk-1"] = s
		}
	}
	notReady := status(func(s *longhorn.DiskStatus) { s.Conditions = nil })
	for _, tc := range []struct {
		name  string
		nodes []*longhorn.Node
		want  []Place
	}{
		{"ready on one node → there", []*longhorn.Node{at("a", "/d"), build.ReadyNode("b", "another")}, []Place{{"a", "/d"}}},
		{"recorded on two, ready on one → there", []*longhorn.Node{at("b", "/d"), at("a", "/d", notReady)}, []Place{{"b", "/d"}}},
		{"ready on two → both", []*longhorn.Node{at("b", "/d"), at("a", "/e")}, []Place{{"a", "/e"}, {"b", "/d"}}},
		{"recorded by two entries of a node, one of them ready → there", []*longhorn.Node{at("a", "/d", notReady, build.WithDisk("disk-2", "/e"), build.WithDiskStatus("disk-2", "u"))}, []Place{{"a", "/e"}}},
		{"not ready → nowhere", []*longhorn.Node{at("a", "/d", notReady)}, nil},
		{"taken out of the spec → nowhere", []*longhorn.Node{at("a", "/d", func(n *longhorn.Node) { n.Spec.Disks = nil })}, nil},
		{"its path was changed and not looked at yet → nowhere", []*longhorn.Node{at("a", "/d", build.WithDisk("disk-1", "/e"))}, nil},
		{"its node does not answer → nowhere", []*longhorn.Node{at("a", "/d", func(n *longhorn.Node) {
			n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: types.ReasonKubernetesNodeNotReady}}
		})}, nil},
		{"its daemon is away for a moment → there", []*longhorn.Node{at("a", "/d", func(n *longhorn.Node) {
			n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: types.ReasonManagerPodDown}}
		})}, []Place{{"a", "/d"}}},
		{"its node is being deleted → nowhere", []*longhorn.Node{at("a", "/d", func(n *longhorn.Node) {
			at := metav1.NewTime(testutil.Now)
			n.DeletionTimestamp = &at
		})}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, placesOf(tc.nodes, "u"))
		})
	}
}
