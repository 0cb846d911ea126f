package replica

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func made(r *longhorn.Replica) {
	r.Status.DirectoryCreated = true
	r.OwnerReferences = []metav1.OwnerReference{{Kind: "Volume", Name: "vol", UID: "uid-vol"}}
}

func recorded(members ...string) *longhorn.Engine {
	return build.Engine("vol", func(e *longhorn.Engine) {
		e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: members}
	})
}

// TestTheDataOfTheLastCopyStays: a user bypassed the policies and deleted it.
func TestTheDataOfTheLastCopyStays(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent, Process: "p"}}
	h, c := start(t, plane, placed(made, gone), build.Volume("vol"), recorded("r"))
	syncOnce(t, c, nil)
	plane.expect(t)
	h.ExpectWrites("update replicas/r/status")
	h.ExpectEvents("Warning FailedDeleting r: the replica was deleted, but is the last healthy replica of volume vol: it stays and serves until another replica is healthy; " +
		"to delete the data, delete the volume")
	h.CatchUp()
	syncOnce(t, c, nil)
	h.ExpectWrites() // at rest, it writes nothing

	deleted := build.Volume("vol", func(v *longhorn.Volume) { v.DeletionTimestamp = &metav1.Time{Time: testutil.Now} })
	h.Overwrite(deleted)
	syncOnce(t, c, nil)
	plane.expect(t, "remove "+directory+" uid-r")
}

// TestAKeptReplicaServes: a deletion that bypassed the policies does not interrupt a running volume.
func TestAKeptReplicaServes(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseRunning, Process: "p"}}
	_, c := start(t, plane, placed(made, gone, wanted), build.Volume("vol"), recorded("r"))
	syncOnce(t, c, nil)
	plane.expect(t)
}

// TestNothingIsRemovedUnseen: the objects that decide cannot be read.
func TestNothingIsRemovedUnseen(t *testing.T) {
	for _, resource := range []string{"volumes", "engines", "nodes", "replicas"} {
		t.Run(resource, func(t *testing.T) {
			plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent, Process: "p"}}
			h, c := start(t, plane, placed(made, gone), build.Volume("vol"), recorded("r"))
			verb := "get"
			if resource == "replicas" {
				verb = "list"
			}
			broken := errors.New("no answer")
			h.Fail(verb, resource, broken)
			_, err := c.sync(t.Context(), "r")
			require.ErrorIs(t, err, broken)
			assert.NotErrorIs(t, err, queue.ErrStale)
			plane.expect(t)
			h.ExpectWrites()
		})
	}
}

// Two removals run at the same time. Each was allowed because the other replica was good. Both replicas stay, each
// on its node.
func TestOfTwoDeletedReplicasBothStay(t *testing.T) {
	for _, here := range []string{"r", "s"} {
		t.Run(here, func(t *testing.T) {
			plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent, Process: "p"}}
			there := map[string]string{"r": "s", "s": "r"}[here]
			h, c := start(t, plane, build.Volume("vol"), recorded("r", "s"), build.ReadyNode("m", "disk-m"),
				build.PlacedReplica(here, "vol", "n", "disk", made, gone, func(r *longhorn.Replica) { types.AddFinalizer(r) }),
				build.PlacedReplica(there, "vol", "m", "disk-m", made, gone, func(r *longhorn.Replica) { types.AddFinalizer(r) }))
			_, err := c.sync(t.Context(), here)
			require.NoError(t, err)
			plane.expect(t)
			h.ExpectWrites("update replicas/" + here + "/status")
		})
	}
}

// The other replica's node was removed, and no status shows that yet.
func TestAReplicaStaysWhenTheNodeOfTheOtherIsGone(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent, Process: "p"}}
	h, c := start(t, plane, placed(made, gone), build.Volume("vol"), recorded("r", "s"), build.PlacedReplica("s", "vol", "m", "disk-m", made))
	syncOnce(t, c, nil)
	plane.expect(t)
	h.ExpectWrites("update replicas/r/status")
}

// meanwhile is a store that changes something else just after its status write.
type meanwhile struct {
	Store
	change func(written *longhorn.Replica)
}

func (m meanwhile) UpdateStatus(ctx context.Context, r *longhorn.Replica) (*longhorn.Replica, error) {
	written, err := m.Store.UpdateStatus(ctx, r)
	if err == nil {
		m.change(written.DeepCopy())
	}
	return written, err
}

// The removal was planned while another copy was good. That copy fails before the data is removed.
func TestAReplicaThatHasBecomeTheLastCopyIsNotRemoved(t *testing.T) {
	other := func(changes ...func(*longhorn.Replica)) *longhorn.Replica {
		return build.PlacedReplica("s", "vol", "m", "disk-m", append(changes, made)...)
	}
	down := build.ReadyNode("m", "disk-m", func(n *longhorn.Node) {
		n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: types.ReasonKubernetesNodeNotReady}}
	})
	for name, now := range map[string]runtime.Object{
		"it fails":                 other(func(r *longhorn.Replica) { r.Spec.FailedAt = "2030-01-01T00:00:00Z" }),
		"it is deleted":            other(gone),
		"its node does not answer": down,
	} {
		t.Run(name, func(t *testing.T) {
			plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent, Process: "p"}}
			h, c := start(t, plane, placed(made, gone), build.Volume("vol"), recorded("r", "s"), other(), build.ReadyNode("m", "disk-m"))
			c.Replicas = meanwhile{c.Replicas, func(*longhorn.Replica) { h.Overwrite(now) }}
			syncOnce(t, c, queue.ErrStale)
			plane.expect(t)
			h.ExpectWrites("update replicas/r/status")
		})
	}
}

// The plan is based on the cache. The state on the API server after the status write decides.
func TestNothingIsMadeOrRemovedThatTheServerShowsOtherwise(t *testing.T) {
	for name, change := range map[string]func(*longhorn.Replica){
		"a later one of the name": func(r *longhorn.Replica) { r.UID = "later" },
		"on another node":         func(r *longhorn.Replica) { r.Spec.NodeID = "another" },
	} {
		t.Run("it is "+name+" → not made", func(t *testing.T) { expectUntouched(t, placed(wanted), change) })
		t.Run("it is "+name+" → not removed", func(t *testing.T) { expectUntouched(t, placed(created, gone), change) })
	}
	t.Run("it is deleted → not made", func(t *testing.T) { expectUntouched(t, placed(wanted), gone) })
	t.Run("its directory was made before → not made again", func(t *testing.T) { expectUntouched(t, placed(wanted), created) })
	t.Run("it is not deleted → not removed", func(t *testing.T) {
		expectUntouched(t, placed(created, gone), func(r *longhorn.Replica) { r.DeletionTimestamp = nil })
	})
	t.Run("it has another directory → not removed", func(t *testing.T) {
		expectUntouched(t, placed(created, gone), func(r *longhorn.Replica) { r.Spec.DataDirectoryName = "another" })
	})
}

func expectUntouched(t *testing.T, r *longhorn.Replica, change func(*longhorn.Replica)) {
	t.Helper()
	plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent, Process: "p"}}
	h, c := start(t, plane, r)
	c.Replicas = meanwhile{c.Replicas, func(written *longhorn.Replica) {
		change(written)
		h.Overwrite(written)
	}}
	syncOnce(t, c, queue.ErrStale)
	plane.expect(t)
	h.ExpectWrites("update replicas/r/status")
}
