package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestPlanOfADaemonWhoseNodeOrDiskIsGone(t *testing.T) {
	deletedFor := func(d time.Duration) option {
		return func(r *longhorn.Replica) { r.DeletionTimestamp = &metav1.Time{Time: now.Add(-d)} }
	}
	open := Observed{Phase: types.PhaseRunning, Process: "p"}
	for _, tc := range []struct {
		name       string
		in         Input
		wantState  longhorn.InstanceState
		wantReason string
	}{
		{name: "the daemon's node is not registered, open → nothing is done or said", in: Input{Silent: true, Observed: open, Disk: goodDisk, Replica: replica(created, wanted, failedAt(now, types.ReasonNodeGone))}, wantState: longhorn.InstanceStateError, wantReason: types.ReasonNodeGone},
		{name: "the daemon's node is not registered, deleted → the data and the finalizer stay", in: Input{Silent: true, Observed: Observed{Phase: types.PhaseAbsent}, Disk: goodDisk, Replica: replica(created, deleted)}},
		{name: "a daemon, deleted, its disk unknown for hours → not its to leave", in: Input{Observed: Observed{Phase: types.PhaseAbsent}, Replica: replica(created, deletedFor(5*time.Hour))}, wantState: longhorn.InstanceStateStopped, wantReason: types.ReasonDiskNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.in.Owner, tc.in.Now = "n", now
			p := plan(tc.in)
			c := types.FindCondition(p.Status.Conditions, types.ConditionInstanceCreation)
			assert.Empty(t, p.Action)
			assert.Equal(t, tc.wantState, p.Status.CurrentState)
			assert.Zero(t, p.After)
			assert.Equal(t, tc.wantReason, c.Reason)
		})
	}
}

// A daemon that still runs on a removed node must not overwrite the leader's status.
func TestADaemonWithoutANodeSaysNothing(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseRunning, Process: "p"}}
	h, c := start(t, plane, placed(created, wanted, failedAt(testutil.Now, types.ReasonNodeGone)))
	h.Overwrite(build.ReadyNode("n", "disk", func(n *longhorn.Node) {
		n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: types.ReasonKubernetesNodeGone}}
	}))
	h.CatchUp()
	syncOnce(t, c, nil)
	h.ExpectWrites()
	plane.expect(t)

	// The node is back: the daemon's reports count again.
	h.Overwrite(build.ReadyNode("n", "disk"))
	h.CatchUp()
	syncOnce(t, c, nil)
	h.ExpectWrites("update replicas/r/status")
	h.ExpectEvents("Normal Start r: replica r runs on node n")
}

// A node is back under its name with an empty disk: the controller creates nothing, and does not loop.
func TestANodeIsBackWithoutTheDisk(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent, Process: "p"}}
	h, c := start(t, plane, placed(created, wanted, failedAt(testutil.Now, types.ReasonNodeGone), func(r *longhorn.Replica) { r.Spec.DiskID = "old" }))
	syncOnce(t, c, nil)
	h.ExpectWrites("update replicas/r/status")
	h.CatchUp()
	result, err := c.sync(t.Context(), "r")
	require.NoError(t, err)
	assert.Equal(t, 30*time.Second, result.RequeueAfter)
	h.ExpectWrites()
	plane.expect(t)
	r, _ := c.Replicas.GetRO("r")
	reason := types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation)
	assert.Equal(t, types.ReasonDiskNotFound, reason.Reason)
	assert.Equal(t, "node n has no disk with UUID old", reason.Message)
}
