package replica

import (
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestPlanOfAReplicaWhoseNodeOrDiskIsGone(t *testing.T) {
	const failed = longhorn.InstanceStateError
	running := func(r *longhorn.Replica) {
		r.Status.CurrentState, r.Status.IP = longhorn.InstanceStateRunning, "10.0.0.7"
	}
	deletedFor := func(d time.Duration) option {
		return func(r *longhorn.Replica) { r.DeletionTimestamp = &metav1.Time{Time: now.Add(-d)} }
	}
	open := Observed{Phase: types.PhaseRunning, Process: "p"}
	for _, tc := range []struct {
		name       string
		in         Input
		wantAction Action
		wantState  longhorn.InstanceState
		wantReason string
		wantAfter  time.Duration
	}{
		{name: "its node is gone while it ran → it has failed", in: Input{Leader: true, NodeGone: true, Replica: replica(created, wanted, running)}, wantAction: ActionMark, wantState: failed, wantReason: types.ReasonNodeGone},
		{name: "its node is gone while it was stopped → it has failed", in: Input{Leader: true, NodeGone: true, Replica: replica(created)}, wantAction: ActionMark, wantState: failed, wantReason: types.ReasonNodeGone},
		{name: "its node is gone and that was said → nothing", in: Input{Leader: true, NodeGone: true, Replica: replica(created, failedAt(now, types.ReasonNodeGone))}, wantState: failed, wantReason: types.ReasonNodeGone},
		{name: "its node is gone, it had failed otherwise → that its node is gone is said", in: Input{Leader: true, NodeGone: true, Replica: replica(created, failedAt(now, "MetadataTorn"))}, wantAction: ActionMark, wantState: failed, wantReason: types.ReasonNodeGone},
		{name: "it has no node → nothing", in: Input{Leader: true, NodeGone: true, Replica: replica(placeless)}},
		{name: "its node is there → nothing by the leader", in: Input{Leader: true, Observed: Observed{Phase: types.PhaseUnknown}, Replica: replica(created, running)}, wantState: longhorn.InstanceStateRunning},
		{name: "deleted, its node and its disk are gone → left", in: Input{Leader: true, NodeGone: true, Replica: replica(created, deleted)}, wantAction: ActionLeave},
		{name: "deleted, its node is gone, its disk is on another → waits to be moved", in: Input{Leader: true, NodeGone: true, DiskRecorded: true, Replica: replica(created, deleted)}, wantAction: ActionMark, wantState: failed, wantReason: types.ReasonNodeGone},
		{name: "deleted, no node has its disk, for less than 10 minutes → waits for the disk", in: Input{Leader: true, Replica: replica(created, deletedFor(4*time.Minute))}, wantAfter: 6 * time.Minute},
		{name: "deleted, no node has its disk, for 10 minutes → left", in: Input{Leader: true, Replica: replica(created, deletedFor(10*time.Minute))}, wantAction: ActionLeave},
		{name: "deleted, its node is back without its disk → left at once", in: Input{Leader: true, Stranded: true, Replica: replica(created, deletedFor(time.Second))}, wantAction: ActionLeave},
		{name: "not deleted, its node is back without its disk → kept", in: Input{Leader: true, Stranded: true, Observed: Observed{Phase: types.PhaseUnknown}, Replica: replica(created)}},
		{name: "deleted, a node has its disk → kept for that node, however long", in: Input{Leader: true, DiskRecorded: true, Observed: Observed{Phase: types.PhaseUnknown}, Replica: replica(created, deletedFor(time.Hour))}},
		{name: "not deleted, no node has its disk → kept", in: Input{Leader: true, Observed: Observed{Phase: types.PhaseUnknown}, Replica: replica(created)}},
		{name: "the daemon's node is not registered, open → nothing is done or said", in: Input{Silent: true, Observed: open, Disk: goodDisk, Replica: replica(created, wanted, failedAt(now, types.ReasonNodeGone))}, wantState: failed, wantReason: types.ReasonNodeGone},
		{name: "the daemon's node is not registered, deleted → the data and the finalizer stay", in: Input{Silent: true, Observed: Observed{Phase: types.PhaseAbsent}, Disk: goodDisk, Replica: replica(created, deleted)}},
		{name: "a daemon, deleted, its disk unknown for hours → not its to leave", in: Input{Observed: Observed{Phase: types.PhaseAbsent}, Replica: replica(created, deletedFor(5*time.Hour))}, wantState: longhorn.InstanceStateStopped, wantReason: types.ReasonDiskNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.in.Owner, tc.in.Now = "n", now
			p := plan(tc.in)
			c := types.FindCondition(p.Status.Conditions, types.ConditionInstanceCreation)
			if p.Action != tc.wantAction || p.Status.CurrentState != tc.wantState || p.After != tc.wantAfter || c.Reason != tc.wantReason {
				t.Errorf("action %q state %q after %s reason %q", p.Action, p.Status.CurrentState, p.After, c.Reason)
			}
			if p.Action == ActionMark && p.Status.IP != "" {
				t.Error("an address is left")
			}
		})
	}
}

// on m: a replica of node "m" and of a disk that only "m" could have.
func onM(r *longhorn.Replica) { r.Spec.NodeID, r.Spec.DiskID = "m", "disk-m" }

func nodeM(status longhorn.ConditionStatus, reason string) *longhorn.Node {
	return build.Node("m", func(n *longhorn.Node) {
		n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: status, Reason: reason}}
	})
}

var lostM = nodeM(longhorn.ConditionFalse, types.ReasonKubernetesNodeGone)

func TestAReplicaFailsWithItsNode(t *testing.T) {
	t.Run("the node is gone → failed, told once, its object kept", func(t *testing.T) {
		h, c := startAt(t, "", &fakePlane{}, placed(created, wanted, onM), lostM)
		syncOnce(t, c, nil)
		h.ExpectWrites("update replicas/r/status")
		h.ExpectEvents("Warning NodeGone r: Kubernetes node m was removed; the replica is used again when its disk disk-m returns, there or on another node")
		h.CatchUp()
		syncOnce(t, c, nil)
		h.ExpectWrites()
		h.ExpectEvents()
		r, err := c.Replicas.GetRO("r")
		if err != nil || r.Status.CurrentState != longhorn.InstanceStateError || r.DeletionTimestamp != nil || !types.HasFinalizer(r) {
			t.Errorf("the replica is %+v, %v", r, err)
		}
	})
	t.Run("the Node went with it → the same", func(t *testing.T) {
		h, c := startAt(t, "", &fakePlane{}, placed(created, wanted, onM))
		syncOnce(t, c, nil)
		h.ExpectWrites("update replicas/r/status")
	})
	for name, objs := range map[string][]runtime.Object{
		"the user deleted the Node of a Kubernetes node that is there":    {build.KubeNode("m")},
		"the Kubernetes node is back, the condition of the Node is old":   {build.KubeNode("m"), lostM},
		"the node does not answer":                                        {build.KubeNode("m"), nodeM(longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady)},
		"the node is registered, its Kubernetes node is not in the cache": {nodeM(longhorn.ConditionTrue, "")},
	} {
		t.Run(name+" → left alone", func(t *testing.T) {
			h, c := startAt(t, "", &fakePlane{}, append(objs, placed(created, wanted, onM))...)
			syncOnce(t, c, nil)
			h.ExpectWrites()
			h.ExpectEvents()
		})
	}
	t.Run("the cache says gone, the server has the Kubernetes node → left alone", func(t *testing.T) {
		h, c := startAt(t, "", &fakePlane{}, placed(created, wanted, onM), lostM)
		h.Seed(build.KubeNode("m"))
		syncOnce(t, c, queue.ErrStale)
		h.ExpectWrites()
	})
	t.Run("the cache says gone, the server has a Node that is not → left alone", func(t *testing.T) {
		h, c := startAt(t, "", &fakePlane{}, placed(created, wanted, onM), lostM)
		h.Overwrite(nodeM(longhorn.ConditionTrue, ""))
		syncOnce(t, c, queue.ErrStale)
		h.ExpectWrites()
	})
}

// A daemon that still runs on a node that was removed must not argue with the leader.
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

	// It is back: the daemon's word holds again.
	h.Overwrite(build.ReadyNode("n", "disk"))
	h.CatchUp()
	syncOnce(t, c, nil)
	h.ExpectWrites("update replicas/r/status")
	h.ExpectEvents("Normal Start r: replica r runs on node n")
}

// A node that is back under its name with an empty disk: nothing is made, and nothing loops.
func TestANodeIsBackWithoutTheDisk(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent, Process: "p"}}
	h, c := start(t, plane, placed(created, wanted, failedAt(testutil.Now, types.ReasonNodeGone), func(r *longhorn.Replica) { r.Spec.DiskID = "old" }))
	syncOnce(t, c, nil)
	h.ExpectWrites("update replicas/r/status")
	h.CatchUp()
	result, err := c.sync(t.Context(), "r")
	if err != nil || result.RequeueAfter != 30*time.Second {
		t.Errorf("again after %s, %v", result.RequeueAfter, err)
	}
	h.ExpectWrites()
	plane.expect(t)
	r, _ := c.Replicas.GetRO("r")
	if reason := types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation); reason.Reason != types.ReasonDiskNotFound || reason.Message != "node n has no disk with UUID old" {
		t.Errorf("said %+v", reason)
	}
}

func TestDeletedReplicaThatNobodyCanReach(t *testing.T) {
	away := nodeM(longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady)
	withDisk := build.ReadyNode("elsewhere", "disk-m", func(n *longhorn.Node) {
		s := n.Status.DiskStatus["disk-1"]
		s.Conditions = nil // not ready is enough to be waited for
		n.Status.DiskStatus["disk-1"] = s
	})
	const left = "the data of replica r is left behind in /var/lib/longhorn/replicas/vol-r on its disk disk-m"
	t.Run("its node is away → waits for the node", func(t *testing.T) {
		h, c := startAt(t, "", &fakePlane{}, placed(created, gone, onM), away, build.KubeNode("m"))
		syncOnce(t, c, nil)
		h.ExpectWrites()
	})
	t.Run("its node is gone → forgotten, and what is left behind is told", func(t *testing.T) {
		h, c := startAt(t, "", &fakePlane{}, placed(created, gone, onM), lostM)
		syncOnce(t, c, nil)
		h.ExpectWrites("update replicas/r")
		h.ExpectEvents("Warning Delete r: node m is gone: " + left)
	})
	t.Run("its node is gone, another has its disk → kept, to be moved there", func(t *testing.T) {
		h, c := startAt(t, "", &fakePlane{}, placed(created, gone, onM), lostM, withDisk)
		syncOnce(t, c, nil)
		h.ExpectWrites("update replicas/r/status")
	})
	t.Run("the cache says gone, the server has the Kubernetes node → waits", func(t *testing.T) {
		h, c := startAt(t, "", &fakePlane{}, placed(created, gone, onM), lostM)
		h.Seed(build.KubeNode("m"))
		syncOnce(t, c, queue.ErrStale)
		h.ExpectWrites()
	})
	t.Run("the cache says gone, the server says away → waits", func(t *testing.T) {
		h, c := startAt(t, "", &fakePlane{}, placed(created, gone, onM), lostM)
		h.Overwrite(away)
		syncOnce(t, c, queue.ErrStale)
		h.ExpectWrites()
	})
	t.Run("the server does not answer → waits", func(t *testing.T) {
		h, c := startAt(t, "", &fakePlane{}, placed(created, gone, onM), lostM)
		h.Fail("get", "nodes", errors.New("away"))
		if _, err := c.sync(t.Context(), "r"); err == nil {
			t.Error("the failure was swallowed")
		}
		h.ExpectWrites()
	})
	t.Run("no node has its disk, 10 minutes have passed → forgotten, and told", func(t *testing.T) {
		h, c := startAt(t, "", &fakePlane{}, placed(created, gone, onM), nodeM(longhorn.ConditionTrue, ""), build.KubeNode("m"))
		syncOnce(t, c, nil)
		h.ExpectWrites()
		h.Clock.Step(10 * time.Minute)
		syncOnce(t, c, nil)
		h.ExpectWrites("update replicas/r")
		h.ExpectEvents("Warning Delete r: no node has disk disk-m: " + left)
	})
	t.Run("no node has its disk in the cache, one has in the server → waits", func(t *testing.T) {
		h, c := startAt(t, "", &fakePlane{}, placed(created, gone, onM), nodeM(longhorn.ConditionTrue, ""), build.KubeNode("m"))
		h.Clock.Step(time.Hour)
		h.Seed(withDisk)
		syncOnce(t, c, queue.ErrStale)
		h.ExpectWrites()
	})
	t.Run("it was moved meanwhile → waits", func(t *testing.T) {
		h, c := startAt(t, "", &fakePlane{}, placed(created, gone, onM), lostM)
		h.Overwrite(placed(created, gone, onM, func(r *longhorn.Replica) { r.Spec.NodeID = "elsewhere" }))
		syncOnce(t, c, queue.ErrStale)
		h.ExpectWrites()
	})
}

func TestTheRemovalOfAKubernetesNodeWakesItsReplicas(t *testing.T) {
	_, c := startAt(t, "", &fakePlane{}, placed(created, onM))
	if got := c.onNode("m"); !slices.Equal(got, []string{"r"}) {
		t.Errorf("woken: %v", got)
	}
	if got := c.ofGoneNode(nodeM(longhorn.ConditionTrue, "")); got != nil {
		t.Errorf("a node that is there wakes %v", got)
	}
}
