package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestADetachedVolumeSaysThatItLacksCopies(t *testing.T) {
	const (
		down   = "healthy replicas: 1 of the 2 requested (replica vol-r-2 on node b: the node does not answer); missing replicas are rebuilt when the volume is attached"
		detach = "Warning volume vol is detached: "
	)
	said := func(message string) []longhorn.Condition {
		return []longhorn.Condition{{Type: types.ConditionCopiesMissing, Status: longhorn.ConditionTrue, Reason: "VolumeDetached", Message: message}}
	}
	nodeDown := func(in *Input) { in.Nodes = map[string]copies.NodeFact{"b": {Down: true}} }
	for _, tc := range []struct {
		name    string
		world   world
		change  func(*Input)
		status  longhorn.ConditionStatus
		message string
		events  []string
	}{
		{name: "all are there → nothing is said", status: longhorn.ConditionUnknown},
		{name: "a node is down → that is said", change: nodeDown, status: longhorn.ConditionTrue, message: down, events: []string{detach + down}},
		{
			name: "it was said → no second Event", status: longhorn.ConditionTrue, message: down,
			change: func(in *Input) { nodeDown(in); in.Volume.Status.Conditions = said(down) },
		},
		{
			name: "the node is back → it ends", status: longhorn.ConditionFalse,
			change: func(in *Input) { in.Volume.Status.Conditions = said(down) },
		},
		{
			name: "a replica was deleted → that is said", status: longhorn.ConditionTrue,
			change:  func(in *Input) { in.Replicas = in.Replicas[:1] },
			message: "healthy replicas: 1 of the 2 requested (replica vol-r-2 no longer exists); missing replicas are rebuilt when the volume is attached",
			events:  []string{detach + "healthy replicas: 1 of the 2 requested (replica vol-r-2 no longer exists); missing replicas are rebuilt when the volume is attached"},
		},
		{
			name: "a replica is being deleted, another was not rebuilt → both are said, and no promise", status: longhorn.ConditionTrue,
			change: func(in *Input) {
				in.Replicas[0].DeletionTimestamp = &metav1.Time{Time: now}
				in.Engine.Status.Epoch.Members = []string{"vol-r-1"}
			},
			message: "healthy replicas: 0 of the 2 requested (replica vol-r-1 on node a: it is being deleted; replica vol-r-2 on node b: it is not rebuilt yet)",
			events:  []string{detach + "healthy replicas: 0 of the 2 requested (replica vol-r-1 on node a: it is being deleted; replica vol-r-2 on node b: it is not rebuilt yet)"},
		},
		{
			name: "its node came back without its disk → that is said", status: longhorn.ConditionTrue,
			change:  func(in *Input) { in.LacksDisk = map[string]bool{"vol-r-2": true} },
			message: "healthy replicas: 1 of the 2 requested (replica vol-r-2 on node b: the node came back without its disk); missing replicas are rebuilt when the volume is attached",
			events:  []string{detach + "healthy replicas: 1 of the 2 requested (replica vol-r-2 on node b: the node came back without its disk); missing replicas are rebuilt when the volume is attached"},
		},
		{
			name: "more are asked for → that is said", status: longhorn.ConditionTrue,
			change:  func(in *Input) { in.Volume.Spec.NumberOfReplicas = 3 },
			message: "healthy replicas: 2 of the 3 requested; missing replicas are rebuilt when the volume is attached",
			events:  []string{detach + "healthy replicas: 2 of the 3 requested; missing replicas are rebuilt when the volume is attached"},
		},
		{
			name: "one too many, and that one is lost → nothing is said", status: longhorn.ConditionUnknown,
			change: func(in *Input) { nodeDown(in); in.Volume.Spec.NumberOfReplicas = 1 },
		},
		{
			name: "the volume is to be attached → it ends, for its robustness tells", world: world{want: "a"}, status: longhorn.ConditionFalse,
			change: func(in *Input) { nodeDown(in); in.Volume.Status.Conditions = said(down) },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.world == (world{}) {
				tc.world.replicaDesire = longhorn.DesireStateStopped // it is detached
			}
			in := tc.world.input()
			if tc.change != nil {
				tc.change(&in)
			}
			p := plan(in)
			c := types.FindCondition(p.Status.Conditions, types.ConditionCopiesMissing)
			assert.Equal(t, tc.status, c.Status)
			assert.Equal(t, tc.message, c.Message)
			var events []string
			for _, e := range p.Events {
				if e.Reason == types.ConditionCopiesMissing {
					events = append(events, e.Type+" "+e.Message)
				}
			}
			assert.Equal(t, tc.events, events)
		})
	}
}
