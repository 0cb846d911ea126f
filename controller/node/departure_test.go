package node

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func newDeparture(t *testing.T, objs ...runtime.Object) (*testutil.Harness, *datastore.Datastore, func(want error)) {
	t.Helper()
	h := testutil.New(t, objs...)
	d := h.Datastore(datastore.Options{})
	c, err := NewDeparture(DepartureDeps{
		Nodes: d.Nodes, KubeNodes: d.KubeNodes, InstanceManagers: d.InstanceManagers,
		Env: h.Env(),
	})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	return h, d, func(want error) {
		t.Helper()
		_, err := c.sync(t.Context(), "n")
		if apierrors.IsNotFound(err) {
			err = nil // the queue treats the error like that
		}
		require.ErrorIs(t, err, want)
	}
}

func goneNode() *longhorn.Node {
	return build.ReadyNode("n", "u", because(types.ReasonKubernetesNodeGone))
}

func TestANodeGoesWithItsKubernetesNode(t *testing.T) {
	im := types.InstanceManagerName("n")
	h, _, sync := newDeparture(t, goneNode(), build.InstanceManager("n"), build.PlacedReplica("r", "vol", "n", "u"))
	sync(nil)
	h.ExpectWrites("delete nodes/n")
	h.ExpectEvents("Warning NodeGone n: Kubernetes node n was removed, so its Longhorn node was deleted; the replicas on its disks are kept, and are used again if the disks return")
	sync(nil) // the cache is late: deleting it again finds nothing
	h.ExpectWrites()
	h.CatchUp()
	sync(nil)
	h.ExpectWrites("delete instancemanagers/" + im)
	h.CatchUp()
	sync(nil)
	h.ExpectWrites()
	h.ExpectEvents()
	_, err := h.Longhorn.LonghornV1beta2().Replicas(types.Namespace).Get(t.Context(), "r", metav1.GetOptions{})
	assert.NoError(t, err, "the replica was not kept")
}

func TestANodeStaysUnlessTheServerSaysThatItIsGone(t *testing.T) {
	t.Run("the cache lacks the Kubernetes node, the server has it → nothing is deleted", func(t *testing.T) {
		h, d, sync := newDeparture(t, build.KubeNode("n"), goneNode())
		require.NoError(t, d.KubeNodes.Replace(nil, "1000"))
		sync(queue.ErrStale)
		h.ExpectWrites()
	})
	t.Run("a Kubernetes node of that name with another UID has joined meanwhile → nothing is deleted", func(t *testing.T) {
		h, _, sync := newDeparture(t, goneNode(), build.InstanceManager("n"))
		another := build.KubeNode("n")
		another.UID = "another"
		h.Seed(another)
		sync(queue.ErrStale)
		h.ExpectWrites()
		h.CatchUp()
		sync(nil)
		h.ExpectWrites()
	})
	t.Run("the Node has registered again meanwhile → nothing is deleted", func(t *testing.T) {
		h, _, sync := newDeparture(t, goneNode())
		another := goneNode()
		another.UID = "another"
		h.Overwrite(another)
		sync(queue.ErrStale)
		h.ExpectWrites()
	})
	t.Run("the server does not say that the Node is gone → nothing is deleted", func(t *testing.T) {
		h, _, sync := newDeparture(t, goneNode())
		h.Overwrite(build.ReadyNode("n", "u"))
		sync(queue.ErrStale)
		h.ExpectWrites()
	})
	t.Run("the Node is being changed at this moment → left for the next time", func(t *testing.T) {
		h, _, sync := newDeparture(t, goneNode())
		conflict := apierrors.NewConflict(longhorn.Resource("nodes"), "n", errors.New("precondition failed"))
		h.Fail("delete", "nodes", conflict)
		sync(conflict)
		h.ExpectEvents()
	})
	t.Run("the server does not answer → nothing is deleted", func(t *testing.T) {
		h, _, sync := newDeparture(t, goneNode())
		away := errors.New("away")
		h.Fail("get", "nodes", away)
		sync(away)
		h.ExpectWrites()
	})
}

func TestAnInstanceManagerStaysWhereThereIsANodeOfEitherKind(t *testing.T) {
	t.Run("the server has the Kubernetes node → kept", func(t *testing.T) {
		h, d, sync := newDeparture(t, build.KubeNode("n"), build.InstanceManager("n"))
		require.NoError(t, d.KubeNodes.Replace(nil, "1000"))
		sync(queue.ErrStale)
		h.ExpectWrites()
	})
	t.Run("the server has the Node → kept", func(t *testing.T) {
		h, _, sync := newDeparture(t, build.InstanceManager("n"))
		h.Seed(build.Node("n"))
		sync(queue.ErrStale)
		h.ExpectWrites()
	})
	t.Run("the user deleted the Node, the Kubernetes node is there → kept", func(t *testing.T) {
		h, _, sync := newDeparture(t, build.KubeNode("n"), build.InstanceManager("n"))
		sync(nil)
		h.ExpectWrites()
	})
}

// A daemon that still runs on a node that was removed must not bring its Node back.
func TestANodeIsNotRegisteredWithoutItsKubernetesNode(t *testing.T) {
	f := newFixture(t)
	f.disks.records["/var/lib/longhorn"] = found(withoutFile)
	_, err := f.sync(t.Context(), "node-1")
	require.False(t, err != nil && !apierrors.IsNotFound(err), err)
	f.ExpectWrites()
	assert.Empty(t, f.disks.done, "on disk")
}
