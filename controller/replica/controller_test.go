package replica

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
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

// fakePlane records the calls to the data plane and answers with err.
type fakePlane struct {
	observed Observed
	disks    []string // the disks that the calls name
	hosted   []string
	err      error
	calls    []string
}

func (f *fakePlane) call(what, name string) error {
	f.calls = append(f.calls, what+" "+name)
	return f.err
}

func (f *fakePlane) ObserveReplica(string) Observed { return f.observed }
func (f *fakePlane) CreateReplica(_ context.Context, s Spec) error {
	f.disks = append(f.disks, s.DiskPath+" "+s.DiskUUID)
	return f.call("create", s.Directory)
}

func (f *fakePlane) StartReplica(_ context.Context, s Spec) error {
	f.disks = append(f.disks, s.DiskPath+" "+s.DiskUUID)
	return f.call("start", s.Directory+" "+string(s.Secret))
}

func (f *fakePlane) StopReplica(_ context.Context, name string, fence int64) error {
	if fence > 0 {
		return f.call("stop", fmt.Sprintf("%s behind %d", name, fence))
	}
	return f.call("stop", name)
}

func (f *fakePlane) Replicas() ([]string, bool) {
	return f.hosted, f.observed.Phase != types.PhaseUnknown
}

func (f *fakePlane) RemoveReplica(_ context.Context, s Spec) error {
	f.disks = append(f.disks, s.DiskPath+" "+s.DiskUUID)
	return f.call("remove", s.Directory+" "+s.UID)
}

func key() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: types.VolumeSecretName("vol")},
		Data:       map[string][]byte{types.VolumeSecretKey: []byte("secret")},
	}
}

func start(t *testing.T, plane *fakePlane, objs ...runtime.Object) (*testutil.Harness, *Controller) {
	t.Helper()
	h := testutil.New(t, append(objs, key(), build.ReadyNode("n", "disk"), build.RunningInstanceManager("n", "10.0.0.7", "p"))...)
	store := h.Datastore(datastore.Options{Node: "n"})
	c, err := New(Deps{
		Env: h.Env(), Replicas: store.Replicas, Nodes: store.Nodes, InstanceManagers: store.InstanceManagers,
		Volumes: store.Volumes, Engines: store.Engines, VolumeKey: store.VolumeKey, DataPlane: plane, Node: "n",
	})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	return h, c
}

func (f *fakePlane) expect(t *testing.T, want ...string) {
	t.Helper()
	assert.Equal(t, want, f.calls)
	f.calls = nil
}

func placed(changes ...func(*longhorn.Replica)) *longhorn.Replica {
	return build.PlacedReplica("r", "vol", "n", "disk", append(changes, func(r *longhorn.Replica) { types.AddFinalizer(r) })...)
}

func gone(r *longhorn.Replica) { r.DeletionTimestamp = &metav1.Time{Time: testutil.Now} }

const directory = "/var/lib/longhorn/replicas/vol-r"

func TestDirectoryIsMadeOnceAndThenOpened(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent, Process: "p"}}
	h, c := start(t, plane, placed(wanted))

	syncOnce(t, c, nil)
	plane.expect(t, "create "+directory)
	h.ExpectWrites("update replicas/r/status", "update replicas/r/status")

	// The cache is late: it does not show yet that the directory was created.
	syncOnce(t, c, queue.ErrStale)
	plane.expect(t)

	h.CatchUp()
	syncOnce(t, c, nil)
	plane.expect(t, "start "+directory+" secret")

	plane.observed.Phase = types.PhaseRunning
	h.CatchUp()
	h.Writes()
	syncOnce(t, c, nil)
	h.ExpectWrites("update replicas/r/status")
	h.CatchUp()
	syncOnce(t, c, nil)
	h.ExpectWrites() // at rest, it writes nothing
	plane.expect(t)
}

func TestEveryCallNamesTheDiskThatItIsMeantFor(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent}}
	for _, r := range []*longhorn.Replica{placed(wanted), placed(wanted, created), placed(created, gone)} {
		_, c := start(t, plane, r)
		syncOnce(t, c, nil)
	}
	want := "/var/lib/longhorn disk"
	assert.Equal(t, []string{want, want, want}, plane.disks, "want three times %q", want)
}

func TestALostReplicaIsToldOnceAndShown(t *testing.T) {
	for reason, message := range map[string]string{
		"DiskUnmounted": "its disk /mnt/d1 was unmounted: nothing exists at the path",
		"DataDeleted":   "its data in /mnt/d1/replicas/r was deleted: nothing exists at the path",
	} {
		t.Run(reason, func(t *testing.T) {
			plane := &fakePlane{observed: Observed{Phase: types.PhaseError, Reason: reason, Message: message}}
			h, c := start(t, plane, placed(wanted, created, func(r *longhorn.Replica) { r.Status.CurrentState = longhorn.InstanceStateRunning }))
			for range 2 {
				syncOnce(t, c, nil)
				h.CatchUp()
			}
			plane.expect(t)
			r, err := c.Replicas.GetRO("r")
			require.NoError(t, err)
			condition := types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation)
			assert.Equal(t, longhorn.InstanceStateError, r.Status.CurrentState)
			assert.Equal(t, reason, condition.Reason)
			assert.Equal(t, message, condition.Message)
			h.ExpectEvents("Warning " + reason + " r: replica r stopped serving: " + message)
		})
	}
}

func TestARunningReplicaThatHangsIsToldOnceAndShown(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseRunning, Process: "p"}}
	h, c := start(t, plane, placed(wanted, created))
	look := func() longhorn.Condition {
		t.Helper()
		syncOnce(t, c, nil)
		h.CatchUp()
		r, err := c.Replicas.GetRO("r")
		require.NoError(t, err)
		assert.Equal(t, longhorn.InstanceStateRunning, r.Status.CurrentState)
		assert.NotEmpty(t, r.Status.IP)
		return types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation)
	}
	look()
	h.Recorder.Take()
	plane.observed.Reason, plane.observed.Message = types.ReasonDiskNotResponding, "the disk /d has not answered"
	for range 2 {
		got := look()
		assert.Equal(t, longhorn.ConditionTrue, got.Status)
		assert.Equal(t, "DiskNotResponding", got.Reason)
		assert.Equal(t, "the disk /d has not answered", got.Message)
	}
	h.ExpectEvents("Warning DiskNotResponding r: replica r hangs: the disk /d has not answered")
	plane.observed.Reason, plane.observed.Message = "", ""
	got := look()
	assert.Empty(t, got.Reason)
}

// The controller retries again and again, but records one Event.
func TestARefusalThatDoesNotChangeIsNotWrittenAgain(t *testing.T) {
	for _, tc := range []struct {
		name     string
		observed Observed
		refusal  error // of the call
		starts   int   // in a minute
		want     string
	}{
		{
			name:     "the node says that the disk is ready, the data plane finds no disk",
			observed: Observed{Phase: types.PhaseError, Reason: types.ReasonDiskMissing, Message: "no such directory", Process: "p"},
			starts:   5, // after 2, 4, 8, 16 and 32 s
			want:     "Warning FailedStarting r: DiskMissing: no such directory",
		},
		{
			name:     "it was refused with one reason, and the calls are with another",
			observed: Observed{Phase: types.PhaseError, Reason: "MetadataTorn", Message: "torn", Process: "p"},
			refusal:  &types.Refusal{Reason: types.ReasonDiskNotResponding, Message: "no answer"},
			starts:   1, // after 30 s
			want:     "Warning FailedStarting r: MetadataTorn: torn",
		},
		{
			name:     "every call is refused",
			observed: Observed{Phase: types.PhaseAbsent, Process: "p"},
			refusal:  &types.Refusal{Reason: types.ReasonDiskNotResponding, Message: "no answer"},
			starts:   2, // and after 30 s
			want:     "Warning FailedStarting r: DiskNotResponding: no answer",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plane := &fakePlane{observed: tc.observed, err: tc.refusal}
			h, c := start(t, plane, placed(wanted, created))
			for range 598 { // a minute of syncs, as many as the controller may request
				syncOnce(t, c, nil)
				h.CatchUp()
				h.Clock.Step(100 * time.Millisecond)
			}
			assert.Len(t, plane.calls, tc.starts)
			assert.LessOrEqual(t, len(h.Writes()), 2)
			h.ExpectEvents(tc.want)
		})
	}
}

func TestNoDirectoryIsMadeWhereTheServerKnowsOfOne(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent, Process: "p"}}
	h, c := start(t, plane, placed(wanted, func(r *longhorn.Replica) {
		r.Status.CurrentState = longhorn.InstanceStateStarting
		r.Status.OwnerID = "n"
	}))
	live, err := c.Replicas.Live(t.Context(), "r")
	require.NoError(t, err)
	live.Status.DirectoryCreated = true
	_, err = h.Longhorn.LonghornV1beta2().Replicas(types.Namespace).UpdateStatus(t.Context(), live, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = c.sync(t.Context(), "r")
	assert.Error(t, err, "an old cache was believed")
	plane.expect(t)
}

func TestForeignDirectoryIsReportedAndLeft(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent}, err: &types.Refusal{Reason: "NotAReplica", Message: "no replica of ours"}}
	h, c := start(t, plane, placed(wanted))
	syncOnce(t, c, nil)
	plane.expect(t, "create "+directory)
	h.CatchUp()
	r, err := c.Replicas.GetRO("r")
	require.NoError(t, err)
	condition := types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation)
	assert.Equal(t, "NotAReplica", condition.Reason, "status %+v", r.Status)
	assert.False(t, r.Status.DirectoryCreated)
	syncOnce(t, c, nil) // no retry without delay
	plane.expect(t)
}

// A replica on a disk that fails is set to failed, so that nothing waits for it, and its status says why.
func TestADirectoryThatCannotBeMadeIsReported(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseAbsent}, err: &types.Refusal{Reason: "IOError", Message: "mkdir: read-only file system"}}
	h, c := start(t, plane, placed(wanted))
	syncOnce(t, c, nil)
	plane.expect(t, "create "+directory)
	h.CatchUp()
	r, err := c.Replicas.GetRO("r")
	require.NoError(t, err)
	why := types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation)
	assert.Equal(t, longhorn.InstanceStateError, r.Status.CurrentState)
	assert.Equal(t, "IOError", why.Reason)
	assert.False(t, r.Status.DirectoryCreated)
	h.ExpectEvents("Warning FailedStarting r: IOError: mkdir: read-only file system")
	h.Clock.Step(retryOpen)
	syncOnce(t, c, nil)
	plane.expect(t, "create "+directory) // and the controller retries
}

// Only a refusal is a failure of the replica. Any other error is a failure of the call, which is repeated.
func TestACallThatFailsIsNoFailureOfTheReplica(t *testing.T) {
	broken := errors.New("the connection was reset")
	for what, r := range map[string]*longhorn.Replica{"create": placed(wanted), "start": placed(wanted, created)} {
		t.Run(what, func(t *testing.T) {
			h, c := start(t, &fakePlane{observed: Observed{Phase: types.PhaseAbsent, Process: "p"}, err: broken}, r)
			syncOnce(t, c, broken)
			h.ExpectWrites("update replicas/r/status")
			h.CatchUp()
			r, err := c.Replicas.GetRO("r")
			require.NoError(t, err)
			assert.Equal(t, longhorn.InstanceStateStarting, r.Status.CurrentState)
		})
	}
}

// fullPlane cannot write a fence.
type fullPlane struct{ *fakePlane }

func (f fullPlane) StopReplica(ctx context.Context, name string, fence int64) error {
	if err := f.fakePlane.StopReplica(ctx, name, fence); err != nil || fence == 0 {
		return err
	}
	return errors.New("write the metadata: no space left on device")
}

func TestAReplicaThatCannotBeFencedIsClosedOnlyToBeRemoved(t *testing.T) {
	fenced := func(r *longhorn.Replica) { r.Spec.FenceGeneration = 9; r.Status.Generation = 3 }
	running := Observed{Phase: types.PhaseRunning, Generation: 3}
	t.Run("it is to be removed → closed without the fence, which has nothing to keep", func(t *testing.T) {
		plane := &fakePlane{observed: running}
		_, c := start(t, plane, placed(created, gone, fenced))
		c.DataPlane = fullPlane{plane}
		syncOnce(t, c, nil)
		plane.expect(t, "stop r behind 9", "stop r")
	})
	t.Run("it is to be removed and can be fenced → closed once, behind the fence", func(t *testing.T) {
		plane := &fakePlane{observed: running}
		h, c := start(t, plane, placed(created, gone, fenced))
		syncOnce(t, c, nil)
		plane.expect(t, "stop r behind 9")
		h.CatchUp()
		r, err := c.Replicas.GetRO("r")
		require.NoError(t, err)
		assert.Equal(t, int64(9), r.Status.Generation)
	})
	t.Run("it stays → an error, and it is not said to be fenced", func(t *testing.T) {
		plane := &fakePlane{observed: running}
		h, c := start(t, plane, placed(created, fenced))
		c.DataPlane = fullPlane{plane}
		_, err := c.sync(t.Context(), "r")
		assert.Error(t, err, "a fence that was not written counts as one")
		plane.expect(t, "stop r behind 9")
		h.CatchUp()
		r, err := c.Replicas.GetRO("r")
		require.NoError(t, err)
		assert.Equal(t, int64(3), r.Status.Generation)
	})
}

func TestDataIsRemovedOnlyWhenTheServerSaysSo(t *testing.T) {
	absent := Observed{Phase: types.PhaseAbsent}
	t.Run("deleted and closed → data removed, then the finalizer", func(t *testing.T) {
		plane := &fakePlane{observed: absent}
		h, c := start(t, plane, placed(created, gone))
		syncOnce(t, c, nil)
		plane.expect(t, "remove "+directory+" uid-r")
		h.ExpectWrites("update replicas/r/status", "update replicas/r")
	})
	t.Run("the data plane fails → the finalizer stays", func(t *testing.T) {
		plane := &fakePlane{observed: absent, err: errors.New("disk is busy")}
		h, c := start(t, plane, placed(created, gone))
		_, err := c.sync(t.Context(), "r")
		assert.Error(t, err, "the failure was swallowed")
		h.ExpectWrites("update replicas/r/status", "update replicas/r/status")
	})
	t.Run("an engine is connected still → said in a condition, and told once; the finalizer stays", func(t *testing.T) {
		refusal := &types.Refusal{Reason: "InUse", Message: "an engine is connected"}
		plane := &fakePlane{observed: absent, err: refusal}
		h, c := start(t, plane, placed(created, gone))
		syncOnce(t, c, refusal)
		h.ExpectWrites("update replicas/r/status", "update replicas/r/status")
		h.ExpectEvents("Warning RemovalRefused r: remove the data in " + directory + ": " + refusal.Error())
		h.CatchUp()
		r, err := c.Replicas.GetRO("r")
		require.NoError(t, err)
		got := types.FindCondition(r.Status.Conditions, "RemovalRefused")
		assert.Equal(t, longhorn.ConditionTrue, got.Status, "finalizers %v", r.Finalizers)
		assert.Equal(t, "InUse", got.Reason)
		assert.True(t, types.HasFinalizer(r))
		syncOnce(t, c, refusal)
		h.ExpectWrites()
		h.ExpectEvents()
		plane.err = nil
		syncOnce(t, c, nil)
		h.ExpectWrites("update replicas/r")
	})
	t.Run("the cache shows a deletion of an earlier replica of the name → nothing is removed", func(t *testing.T) {
		plane := &fakePlane{observed: absent}
		h, c := start(t, plane, placed(created, gone, func(r *longhorn.Replica) {
			r.Status.CurrentState = longhorn.InstanceStateStopped
			r.Status.OwnerID = "n"
		}))
		replicas := h.Longhorn.LonghornV1beta2().Replicas(types.Namespace)
		old, err := replicas.Get(t.Context(), "r", metav1.GetOptions{})
		require.NoError(t, err)
		old.Finalizers = nil
		_, err = replicas.Update(t.Context(), old, metav1.UpdateOptions{})
		require.NoError(t, err)
		h.Seed(placed(created, func(r *longhorn.Replica) { r.UID = "another" }))
		syncOnce(t, c, queue.ErrStale)
		plane.expect(t)
	})
	t.Run("its disk is away → nothing is removed, the finalizer stays", func(t *testing.T) {
		plane := &fakePlane{observed: absent}
		h, c := start(t, plane, placed(created, gone, func(r *longhorn.Replica) { r.Spec.DiskID = "another disk" }))
		syncOnce(t, c, nil)
		plane.expect(t)
		h.ExpectWrites("update replicas/r/status")
	})
}

func syncOnce(t *testing.T, c *Controller, want error) {
	t.Helper()
	_, err := c.sync(t.Context(), "r")
	require.ErrorIs(t, err, want)
}
