package strandedengine

import (
	"errors"
	"testing"

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

func begin(t *testing.T, objs ...runtime.Object) (*testutil.Harness, *Controller) {
	t.Helper()
	h := testutil.New(t, objs...)
	store := h.Datastore(datastore.Options{})
	c, err := New(Deps{
		Env: h.Env(), Engines: store.Engines, Nodes: store.Nodes, KubeNodes: store.KubeNodes, Volumes: store.Volumes, Owner: "leader",
	})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	return h, c
}

func syncOf(t *testing.T, c *Controller, want error) {
	t.Helper()
	_, err := c.sync(t.Context(), "vol-e-0")
	require.ErrorIs(t, err, want)
}

// running is an engine on node "n" that was last seen running.
func running(changes ...func(*longhorn.Engine)) *longhorn.Engine {
	return build.Engine("vol", append([]func(*longhorn.Engine){func(e *longhorn.Engine) {
		e.Spec.NodeID, e.Spec.DesireState = "n", longhorn.DesireStateRunning
		e.Status.Generation, e.Status.Session, e.Status.CurrentState = 1, "s", longhorn.InstanceStateRunning
		e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"vol-r-1": longhorn.ReplicaModeRW}
		e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"vol-r-1"}}
		types.AddFinalizer(e)
	}}, changes...)...)
}

func readiness(status longhorn.ConditionStatus, reason string) func(*longhorn.Node) {
	return func(n *longhorn.Node) {
		n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: status, Reason: reason}}
	}
}

var down = readiness(longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady)

func TestEngineOfADownNodeIsAssumedStoppedOnlyIfALiveReadSaysThatTheNodeIsDown(t *testing.T) {
	unwanted := func(e *longhorn.Engine) { e.Spec.DesireState = longhorn.DesireStateStopped }
	h, c := begin(t, running(unwanted), build.Node("n", down))

	h.Fail("get", "nodes", errors.New("the API server is away"))
	_, err := c.sync(t.Context(), "vol-e-0")
	assert.Error(t, err, "the failure was swallowed")
	h.ExpectWrites()

	h.Overwrite(build.Node("n", readiness(longhorn.ConditionTrue, ""))) // it is back, the cache is late
	syncOf(t, c, queue.ErrStale)
	h.ExpectWrites()

	h.Overwrite(build.Node("n", down))
	syncOf(t, c, nil)
	h.ExpectWrites("update engines/vol-e-0/status")
	h.ExpectEvents("Warning Stop vol-e-0: engine vol-e-0 is assumed to be stopped: node n does not answer; replicas that know generation 2 reject an engine that may still run there")
	h.CatchUp()
	syncOf(t, c, nil)
	h.ExpectWrites() // once
}

// The Node is deleted with its Kubernetes node. An engine that still runs there is fenced in the same way as on a
// node that does not answer.
func TestEngineOfARemovedNodeIsAssumedStopped(t *testing.T) {
	h, c := begin(t, running(func(e *longhorn.Engine) { e.Spec.DesireState = longhorn.DesireStateStopped }))
	h.Seed(build.Node("n")) // registered again, the cache is late
	syncOf(t, c, queue.ErrStale)
	h.ExpectWrites()

	h, c = begin(t, running(func(e *longhorn.Engine) { e.Spec.DesireState = longhorn.DesireStateStopped }))
	syncOf(t, c, nil)
	h.ExpectWrites("update engines/vol-e-0/status")
	h.CatchUp()
	syncOf(t, c, nil)
	h.ExpectWrites()
}

// A deleted engine of volume "vol" on node "n". The node is gone.
func TestADeletedEngineOfAGoneNodeAndVolume(t *testing.T) {
	stranded := func() *longhorn.Engine {
		return running(func(e *longhorn.Engine) {
			at := metav1.NewTime(testutil.Now)
			e.DeletionTimestamp = &at
			e.Status.CurrentState = longhorn.InstanceStateStopped
		})
	}
	gone := build.Node("n", readiness(longhorn.ConditionFalse, types.ReasonKubernetesNodeGone))
	volume := build.Volume("vol")
	for _, tc := range []struct {
		name   string
		seen   []runtime.Object // in the cache and the API server
		live   []runtime.Object // only in the API server
		want   error
		writes []string
	}{
		{name: "both are gone → removed", writes: []string{"update engines/vol-e-0"}},
		{name: "the Node says that its Kubernetes node is gone → removed", seen: []runtime.Object{gone}, writes: []string{"update engines/vol-e-0"}},
		{name: "the volume exists → its controller removes the node from the spec", seen: []runtime.Object{volume}},
		{name: "the node is down, not gone → the node stops it later", seen: []runtime.Object{build.Node("n", down), build.KubeNode("n")}},
		{name: "the node exists → the node stops it", seen: []runtime.Object{build.ReadyNode("n", "u"), build.KubeNode("n")}},
		{name: "the server has the Kubernetes node → kept", live: []runtime.Object{build.KubeNode("n")}, want: queue.ErrStale},
		{name: "the server has a Node that registered again → kept", live: []runtime.Object{build.ReadyNode("n", "u")}, want: queue.ErrStale},
		{name: "the server has the volume → kept", live: []runtime.Object{volume}, want: queue.ErrStale},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objs := []runtime.Object{stranded()}
			for _, o := range tc.seen {
				objs = append(objs, o.DeepCopyObject())
			}
			h, c := begin(t, objs...)
			for _, o := range tc.live {
				h.Seed(o.DeepCopyObject())
			}
			syncOf(t, c, tc.want)
			h.ExpectWrites(tc.writes...)
		})
	}
	for name, change := range map[string]func(*longhorn.Engine){
		"on another node":         func(e *longhorn.Engine) { e.Spec.NodeID = "another" },
		"on no node":              func(e *longhorn.Engine) { e.Spec.NodeID = "" },
		"running":                 func(e *longhorn.Engine) { e.Status.CurrentState = longhorn.InstanceStateRunning },
		"a later one of the name": func(e *longhorn.Engine) { e.UID = "later" },
		"not deleted, because it was created again": func(e *longhorn.Engine) { e.DeletionTimestamp = nil },
	} {
		t.Run("the server has the engine "+name+" → kept", func(t *testing.T) {
			h, c := begin(t, stranded())
			e := stranded()
			change(e)
			h.Overwrite(e)
			syncOf(t, c, queue.ErrStale)
			h.ExpectWrites()
		})
	}
	t.Run("it still runs → assumed stopped first", func(t *testing.T) {
		e := stranded()
		e.Status.CurrentState = longhorn.InstanceStateRunning
		h, c := begin(t, e)
		syncOf(t, c, nil)
		h.ExpectWrites("update engines/vol-e-0/status")
		h.CatchUp()
		syncOf(t, c, nil)
		h.ExpectWrites("update engines/vol-e-0")
	})
	t.Run("the volume exists → it is checked again later", func(t *testing.T) {
		_, c := begin(t, stranded(), volume.DeepCopy())
		result, err := c.sync(t.Context(), "vol-e-0")
		require.NoError(t, err)
		assert.Equal(t, recheckVolume, result.RequeueAfter)
	})
	t.Run("the finalizer cannot be dropped → no Event", func(t *testing.T) {
		h, c := begin(t, stranded())
		away := errors.New("away")
		h.Fail("update", "engines", away)
		syncOf(t, c, away)
		h.ExpectEvents()
	})
	t.Run("only a foreign finalizer is left → nothing", func(t *testing.T) {
		e := stranded()
		e.Finalizers = []string{"example.com/other"}
		h, c := begin(t, e)
		syncOf(t, c, nil)
		h.ExpectWrites()
		h.ExpectEvents()
	})
	t.Run("the server does not answer → kept", func(t *testing.T) {
		h, c := begin(t, stranded())
		h.Fail("get", "volumes", errors.New("away"))
		_, err := c.sync(t.Context(), "vol-e-0")
		require.Error(t, err)
		h.ExpectWrites()
	})
}

func TestTheEventAboutAnEngineAssumedStoppedFollowsTheWrite(t *testing.T) {
	h, c := begin(t, running(func(e *longhorn.Engine) { e.Spec.DesireState = longhorn.DesireStateStopped }), build.Node("n", down))
	away := errors.New("away")
	h.Fail("update", "engines", away)
	syncOf(t, c, away)
	h.ExpectEvents()
	syncOf(t, c, nil)
	assert.Len(t, h.Recorder.Take(), 1)
	h.Writes()
	syncOf(t, c, queue.ErrStale) // the cache is late
	h.ExpectWrites()
}

// An engine that was deleted before it was ever on a node.
func TestTheFinalizerOfADeletedEngineOnNoNodeIsDropped(t *testing.T) {
	deleted := running(func(e *longhorn.Engine) {
		at := metav1.NewTime(testutil.Now)
		e.DeletionTimestamp, e.Spec.NodeID, e.Status.CurrentState = &at, "", longhorn.InstanceStateStopped
	})
	h, c := begin(t, deleted.DeepCopy())
	syncOf(t, c, nil)
	h.ExpectWrites("update engines/vol-e-0")

	t.Run("it is gone, the cache is late → nothing", func(t *testing.T) {
		h, c := begin(t, deleted.DeepCopy())
		engines := h.Longhorn.LonghornV1beta2().Engines(types.Namespace)
		live, err := engines.Get(t.Context(), "vol-e-0", metav1.GetOptions{})
		require.NoError(t, err)
		live.Finalizers = nil
		_, err = engines.Update(t.Context(), live, metav1.UpdateOptions{})
		require.NoError(t, err)
		h.Writes()
		syncOf(t, c, nil)
		h.ExpectWrites()
	})
	t.Run("the server does not answer → kept", func(t *testing.T) {
		h, c := begin(t, deleted.DeepCopy())
		away := errors.New("away")
		h.Fail("get", "engines", away)
		syncOf(t, c, away)
		h.ExpectWrites()
	})
}

func TestANodeThatIsDownRequeuesItsEngines(t *testing.T) {
	_, c := begin(t, running())
	assert.Equal(t, []string{"vol-e-0"}, c.ofNode(build.Node("n", down)))
	assert.Empty(t, c.ofNode(build.Node("another", down)))
	assert.Empty(t, c.ofNode(build.ReadyNode("n", "u")))
}
