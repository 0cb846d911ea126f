package upgrade

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakePlane is a data plane of version 1 until it is replaced.
type fakePlane struct {
	version  string
	silent   bool
	err      error
	replaced int
	deadline bool // whether the last replacement had one
}

func (f *fakePlane) Process() (Snapshot, bool) {
	return Snapshot{Process: "p", Version: f.version, Replaceable: true}, !f.silent
}

func (f *fakePlane) Replace(ctx context.Context) error {
	_, f.deadline = ctx.Deadline()
	f.replaced++
	if f.err == nil {
		f.version = "2"
	}
	return f.err
}

var im = types.InstanceManagerName("node-1")

// begin creates the controller of node-1, which has a replica of volume vol. The volume is attached to node-2.
func begin(t *testing.T, robustness longhorn.VolumeRobustness, objs ...runtime.Object) (*testutil.Harness, *Controller, *fakePlane) {
	t.Helper()
	plane := &fakePlane{version: "1"}
	h := testutil.New(t, append(objs,
		build.Volume("vol", func(v *longhorn.Volume) {
			v.Status.State, v.Status.Robustness, v.Status.CurrentNodeID = longhorn.VolumeStateAttached, robustness, "node-2"
		}),
		build.Engine("vol", func(e *longhorn.Engine) {
			e.Spec.NodeID = "node-2"
			e.Status.CurrentState = longhorn.InstanceStateRunning
			e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"vol-r-1", "vol-r-2"}}
			e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"vol-r-1": longhorn.ReplicaModeRW, "vol-r-2": longhorn.ReplicaModeRW}
		}),
		build.PlacedReplica("vol-r-1", "vol", "node-1", "disk-1"),
		build.RunningInstanceManager("node-1", "10.0.0.1", "p"))...)
	store := h.Datastore(datastore.Options{Node: "node-1"})
	c := New(Deps{
		Env: h.Env(), Node: "node-1", Version: "2",
		Engines: store.Engines, Replicas: store.Replicas, Volumes: store.Volumes, InstanceManagers: store.InstanceManagers,
		Leases: store.Leases, DataPlane: plane,
	})
	h.EndWithTest(c.Run)
	return h, c, plane
}

func syncOf(t *testing.T, c *Controller) {
	t.Helper()
	_, err := c.sync(t.Context(), "node-1")
	require.NoError(t, err)
}

func holder(t *testing.T, h *testutil.Harness) string {
	t.Helper()
	l, err := h.Kube.CoordinationV1().Leases(types.Namespace).Get(t.Context(), types.UpgradeLeaseName, metav1.GetOptions{})
	require.NoError(t, err)
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

func volumeIs(h *testutil.Harness, robustness longhorn.VolumeRobustness) {
	h.Overwrite(build.Volume("vol", func(v *longhorn.Volume) {
		v.Status.State, v.Status.Robustness, v.Status.CurrentNodeID = longhorn.VolumeStateAttached, robustness, "node-2"
	}))
}

// engineNotices makes the engine record that the replica of node-1 went away and was rebuilt.
func engineNotices(t *testing.T, h *testutil.Harness) {
	t.Helper()
	engines := h.Longhorn.LonghornV1beta2().Engines(types.Namespace)
	e, err := engines.Get(t.Context(), types.EngineName("vol"), metav1.GetOptions{})
	require.NoError(t, err)
	e.Status.Epoch.Counter += 2
	h.Overwrite(e)
}

func TestAnOldProcessIsReplacedInItsTurn(t *testing.T) {
	h, c, plane := begin(t, longhorn.VolumeRobustnessHealthy)
	syncOf(t, c)
	require.Equal(t, 1, plane.replaced)
	require.Equal(t, "node-1", holder(t, h))
	h.ExpectEvents("Normal Upgraded " + im + ": the data plane was upgraded to version 2 from version 1; the new process has taken over the devices in use")

	syncOf(t, c) // the engine's findings are not written yet
	assert.Equal(t, "node-1", holder(t, h), "the turn was given back at once")
	h.Clock.Step(settle)
	syncOf(t, c) // the daemon of the engine's node is away: nothing seems to have changed
	assert.Equal(t, "node-1", holder(t, h), "the turn was given back before the engine elsewhere noticed")
	engineNotices(t, h)
	volumeIs(h, longhorn.VolumeRobustnessDegraded) // its replica here is being rebuilt
	syncOf(t, c)
	assert.Equal(t, "node-1", holder(t, h), "the turn was given back while a volume is degraded")
	volumeIs(h, longhorn.VolumeRobustnessHealthy)
	syncOf(t, c)
	assert.Empty(t, holder(t, h), "the turn was not given back")
	h.Writes()
	syncOf(t, c)
	h.ExpectWrites() // at rest nothing is written
	assert.Equal(t, 1, plane.replaced)
}

// The irreversible action: replacing a process that serves a replica which its volume cannot lose.
func TestAProcessIsNotReplacedWhileAVolumeCouldBeHurt(t *testing.T) {
	h, c, plane := begin(t, longhorn.VolumeRobustnessDegraded)
	syncOf(t, c)
	syncOf(t, c)
	assert.Zero(t, plane.replaced, "replaced while a volume was degraded")
	h.ExpectEvents("Normal UpgradeWaits " + im + ": the data plane stays at version 1 for now: volume vol is degraded")
	h.ExpectWrites()
}

// The previous node released its turn, and then one of its volumes lost a replica.
func TestAProcessIsNotReplacedIfAVolumeIsHurtWhileTheTurnIsTaken(t *testing.T) {
	h, c, plane := begin(t, longhorn.VolumeRobustnessHealthy)
	h.Kube.PrependReactor("create", "leases", func(kubetesting.Action) (bool, runtime.Object, error) {
		volumeIs(h, longhorn.VolumeRobustnessDegraded)
		return false, nil, nil
	})
	syncOf(t, c)
	assert.Zero(t, plane.replaced, "replaced while a volume was degraded")
	assert.Empty(t, holder(t, h), "the turn is kept from nodes that could use it")
}

// A volume that stays degraded does not block the turn of the other nodes forever.
func TestTheTurnEndsInTime(t *testing.T) {
	h, c, _ := begin(t, longhorn.VolumeRobustnessHealthy)
	syncOf(t, c)
	volumeIs(h, longhorn.VolumeRobustnessDegraded)
	h.Clock.Step(leaseTime - time.Second)
	syncOf(t, c)
	assert.Equal(t, "node-1", holder(t, h), "given back while a volume is degraded")
	h.Clock.Step(time.Second)
	syncOf(t, c)
	assert.Empty(t, holder(t, h), "kept after its time")
}

// Two nodes saw their volumes healthy at the same time.
func TestAProcessIsNotReplacedWhileAnotherNodeHasItsTurn(t *testing.T) {
	h, c, plane := begin(t, longhorn.VolumeRobustnessHealthy)
	other := New(c.deps)
	h.EndWithTest(other.Run)
	other.deps.Node = "node-2"
	got, err := other.take(t.Context())
	require.NoError(t, err)
	require.Equal(t, "node-2", got)
	syncOf(t, c)
	assert.Zero(t, plane.replaced)
	assert.Equal(t, "node-2", holder(t, h))
	h.ExpectEvents("Normal UpgradeWaits " + im + ": the data plane stays at version 1 for now: another node is being upgraded")
}

// A daemon that was rolled back during a replacement finds that its predecessor's replacement is still under way.
func TestAReplacementThatCannotBeginYetIsNoFailure(t *testing.T) {
	h, c, plane := begin(t, longhorn.VolumeRobustnessHealthy)
	plane.err = ErrBusy
	r, err := c.sync(t.Context(), "node-1")
	require.NoError(t, err)
	assert.Equal(t, again, r.RequeueAfter)
	assert.Equal(t, "node-1", holder(t, h))
	h.ExpectEvents()
	plane.err = nil
	syncOf(t, c)
	h.ExpectEvents("Normal Upgraded " + im + ": the data plane was upgraded to version 2 from version 1; the new process has taken over the devices in use")
}

func TestAFailedReplacementIsToldAndNotRepeatedSoon(t *testing.T) {
	h, c, plane := begin(t, longhorn.VolumeRobustnessHealthy)
	plane.err = errors.New("it did not come up")
	syncOf(t, c)
	h.ExpectEvents("Warning UpgradeFailed " + im + ": the data plane stays at version 1: the upgrade to version 2 failed: it did not come up")
	r, err := c.sync(t.Context(), "node-1")
	require.NoError(t, err)
	assert.Equal(t, 1, plane.replaced)
	assert.Positive(t, r.RequeueAfter)
	assert.LessOrEqual(t, r.RequeueAfter, retryFailed)
	assert.Empty(t, holder(t, h), "the turn was not given back")
	h.Clock.Step(retryFailed)
	syncOf(t, c)
	assert.Equal(t, 2, plane.replaced, "not tried again after %s", retryFailed)
	h.Clock.Step(retryFailed)
	syncOf(t, c)
	assert.Equal(t, 2, plane.replaced, "tried again as soon as after the first failure")
}
