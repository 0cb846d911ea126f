package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakePlane records the calls to the data plane and answers with err.
type fakePlane struct {
	observed Observed
	hosted   []string
	phases   map[string]types.Phase // of replicas
	err      error
	calls    []string
	mu       sync.Mutex // held during a call for a snapshot
	snapshot Snapshot
}

func (f *fakePlane) call(format string, args ...any) error {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	return f.err
}

func (f *fakePlane) ObserveEngine(string) Observed        { return f.observed }
func (f *fakePlane) ReplicaPhase(name string) types.Phase { return f.phases[name] }

func (f *fakePlane) StartEngine(_ context.Context, s Spec) error {
	if s.Predecessor != "" {
		return f.call("start %d %s in place of %s", s.Generation, s.Members[0].UID, s.Predecessor)
	}
	return f.call("start %d %s", s.Generation, s.Members[0].UID)
}

func (f *fakePlane) Engines() ([]string, bool) {
	return f.hosted, f.observed.Phase != types.PhaseUnknown
}

func (f *fakePlane) StopEngine(_ context.Context, name, session string, force bool) error {
	if force {
		return f.call("stop %s of %s by force", name, session)
	}
	return f.call("stop %s of %s", name, session)
}

func (f *fakePlane) AddReplica(_ context.Context, _, session string, m Member, bytesPerSecond int64) error {
	return f.call("add %s %s %s %d", session, m.UID, m.Address, bytesPerSecond)
}

func (f *fakePlane) ExpandEngine(_ context.Context, _, session string, sizeBytes int64) error {
	return f.call("expand %s %d", session, sizeBytes)
}

func (f *fakePlane) RemoveReplica(_ context.Context, _, session, replica string) error {
	return f.call("remove %s %s", session, replica)
}

func (f *fakePlane) RecordEpoch(_ context.Context, _, _ string, e longhorn.Epoch, l layers.Line) error {
	if l.Counter > 0 {
		return f.call("record %d.%d with line %d", e.Generation, e.Counter, l.Counter)
	}
	return f.call("record %d.%d", e.Generation, e.Counter)
}

func (f *fakePlane) TakeSnapshot(_ context.Context, _, session string, l layers.Line, p layers.Point) (Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.call("snapshot %s %d in %d", session, p.Number, l.Counter)
	return f.snapshot, err
}

func (f *fakePlane) SetLine(_ context.Context, _, session string, l layers.Line) error {
	return f.call("line %s %d", session, len(l.Points))
}

func begin(t *testing.T, plane *fakePlane, objs ...runtime.Object) (*testutil.Harness, *Controller) {
	t.Helper()
	h := testutil.New(t, append(objs, build.PlacedReplica("vol-r-1", "vol", "m", "disk"), build.PlacedReplica("vol-r-2", "vol", "n", "disk-n"),
		build.Setting(settings.RebuildingBandwidthMiBps, "3"),
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: types.VolumeSecretName("vol")},
			Data:       map[string][]byte{types.VolumeSecretKey: []byte("secret")},
		})...)
	store := h.Datastore(datastore.Options{Node: "n"})
	c, err := New(Deps{
		Env: h.Env(), Engines: store.Engines, Replicas: store.Replicas, VolumeKey: store.VolumeKey, Setting: store.Setting,
		DataPlane: plane, Node: "n",
	})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	return h, c
}

func wantedEngine(changes ...func(*longhorn.Engine)) *longhorn.Engine {
	return build.Engine("vol", append([]func(*longhorn.Engine){func(e *longhorn.Engine) {
		e.Spec.NodeID, e.Spec.DesireState = "n", longhorn.DesireStateRunning
		e.Spec.ReplicaAddressMap = map[string]string{"vol-r-1": "10.0.0.8:8500"}
		types.AddFinalizer(e)
	}}, changes...)...)
}

func (f *fakePlane) expect(t *testing.T, want ...string) {
	t.Helper()
	assert.Equal(t, want, f.calls)
	f.calls = nil
}

func syncOf(t *testing.T, c *Controller, want error) {
	t.Helper()
	_, err := c.sync(t.Context(), "vol-e-0")
	require.ErrorIs(t, err, want)
}

func TestStartWritesBeforeItActs(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent, Process: "p"}}
	h, c := begin(t, plane, wantedEngine())

	conflict := apierrors.NewConflict(longhorn.Resource("engines"), "vol-e-0", errors.New("changed"))
	h.Fail("update", "engines", conflict, conflict)
	for range 2 {
		_, err := c.sync(t.Context(), "vol-e-0")
		require.True(t, apierrors.IsConflict(err), "sync: %v, want the conflict", err)
		plane.expect(t) // not recorded, so not started
	}
	syncOf(t, c, nil)
	plane.expect(t, "start 1 uid-vol-r-1")
	syncOf(t, c, queue.ErrStale)

	h.CatchUp()
	e, err := c.Engines.GetRO("vol-e-0")
	require.NoError(t, err)
	plane.observed = Observed{
		Phase: types.PhaseStarting, Generation: 1, Session: e.Status.Session, Process: "p",
		Proposed: &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"vol-r-1"}}, ProposedLine: &layers.Line{Counter: 3},
	}
	h.Fail("update", "engines", errors.New("the API server is away"))
	_, err = c.sync(t.Context(), "vol-e-0")
	require.Error(t, err, "the failure was swallowed")
	plane.expect(t) // not recorded, so not passed to the engine
	syncOf(t, c, nil)
	plane.expect(t, "record 1.1 with line 3")

	h.CatchUp()
	plane.observed.Phase, plane.observed.Proposed, plane.observed.Endpoint = types.PhaseRunning, nil, "/dev/longhorn/vol"
	syncOf(t, c, nil)
	h.CatchUp()
	h.Writes()
	syncOf(t, c, nil)
	h.ExpectWrites() // at rest, it writes nothing
	plane.expect(t)
}

// stopsSlowly is a data plane with an engine that stops long after the controller has stopped waiting for it.
type stopsSlowly struct{ *fakePlane }

func (s stopsSlowly) StopEngine(ctx context.Context, name, session string, force bool) error {
	_ = s.fakePlane.StopEngine(ctx, name, session, force)
	<-ctx.Done()
	return ctx.Err()
}

// A stop may wait for epochs, which only this controller records: it must not wait for the stop.
func TestASlowStopIsNotWaitedFor(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseRunning, Generation: 1, Session: "s"}}
	_, c := begin(t, plane, wantedEngine(func(e *longhorn.Engine) {
		e.Spec.DesireState = longhorn.DesireStateStopped
		e.Status.Generation, e.Status.Session, e.Status.CurrentState = 1, "s", longhorn.InstanceStateRunning
	}))
	c.DataPlane = stopsSlowly{plane}
	_, err := c.sync(t.Context(), "vol-e-0")
	assert.NoError(t, err)
	plane.expect(t, "stop vol-e-0 of s")
}

func TestAStopIsNotTakenForARefusal(t *testing.T) {
	stopping := wantedEngine(func(e *longhorn.Engine) {
		e.Spec.DesireState = longhorn.DesireStateStopped
		e.Status.Generation, e.Status.Session, e.Status.CurrentState = 1, "s", longhorn.InstanceStateRunning
	})
	broken := errors.New("the connection was reset")
	for name, answer := range map[string]error{"it goes well": nil, "the call fails": broken} {
		t.Run(name, func(t *testing.T) {
			plane := &fakePlane{observed: Observed{Phase: types.PhaseRunning, Generation: 1, Session: "s"}, err: answer}
			h, c := begin(t, plane, stopping.DeepCopy())
			syncOf(t, c, answer)
			plane.expect(t, "stop vol-e-0 of s")
			h.ExpectWrites("update engines/vol-e-0/status")
			h.CatchUp()
			in := types.FindCondition(mustEngine(t, c).Status.Conditions, "DeviceInUse")
			assert.NotEqual(t, longhorn.ConditionTrue, in.Status, "said to be in use")
		})
	}
}

func TestEngineInUseIsNotForgotten(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseRunning, Generation: 1, Session: "s"}, err: &InUse{Message: "/dev/longhorn/vol is mounted"}}
	h, c := begin(t, plane, wantedEngine(func(e *longhorn.Engine) {
		e.DeletionTimestamp = &metav1.Time{Time: testutil.Now}
		e.Status.Generation, e.Status.Session, e.Status.CurrentState = 1, "s", longhorn.InstanceStateRunning
	}))
	syncOf(t, c, nil)
	plane.expect(t, "stop vol-e-0 of s")
	h.ExpectWrites("update engines/vol-e-0/status", "update engines/vol-e-0/status")
	h.ExpectEvents("Warning DeviceInUse vol-e-0: /dev/longhorn/vol is mounted; the volume will be detached when nothing uses the device")

	// There is one Event, and the condition is True until nothing uses the device.
	h.CatchUp()
	h.Clock.Step(retryStop)
	syncOf(t, c, nil)
	plane.expect(t, "stop vol-e-0 of s")
	h.ExpectWrites()
	h.ExpectEvents()
	shown := func() longhorn.ConditionStatus {
		h.CatchUp()
		e, err := c.Engines.GetRO("vol-e-0")
		require.NoError(t, err)
		return types.FindCondition(e.Status.Conditions, "DeviceInUse").Status
	}
	assert.Equal(t, longhorn.ConditionTrue, shown())
	p := plan(Input{Engine: mustEngine(t, c), Owner: "n", Now: h.Clock.Now(), Observed: Observed{Phase: types.PhaseAbsent, Process: "p"}})
	assert.Equal(t, longhorn.ConditionFalse, types.FindCondition(p.Status.Conditions, "DeviceInUse").Status, "once it is stopped")
}

func mustEngine(t *testing.T, c *Controller) *longhorn.Engine {
	t.Helper()
	e, err := c.Engines.GetRO("vol-e-0")
	require.NoError(t, err)
	return e
}

// A refused stop changes the engine's state twice, and the controller is notified of both changes.
func TestAStopThatWasRefusedIsNotAskedForAgainAtOnce(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseRunning, Generation: 1, Session: "s"}, err: &InUse{Message: "it is mounted"}}
	h, c := begin(t, plane, wantedEngine(func(e *longhorn.Engine) {
		e.Spec.DesireState = longhorn.DesireStateStopped
		e.Status.Generation, e.Status.Session, e.Status.CurrentState = 1, "s", longhorn.InstanceStateRunning
	}))
	asked := func(name string, want ...string) {
		t.Helper()
		h.CatchUp()
		result, err := c.sync(t.Context(), "vol-e-0")
		require.NoError(t, err, name)
		if len(want) == 0 {
			assert.Positive(t, result.RequeueAfter, name)
			assert.LessOrEqual(t, result.RequeueAfter, retryStop, name)
		}
		plane.expect(t, want...)
	}
	asked("at first", "stop vol-e-0 of s")
	asked("its state has changed")
	asked("and back")
	h.Clock.Step(retryStop - time.Second)
	asked("not yet")
	h.Clock.Step(time.Second)
	asked("in due time", "stop vol-e-0 of s")
	plane.observed.Phase = types.PhaseError
	plane.err = nil
	asked("it has failed: its users are not waited for", "stop vol-e-0 of s by force")
	plane.observed = Observed{Phase: types.PhaseRunning, Generation: 1, Session: "another"}
	asked("a leftover of another session", "stop vol-e-0 of another by force")
}

func TestARefusedStartIsShown(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent, Process: "p"}, err: &types.Refusal{Reason: "IOError", Message: "no memory for a device"}}
	h, c := begin(t, plane, wantedEngine())
	syncOf(t, c, nil)
	h.CatchUp()
	e, err := c.Engines.GetRO("vol-e-0")
	require.NoError(t, err)
	why := types.FindCondition(e.Status.Conditions, types.ConditionInstanceCreation)
	assert.Equal(t, longhorn.InstanceStateError, e.Status.CurrentState)
	assert.Equal(t, "IOError", why.Reason)
	assert.Equal(t, "no memory for a device", why.Message)
	assert.Equal(t, int64(1), e.Status.Generation)
}

// The spec may still list a replica that was deleted while a succession waited. If the engine could not start
// without it, the controller would retry the start endlessly.
func TestAnEngineStartsWithoutAReplicaWhoseObjectIsGone(t *testing.T) {
	addresses := map[string]string{"vol-r-0": "10.0.0.7:8500", "vol-r-1": "10.0.0.8:8500"}
	plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent, Process: "p"}}
	h, c := begin(t, plane, wantedEngine(func(e *longhorn.Engine) { e.Spec.ReplicaAddressMap = addresses }))
	syncOf(t, c, nil)
	plane.expect(t, "start 1 uid-vol-r-1")

	require.NoError(t, h.Longhorn.LonghornV1beta2().Replicas(types.Namespace).Delete(t.Context(), "vol-r-1", metav1.DeleteOptions{}))
	h.CatchUp()
	_, err := c.sync(t.Context(), "vol-e-0")
	assert.ErrorContains(t, err, "none of its replicas [vol-r-0 vol-r-1] exists", "without any")
	plane.expect(t)
}

func TestAVolumeWithoutItsKeySaysSo(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent, Process: "p"}}
	h, c := begin(t, plane, wantedEngine())
	require.NoError(t, h.Kube.CoreV1().Secrets(types.Namespace).Delete(t.Context(), types.VolumeSecretName("vol"), metav1.DeleteOptions{}))
	syncOf(t, c, nil)
	plane.expect(t)
	h.CatchUp()
	e, err := c.Engines.GetRO("vol-e-0")
	require.NoError(t, err)
	why := types.FindCondition(e.Status.Conditions, types.ConditionInstanceCreation)
	assert.Equal(t, types.ReasonKeyMissing, why.Reason)
	assert.Contains(t, why.Message, types.VolumeSecretName("vol"))
}

func TestFinalizerStaysWhereTheServerShowsARunningEngine(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent}}
	h, c := begin(t, plane, wantedEngine(func(e *longhorn.Engine) {
		e.DeletionTimestamp = &metav1.Time{Time: testutil.Now}
		e.Status.OwnerID, e.Status.CurrentState = "n", longhorn.InstanceStateStopped
	}))
	engines := h.Longhorn.LonghornV1beta2().Engines(types.Namespace)
	live, err := engines.Get(t.Context(), "vol-e-0", metav1.GetOptions{})
	require.NoError(t, err)
	live.Spec.NodeID = "another"
	_, err = engines.Update(t.Context(), live, metav1.UpdateOptions{})
	require.NoError(t, err)
	h.Writes()
	syncOf(t, c, queue.ErrStale)
	h.ExpectWrites()
}
