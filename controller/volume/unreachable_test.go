package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestAVolumeSaysThatAllItsGoodCopiesAreOnNodesThatAreDown(t *testing.T) {
	const (
		onlyA = "node a, which has the volume's only healthy replica, does not answer; the volume starts automatically when the node returns"
		onlyB = "node b, which has the volume's only healthy replica, does not answer; the volume starts automatically when the node returns"
		both  = "nodes a, b, which have the volume's only healthy replicas, do not answer; the volume starts automatically when they return"
	)
	unknown := func(in Input) Input {
		in.Engine.Status.CurrentState = longhorn.InstanceStateUnknown
		return in
	}
	said := func(message string, in Input) Input {
		in.Volume.Status.Conditions = append(in.Volume.Status.Conditions,
			longhorn.Condition{Type: types.ConditionCopiesUnreachable, Status: longhorn.ConditionTrue, Reason: types.ReasonNodeDown, Message: message})
		return in
	}
	unwanted := func(in Input) Input {
		in.Volume.Spec.NodeID = ""
		return in
	}
	for _, tc := range []struct {
		name    string
		in      Input
		message string // "": no condition
		said    longhorn.ConditionStatus
		silent  bool // no Event
	}{
		{name: "strict-local, its node is down → said, though the volume stays attached", in: unknown(strictOn("a", served(1, all(member, away)))), message: onlyA},
		{name: "it was said → no second Event", in: said(onlyA, unknown(served(1, all(member, away)))), message: onlyA, silent: true},
		{name: "the node is back → it ends", in: said(onlyA, served(1, member)), said: longhorn.ConditionFalse},
		{name: "used on another node, which runs → said, before the engine notices", in: served(1, all(member, onNode("b"), away)), message: onlyB},
		{name: "to be attached, its node is down → said", in: resting(1, served(1, all(member, away))), message: onlyA},
		{name: "the engine's node is down, another copy is at hand → nothing is said", in: unknown(served(2, all(member, away), member))},
		{name: "all nodes are down → all are named", in: unknown(served(2, all(member, away), all(member, away))), message: both},
		{name: "two copies on one node → it is named once", in: unknown(served(2, all(member, away), all(member, onNode("a"), away))), message: onlyA},
		{name: "the other one is no member → does not count", in: unknown(served(2, all(member, away), once(long))), message: onlyA},
		{name: "the other one has failed → does not count", in: unknown(served(2, all(member, away), all(member, broken("DataMissing")))), message: onlyA},
		{name: "the other one is being deleted → does not count", in: unknown(served(2, all(member, away), all(member, beingDeleted))), message: onlyA},
		{name: "the other one's node is gone → it is not waited for", in: unknown(served(2, all(member, away), all(member, nodeGone))), message: onlyA},
		{name: "it had failed before its node went down → nothing is promised", in: unknown(served(1, all(member, broken("DataMissing"), away)))},
		{name: "its node is gone → nothing is promised", in: unknown(served(1, all(member, nodeGone)))},
		{name: "the leader found its node removed → nothing is promised", in: unknown(served(1, all(member, nodeLeft, away)))},
		{name: "wanted nowhere any more → it ends, for it would not start", in: said(onlyA, unwanted(unknown(served(1, all(member, away))))), said: longhorn.ConditionFalse},
		{name: "it has no data yet → nothing is said", in: unused("a", all(fresh, away))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.in)
			want := tc.said
			if want == "" {
				want = longhorn.ConditionUnknown
			}
			var events []string
			if tc.message != "" {
				want = longhorn.ConditionTrue
				if !tc.silent {
					events = []string{"Warning volume vol: " + tc.message}
				}
			}
			c := types.FindCondition(p.Status.Conditions, types.ConditionCopiesUnreachable)
			assert.Equal(t, want, c.Status)
			assert.Equal(t, tc.message, c.Message)
			var got []string
			for _, e := range p.Events {
				if e.Reason == types.ConditionCopiesUnreachable {
					got = append(got, e.Type+" "+e.Message)
				}
			}
			assert.Equal(t, events, got)
		})
	}
}
