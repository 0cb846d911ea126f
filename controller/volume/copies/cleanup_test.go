package copies

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func TestWhichCopyIsGivenUp(t *testing.T) {
	const wo, failed = longhorn.ReplicaModeWO, longhorn.ReplicaModeERR
	stale := 2880 * time.Minute
	unnoted := func(_ *Facts, r *longhorn.Replica) { r.Spec.LastHealthyAt = "" }
	for _, tc := range []struct {
		name      string
		in        Facts
		want      string
		wantAfter time.Duration
		change    func(*Facts)
	}{
		{name: "all are members → none", in: served(2, member, member)},
		{name: "one failed, enough others serve → it", in: served(2, member, member, once(time.Minute)), want: "r3"},
		{name: "two failed, enough others serve → one at a time", in: served(1, member, once(time.Minute), once(time.Minute)), want: "r2"},
		{name: "one failed, too few others serve → none", in: onNodes(3, degradedFor(stale, served(3, member, member, all(once(time.Hour), away)))), wantAfter: stale - time.Hour},
		{name: "one failed longer ago than the user waits for it → it", in: onNodes(3, served(3, member, member, all(once(stale), away))), want: "r3"},
		{
			name: "the same where the user waits for ever → none", in: onNodes(3, served(3, member, member, all(once(100*stale), away))),
			change: func(in *Facts) { in.Volume.Spec.StaleReplicaTimeout = 0 },
		},
		{name: "a new one was never needed → it", in: served(2, member, member, fresh), want: "r3"},
		{name: "it was expelled this moment → not before that is noted", in: served(1, member, all(asked, tried, shows(failed), healthyFor(long)))},
		{name: "it is asked for → none", in: served(1, member, all(once(time.Hour), asked, tried, shows(failed)))},
		{name: "the engine still writes to it → none", in: served(1, member, all(once(time.Hour), shows(wo)))},
		{name: "it is being deleted already → none", in: served(1, member, all(once(time.Hour), beingDeleted))},
		{
			name: "a member that fails, and nobody knows where it is → none",
			in:   served(1, member, all(member, unasked, shows(failed), func(_ *Facts, r *longhorn.Replica) { r.Status.IP = "" })),
		},
		{
			name: "its node was removed, the engine has let go of it, and the recorded epoch still has it → none",
			in:   onNodes(1, degradedFor(0, served(2, member, all(member, nodeLeft, unasked, shows(""))))),
		},
		{name: "a surplus member → it leaves first", in: served(1, member, member)},
		{name: "the other one serves but was never noted to be good → none", in: served(1, all(member, unnoted, healthyFor(long)), once(time.Hour))},
		{name: "the other one is a member and does not serve → none", in: served(1, all(member, shows(failed)), once(stale))},
		{name: "the others are being deleted → none", in: served(1, all(member, beingDeleted), once(stale))},
		{
			name: "the engine's node does not answer → none", in: served(2, member, member, once(stale)),
			change: func(in *Facts) { in.Nodes["a"] = NodeFact{Down: true} },
		},
		{
			name: "the engine speaks of an earlier run → none", in: served(2, member, member, once(stale)),
			change: func(in *Facts) { in.Engine.Status.Generation = 2 },
		},
		{
			name: "the engine is starting → none", in: served(2, member, member, once(stale)),
			change: func(in *Facts) { in.Engine.Status.CurrentState = longhorn.InstanceStateStarting },
		},
		{
			name: "the volume is about to be detached → none", in: served(2, member, member, once(stale)),
			change: func(in *Facts) { in.Volume.Spec.NodeID = "" },
		},
		{
			name: "the volume is detached → none", in: served(2, member, member, once(stale)),
			change: func(in *Facts) {
				in.Volume.Spec.NodeID = ""
				in.Engine.Spec.DesireState, in.Engine.Status.CurrentState = longhorn.DesireStateStopped, longhorn.InstanceStateStopped
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(&tc.in)
			}
			p := plan(tc.in)
			got := ""
			if p.Surplus != nil {
				got = p.Surplus.Replica.Name
			}
			assert.Equal(t, tc.want, got)
			if tc.wantAfter != 0 {
				assert.Equal(t, tc.wantAfter, p.After)
			}
		})
	}
}
