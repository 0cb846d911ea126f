package instancemanager

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var name = types.InstanceManagerName("node-1")

// fixture is a daemon's controller on node-1; process is the state that its data plane reports.
type fixture struct {
	*testutil.Harness
	*Controller
	store   *datastore.Datastore
	process *Snapshot
}

func (f *fixture) Snapshot() (Snapshot, bool) {
	if f.process == nil {
		return Snapshot{}, false
	}
	return *f.process, true
}

func newFixture(t *testing.T, objs ...runtime.Object) *fixture {
	h := testutil.New(t, objs...)
	d := h.Datastore(datastore.Options{Node: "node-1"})
	f := &fixture{Harness: h, store: d}
	c, err := New(Deps{
		Node: "node-1", Pod: PodOptions{Image: image},
		Nodes: d.Nodes, InstanceManagers: d.InstanceManagers, Pods: d.Pods, Engines: d.Engines, Replicas: d.Replicas,
		DataPlane: f, Env: h.Env(), Setting: d.Setting, Settings: d.Settings, KubeNodes: d.KubeNodes,
	})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	f.Controller = c
	return f
}

func (f *fixture) mustSync() {
	f.T.Helper()
	_, err := f.sync(f.T.Context(), name)
	require.NoError(f.T, err)
}

func TestFromNothingToRunning(t *testing.T) {
	f := newFixture(t, build.Node("node-1"))
	f.mustSync()
	f.ExpectWrites("create instancemanagers/" + name)
	_, err := f.sync(t.Context(), name)
	assert.ErrorIs(t, err, queue.ErrStale)

	f.CatchUp()
	f.mustSync()
	f.ExpectWrites("update instancemanagers/"+name+"/status", "create pods/"+name)
	f.ExpectEvents(
		"Warning NotFound "+name+": its pod does not exist",
		"Normal Create "+name+": Created pod "+name+" with image example/longhorn:1")
	_, err = f.sync(t.Context(), name)
	assert.ErrorIs(t, err, queue.ErrStale)

	f.CatchUp()
	m, err := f.store.InstanceManagers.Get(name)
	require.NoError(t, err)
	// A user's deletion of a Node must not delete a data plane in use.
	assert.Empty(t, m.OwnerReferences)
	assert.Equal(t, "node-1", m.Spec.NodeID)

	// The kubelet starts it, and it answers.
	p, err := f.Kube.CoreV1().Pods(types.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"}
	_, err = f.Kube.CoreV1().Pods(types.Namespace).UpdateStatus(t.Context(), p, metav1.UpdateOptions{})
	require.NoError(t, err)
	f.process = serving(0, 0)
	f.Writes()
	f.CatchUp()
	f.mustSync()
	f.ExpectWrites("update instancemanagers/" + name + "/status")
	f.ExpectEvents("Normal PodReady " + name + ": its pod runs and answers")

	// At rest, the controller writes nothing. It also writes nothing when the daemon was restarted and has no answer
	// yet.
	f.CatchUp()
	f.mustSync()
	f.process = nil
	f.mustSync()
	f.ExpectWrites()
	f.ExpectEvents()
}

// If a Node is deleted by mistake, the garbage collector must not delete the data plane.
func TestAnOwnerFromAnEarlierVersionIsTakenAway(t *testing.T) {
	manager := running("10.0.0.1", "process-1")
	manager.OwnerReferences = []metav1.OwnerReference{{APIVersion: "longhorn.io/v1beta2", Kind: "Node", Name: "node-1", UID: "uid-node-1"}}
	f := newFixture(t, build.Node("node-1"), manager, pod())
	f.process = serving(0, 0)
	f.mustSync()
	f.ExpectWrites("update instancemanagers/" + name)
	f.CatchUp()
	m, err := f.store.InstanceManagers.Get(name)
	require.NoError(t, err)
	assert.Empty(t, m.OwnerReferences)
	assert.Equal(t, "process-1", m.Status.UUID)
}

func TestWithoutANodeNothingIsMade(t *testing.T) {
	f := newFixture(t)
	_, err := f.sync(t.Context(), name)
	assert.True(t, apierrors.IsNotFound(err), "sync = %v", err)
	f.ExpectWrites()
}

func TestANewImageReplacesAnIdlePodOnly(t *testing.T) {
	old := pod(ofImage("old"))
	manager := running("10.0.0.1", "process-1")
	manager.Status.Conditions = []longhorn.Condition{{
		Type: "PodReady", Status: "True", Reason: "Running", Message: "its pod runs and answers",
	}}
	manager.Spec.Image = "old"
	replica := build.PlacedReplica("r", "vol", "node-1", "disk", func(r *longhorn.Replica) {
		r.Spec.DesireState = longhorn.DesireStateRunning
	})
	f := newFixture(t, build.Node("node-1"), manager, old, replica)
	f.process = serving(0, 0)
	f.mustSync()
	f.ExpectWrites("update instancemanagers/" + name)
	f.CatchUp()
	f.mustSync()
	f.ExpectWrites() // a replica must run here

	replica, _ = f.store.Replicas.Get("r")
	replica.Spec.DesireState = longhorn.DesireStateStopped
	_, err := f.store.Replicas.Update(t.Context(), replica)
	require.NoError(t, err)
	f.Writes()
	f.CatchUp()
	f.mustSync()
	f.ExpectWrites("delete pods/" + name)
	f.ExpectEvents("Normal Delete " + name + ": Deleted pod " + name + " to replace it: its image is old, not example/longhorn:1, and it serves nothing")
	_, err = f.sync(t.Context(), name)
	assert.ErrorIs(t, err, queue.ErrStale)
	f.CatchUp()
	f.mustSync()
	f.ExpectWrites("update instancemanagers/"+name+"/status", "create pods/"+name)
}

func TestAPodThatChangedSinceIsNotDeleted(t *testing.T) {
	f := newFixture(t, build.Node("node-1"), stopped(), pod(pending, ofImage("old")))
	p, err := f.Kube.CoreV1().Pods(types.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning}
	_, err = f.Kube.CoreV1().Pods(types.Namespace).UpdateStatus(t.Context(), p, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = f.sync(t.Context(), name)
	assert.True(t, apierrors.IsConflict(err), "sync = %v, want a conflict", err)
	_, err = f.Kube.CoreV1().Pods(types.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	assert.NoError(t, err, "the pod that began to run is gone")
}

func TestAStatusThatCannotBeWrittenStopsTheRest(t *testing.T) {
	f := newFixture(t, build.Node("node-1"), running("10.0.0.1", "process-1"))
	f.Fail("update", "instancemanagers", errors.New("timeout"), errors.New("timeout"))
	for range 2 {
		_, err := f.sync(t.Context(), name)
		assert.Error(t, err)
	}
	f.ExpectWrites("update instancemanagers/"+name+"/status", "update instancemanagers/"+name+"/status")
	f.ExpectEvents()
	f.mustSync()
	f.ExpectWrites("update instancemanagers/"+name+"/status", "create pods/"+name)
}
