package strandedreplica

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, objs ...runtime.Object) (*testutil.Harness, *Controller) {
	t.Helper()
	h := testutil.New(t, append(objs, build.ReadyNode("n", "disk"))...)
	store := h.Datastore(datastore.Options{})
	c, err := New(Deps{
		Env: h.Env(), Replicas: store.Replicas, Nodes: store.Nodes, KubeNodes: store.KubeNodes,
		Volumes: store.Volumes, Engines: store.Engines, Owner: "leader",
	})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	return h, c
}

func syncOnce(t *testing.T, c *Controller, want error) {
	t.Helper()
	_, err := c.sync(t.Context(), "r")
	require.ErrorIs(t, err, want)
}

func placed(changes ...func(*longhorn.Replica)) *longhorn.Replica {
	return build.PlacedReplica("r", "vol", "n", "disk", append(changes, func(r *longhorn.Replica) { types.AddFinalizer(r) })...)
}

func wanted(r *longhorn.Replica)  { r.Spec.DesireState = longhorn.DesireStateRunning }
func created(r *longhorn.Replica) { r.Status.DirectoryCreated = true }
func gone(r *longhorn.Replica)    { r.DeletionTimestamp = &metav1.Time{Time: testutil.Now} }

// onM places a replica on node "m" and on a disk that only "m" could have.
func onM(r *longhorn.Replica) { r.Spec.NodeID, r.Spec.DiskID = "m", "disk-m" }

func nodeM(status longhorn.ConditionStatus, reason string) *longhorn.Node {
	return build.Node("m", func(n *longhorn.Node) {
		n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: status, Reason: reason}}
	})
}

var lostM = nodeM(longhorn.ConditionFalse, types.ReasonKubernetesNodeGone)

func TestAReplicaFailsWithItsNode(t *testing.T) {
	t.Run("the node is gone → failed, one Event, its object is kept", func(t *testing.T) {
		h, c := start(t, placed(created, wanted, onM), lostM)
		syncOnce(t, c, nil)
		h.ExpectWrites("update replicas/r/status")
		h.ExpectEvents("Warning NodeGone r: Kubernetes node m was removed; the replica is used again when its disk disk-m returns, there or on another node")
		h.CatchUp()
		syncOnce(t, c, nil)
		h.ExpectWrites()
		h.ExpectEvents()
		r, err := c.Replicas.GetRO("r")
		require.NoError(t, err)
		assert.Equal(t, longhorn.InstanceStateError, r.Status.CurrentState)
		assert.Nil(t, r.DeletionTimestamp)
		assert.True(t, types.HasFinalizer(r))
	})
	t.Run("it cannot be written → no Event", func(t *testing.T) {
		h, c := start(t, placed(created, wanted, onM), lostM)
		away := errors.New("away")
		h.Fail("update", "replicas", away)
		syncOnce(t, c, away)
		h.ExpectEvents()
	})
	t.Run("it was written, the cache is late → not written again", func(t *testing.T) {
		h, c := start(t, placed(created, wanted, onM), lostM)
		syncOnce(t, c, nil)
		h.Writes()
		syncOnce(t, c, queue.ErrStale)
		h.ExpectWrites()
	})
	t.Run("the Node went with it → the same", func(t *testing.T) {
		h, c := start(t, placed(created, wanted, onM))
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
			h, c := start(t, append(objs, placed(created, wanted, onM))...)
			syncOnce(t, c, nil)
			h.ExpectWrites()
			h.ExpectEvents()
		})
	}
	t.Run("the cache says gone, the server has the Kubernetes node → left alone", func(t *testing.T) {
		h, c := start(t, placed(created, wanted, onM), lostM)
		h.Seed(build.KubeNode("m"))
		syncOnce(t, c, queue.ErrStale)
		h.ExpectWrites()
	})
	t.Run("the cache says gone, the server has a Node that is not → left alone", func(t *testing.T) {
		h, c := start(t, placed(created, wanted, onM), lostM)
		h.Overwrite(nodeM(longhorn.ConditionTrue, ""))
		syncOnce(t, c, queue.ErrStale)
		h.ExpectWrites()
	})
}

func TestDeletedReplicaThatNoNodeCanReach(t *testing.T) {
	away := nodeM(longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady)
	withDisk := build.ReadyNode("elsewhere", "disk-m", func(n *longhorn.Node) {
		s := n.Status.DiskStatus["disk-1"]
		s.Conditions = nil // a disk that is not ready counts as present
		n.Status.DiskStatus["disk-1"] = s
	})
	const left = "the data of replica r is left behind in /var/lib/longhorn/replicas/vol-r on its disk disk-m"
	t.Run("its node is away → waits for the node", func(t *testing.T) {
		h, c := start(t, placed(created, gone, onM), away, build.KubeNode("m"))
		syncOnce(t, c, nil)
		h.ExpectWrites()
	})
	t.Run("its node is gone → removed by force, an Event names its data", func(t *testing.T) {
		h, c := start(t, placed(created, gone, onM), lostM)
		syncOnce(t, c, nil)
		h.ExpectWrites("update replicas/r")
		h.ExpectEvents("Warning Delete r: node m is gone: " + left)
	})
	t.Run("its node is gone, another has its disk → kept, to be moved there", func(t *testing.T) {
		h, c := start(t, placed(created, gone, onM), lostM, withDisk)
		syncOnce(t, c, nil)
		h.ExpectWrites("update replicas/r/status")
	})
	t.Run("the cache says gone, the server has the Kubernetes node → waits", func(t *testing.T) {
		h, c := start(t, placed(created, gone, onM), lostM)
		h.Seed(build.KubeNode("m"))
		syncOnce(t, c, queue.ErrStale)
		h.ExpectWrites()
	})
	t.Run("the cache says gone, the server says away → waits", func(t *testing.T) {
		h, c := start(t, placed(created, gone, onM), lostM)
		h.Overwrite(away)
		syncOnce(t, c, queue.ErrStale)
		h.ExpectWrites()
	})
	t.Run("the server does not answer → waits", func(t *testing.T) {
		h, c := start(t, placed(created, gone, onM), lostM)
		h.Fail("get", "nodes", errors.New("away"))
		_, err := c.sync(t.Context(), "r")
		assert.Error(t, err, "the failure was swallowed")
		h.ExpectWrites()
	})
	t.Run("no node has its disk, 10 minutes have passed → removed by force, with an Event", func(t *testing.T) {
		h, c := start(t, placed(created, gone, onM), nodeM(longhorn.ConditionTrue, ""), build.KubeNode("m"))
		syncOnce(t, c, nil)
		h.ExpectWrites()
		h.Clock.Step(10 * time.Minute)
		syncOnce(t, c, nil)
		h.ExpectWrites("update replicas/r")
		h.ExpectEvents("Warning Delete r: no node has disk disk-m: " + left)
	})
	t.Run("no node has its disk in the cache, one has in the server → waits", func(t *testing.T) {
		h, c := start(t, placed(created, gone, onM), nodeM(longhorn.ConditionTrue, ""), build.KubeNode("m"))
		h.Clock.Step(time.Hour)
		h.Seed(withDisk)
		syncOnce(t, c, queue.ErrStale)
		h.ExpectWrites()
	})
	for name, change := range map[string]func(*longhorn.Replica){
		"was moved meanwhile":             func(r *longhorn.Replica) { r.Spec.NodeID = "elsewhere" },
		"has another disk meanwhile":      func(r *longhorn.Replica) { r.Spec.DiskID = "another" },
		"is a later one of the name":      func(r *longhorn.Replica) { r.UID = "later" },
		"is one that was not deleted yet": func(r *longhorn.Replica) { r.DeletionTimestamp = nil },
	} {
		t.Run("it "+name+" → waits", func(t *testing.T) {
			h, c := start(t, placed(created, gone, onM), lostM)
			h.Overwrite(placed(created, gone, onM, change))
			syncOnce(t, c, queue.ErrStale)
			h.ExpectWrites()
		})
	}
	for request, resource := range map[string]string{"list": "nodes", "get": "replicas"} {
		t.Run("the server does not "+request+" "+resource+" → waits", func(t *testing.T) {
			h, c := start(t, placed(created, gone, onM), lostM)
			away := errors.New("away")
			h.Fail(request, resource, away)
			syncOnce(t, c, away)
			h.ExpectWrites()
			h.ExpectEvents()
		})
	}
	t.Run("the finalizer cannot be dropped → no Event", func(t *testing.T) {
		h, c := start(t, placed(created, gone, onM), lostM)
		away := errors.New("away")
		h.Fail("update", "replicas", away)
		syncOnce(t, c, away)
		h.ExpectEvents()
	})
	t.Run("only a foreign finalizer is left → nothing", func(t *testing.T) {
		r := placed(created, gone, onM)
		r.Finalizers = []string{"example.com/other"}
		h, c := start(t, r, lostM)
		syncOnce(t, c, nil)
		h.ExpectWrites()
	})
	t.Run("its node is back without the disk → removed by force at once", func(t *testing.T) {
		at := func(second int64) metav1.Time { return metav1.Unix(second, 0) }
		back := build.ReadyNode("m", "new", func(n *longhorn.Node) { n.CreationTimestamp = at(200) })
		h, c := start(t, placed(created, gone, onM, func(r *longhorn.Replica) { r.CreationTimestamp = at(100) }), back, build.KubeNode("m"))
		syncOnce(t, c, nil)
		h.ExpectWrites("update replicas/r")
		h.ExpectEvents("Warning Delete r: no node has disk disk-m: " + left)
	})
	t.Run("the record of the volume is gone, and no other copy is left → kept", func(t *testing.T) {
		h, c := start(t, placed(created, gone, onM, func(r *longhorn.Replica) {
			r.OwnerReferences = []metav1.OwnerReference{{Kind: "Volume", Name: "vol", UID: "uid-vol"}}
		}), lostM, build.Volume("vol"))
		syncOnce(t, c, nil)
		h.ExpectWrites("update replicas/r/status")
	})
	t.Run("it is the last healthy replica → kept, it has failed, and two Events say so", func(t *testing.T) {
		made := func(r *longhorn.Replica) {
			r.OwnerReferences = []metav1.OwnerReference{{Kind: "Volume", Name: "vol", UID: "uid-vol"}}
		}
		record := build.Engine("vol", func(e *longhorn.Engine) {
			e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"r"}}
		})
		h, c := start(t, placed(created, made, gone, onM), lostM, build.Volume("vol"), record)
		syncOnce(t, c, nil)
		h.ExpectWrites("update replicas/r/status")
		h.ExpectEvents("Warning FailedDeleting r: the replica was deleted, but is the last healthy replica of volume vol: it stays and serves until another replica is healthy; to delete the data, delete the volume",
			"Warning NodeGone r: Kubernetes node m was removed; the replica is used again when its disk disk-m returns, there or on another node")
		h.CatchUp()
		syncOnce(t, c, nil)
		h.ExpectWrites()
	})
	for _, resource := range []string{"volumes", "engines"} {
		t.Run("whether it is the last healthy replica cannot be read from "+resource+" → kept", func(t *testing.T) {
			h, c := start(t, placed(created, gone, onM), lostM, build.Volume("vol"))
			away := errors.New("away")
			h.Fail("get", resource, away)
			syncOnce(t, c, away)
			h.ExpectWrites()
		})
	}
}

func TestTheRemovalOfAKubernetesNodeRequeuesItsReplicas(t *testing.T) {
	_, c := start(t, placed(created, onM))
	assert.Equal(t, []string{"r"}, c.onNode("m"))
}

func TestADeletedReplicaIsRemovedByForceWhenItsDiskIsTakenOutOfTheSpec(t *testing.T) {
	withDisk := build.ReadyNode("m", "disk-m")
	h, c := start(t, placed(created, gone, onM), withDisk, build.KubeNode("m"))
	h.Clock.Step(time.Hour)
	syncOnce(t, c, nil)
	h.ExpectWrites()

	without := withDisk.DeepCopy()
	without.Spec.Disks, without.Status.DiskStatus = nil, nil
	h.Overwrite(without)
	h.CatchUp()
	require.Equal(t, []string{"r"}, c.whenNode(withDisk, without))
	syncOnce(t, c, nil)
	h.ExpectWrites("update replicas/r")
}

func TestWhichNodesRecordADisk(t *testing.T) {
	nodes := []*longhorn.Node{build.ReadyNode("a", "disk-a"), build.ReadyNode("b", "")}
	require.True(t, isRecorded(nodes, "disk-a"))
	require.False(t, isRecorded(nodes, "disk-c"))
	require.False(t, isRecorded(nodes, ""), "a disk whose UUID is not known is not that of a replica without a disk")
	require.False(t, isRecorded(nil, "disk-a"))
}
