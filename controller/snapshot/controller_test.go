package snapshot

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/controller/line"
	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type cluster struct {
	*testutil.Harness
	c *Controller
}

// begin returns a cluster with an attached volume of one replica, whose engine has this line.
func begin(t *testing.T, l *longhorn.Line, objs ...runtime.Object) cluster {
	t.Helper()
	manager := build.InstanceManager("n", func(im *longhorn.InstanceManager) { im.Status.UUID, im.Status.SnapshotsUUID = "p", "p" })
	h := testutil.New(t, append(objs, build.ReadyNode("n", "disk"), manager,
		build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) {
			va.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{"csi": ticket("csi", "n", longhorn.AttacherTypeCSI)}
		}),
		build.Volume("vol", func(v *longhorn.Volume) { v.Status.State, v.Status.CurrentNodeID = longhorn.VolumeStateAttached, "n" }),
		build.Engine("vol", func(e *longhorn.Engine) {
			ownedByVolume(e)
			e.Spec.NodeID, e.Spec.DesireState = "n", longhorn.DesireStateRunning
			e.Status.CurrentState, e.Status.Session, e.Status.Line = longhorn.InstanceStateRunning, "s", l
			e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"vol-r-1"}}
		}),
		build.PlacedReplica("vol-r-1", "vol", "n", "disk", func(r *longhorn.Replica) {
			ownedByVolume(r)
			r.Status.CurrentState, r.Status.UUID, r.Status.Layers = longhorn.InstanceStateRunning, "p", &longhorn.ReplicaLayers{UUID: "p"}
		}),
	)...)
	deps := DepsOf(h.Datastore(datastore.Options{}))
	deps.Env, deps.Owner, deps.Nonce = h.Env(), "leader", func() int64 { return 77 }
	c, err := New(deps)
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	return cluster{h, c}
}

func (c cluster) sync(want error) {
	c.T.Helper()
	_, err := c.c.sync(c.T.Context(), "vol")
	require.ErrorIs(c.T, err, want)
}

// change changes the engine's status as its own controller does.
func (c cluster) change(f func(*longhorn.EngineStatus)) {
	c.T.Helper()
	e, err := c.c.deps.Engines.Live(c.T.Context(), "vol-e-0")
	require.NoError(c.T, err)
	f(&e.Status)
	c.Overwrite(e)
}

func (c cluster) points() []string {
	c.T.Helper()
	e, err := c.c.deps.Engines.Live(c.T.Context(), "vol-e-0")
	require.NoError(c.T, err)
	return pointsOf(e.Status.Line)
}

func (c cluster) get(name string) *longhorn.Snapshot {
	c.T.Helper()
	s, err := c.c.deps.Snapshots.Live(c.T.Context(), name)
	require.NoError(c.T, err)
	return s
}

func plain(name string) *longhorn.Snapshot {
	return &longhorn.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: name, UID: "uid-snap"},
		Spec:       longhorn.SnapshotSpec{Volume: "vol", CreateSnapshot: true},
	}
}

// TestLifeOfASnapshot: each write is of the version that its decision is based on, and the controller writes nothing
// while another component works.
func TestLifeOfASnapshot(t *testing.T) {
	c := begin(t, nil, plain("s1"))
	c.sync(nil)
	c.ExpectWrites("update snapshots/s1")
	c.sync(queue.ErrStale)
	c.CatchUp()

	conflict := apierrors.NewConflict(longhorn.Resource("engines"), "vol-e-0", errors.New("changed"))
	c.Fail("update", "engines", conflict, conflict)
	for range 2 {
		_, err := c.c.sync(t.Context(), "vol")
		require.True(t, apierrors.IsConflict(err))
	}
	assert.Empty(t, c.points())
	c.Writes()
	c.sync(nil)
	c.ExpectWrites("update engines/vol-e-0/status")
	assert.Equal(t, []string{"1 s1 intended"}, c.points())
	c.sync(queue.ErrStale)
	c.CatchUp()
	c.sync(nil)
	c.ExpectWrites("update snapshots/s1/status")
	c.CatchUp()
	c.sync(nil)
	c.ExpectWrites() // the engine's controller is at work

	c.change(func(s *longhorn.EngineStatus) {
		var err error
		s.Line, err = line.Ready(s.Line, line.Point(s.Line.Points[0]), testutil.Now, 1<<30)
		require.NoError(t, err)
	})
	c.CatchUp()
	c.sync(nil)
	c.ExpectWrites("update engines/vol-e-0/status", "update snapshots/s1/status")
	c.ExpectEvents("Normal Create s1: successfully provisioned the snapshot", "Normal Update s1: snapshot becomes ready to use")
	assert.True(t, c.get("s1").Status.ReadyToUse)
	c.CatchUp()
	c.sync(nil)
	c.ExpectWrites() // at rest

	deleting := c.get("s1")
	deleting.DeletionTimestamp = &metav1.Time{Time: testutil.Now}
	c.Overwrite(deleting)
	c.CatchUp()
	c.Fail("update", "engines", errors.New("the API server is away"))
	_, err := c.c.sync(t.Context(), "vol")
	require.Error(t, err)
	assert.True(t, types.HasFinalizer(c.get("s1")), "the point is not deleted yet")
	c.CatchUp()
	c.Writes()
	c.sync(nil)
	c.ExpectWrites("update engines/vol-e-0/status", "update snapshots/s1/status")
	assert.Equal(t, []string{"1 s1 deleted"}, c.points())
	assert.True(t, types.HasFinalizer(c.get("s1")), "the write of the line was not read yet")
	c.CatchUp()
	c.sync(nil)
	c.ExpectEvents("Normal Delete s1: snapshot is marked as removed")
}

// TestAFinalizerStaysIfTheLiveLineHasThePoint: an old cache must not decide.
func TestAFinalizerStaysIfTheLiveLineHasThePoint(t *testing.T) {
	for name, c := range map[string]struct {
		live *longhorn.Line
		want error
	}{
		"ready":    {lineWith(point(4, "s1", deleted), point(5, "s1", ready)), queue.ErrStale},
		"intended": {lineWith(point(5, "s1", intended)), queue.ErrStale},
		"deleted":  {lineWith(point(4, "s1", deleted)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := snap("s1", isDeleting, wasReady)
			k := begin(t, c.live, s)
			p := Plan{Release: []*longhorn.Snapshot{s}}
			require.ErrorIs(t, k.c.apply(t.Context(), Input{Name: "vol"}, p), c.want)
			left, err := k.c.deps.Snapshots.Live(t.Context(), "s1")
			if c.want != nil {
				require.NoError(t, err)
				assert.True(t, types.HasFinalizer(left))
				return
			}
			assert.True(t, apierrors.IsNotFound(err) || !types.HasFinalizer(left))
		})
	}
}

func TestAFinalizerStaysForAnotherSnapshotOfTheName(t *testing.T) {
	k := begin(t, nil, snap("s1", isDeleting, func(s *longhorn.Snapshot) { s.UID = "another" }))
	require.ErrorIs(t, k.c.apply(t.Context(), Input{Name: "vol"}, Plan{Release: []*longhorn.Snapshot{snap("s1", isDeleting)}}), queue.ErrStale)
	assert.True(t, types.HasFinalizer(k.get("s1")))
}

func TestAFinalizerStaysIfTheSnapshotIsNotDeleted(t *testing.T) {
	k := begin(t, nil, snap("s1"))
	require.ErrorIs(t, k.c.apply(t.Context(), Input{Name: "vol"}, Plan{Release: []*longhorn.Snapshot{snap("s1", isDeleting)}}), queue.ErrStale)
	assert.True(t, types.HasFinalizer(k.get("s1")))
}

// TestAPointIsForgottenOnlyIfNoLiveReplicaShowsIt: the cache may lack a replica that was rebuilt from one with the
// point.
func TestAPointIsForgottenOnlyIfNoLiveReplicaShowsIt(t *testing.T) {
	k := begin(t, lineWith(point(4, "s1", deleted)))
	k.Seed(build.PlacedReplica("vol-r-2", "vol", "n", "disk", func(r *longhorn.Replica) {
		ownedByVolume(r)
		r.Status.CurrentState, r.Status.UUID = longhorn.InstanceStateRunning, "p"
		r.Status.Layers = &longhorn.ReplicaLayers{UUID: "p", Points: []longhorn.ReplicaPoint{{Number: 4, Nonce: 40}}}
	}))
	k.sync(queue.ErrStale)
	assert.Equal(t, []string{"4 s1 deleted"}, k.points())

	k.CatchUp()
	k.sync(nil)
	assert.Equal(t, []string{"4 s1 deleted"}, k.points())

	r, err := k.c.deps.Replicas.ListLive(t.Context(), metav1.ListOptions{LabelSelector: types.LabelVolume + "=vol"})
	require.NoError(t, err)
	for _, r := range r {
		r.Status.Layers.Points = nil
		k.Overwrite(r)
	}
	k.CatchUp()
	k.sync(nil)
	assert.Empty(t, k.points())
}

func TestAMirrorIsCreated(t *testing.T) {
	k := begin(t, lineWith(point(4, "s1", ready)))
	k.sync(nil)
	s := k.get("s1")
	assert.False(t, s.Spec.CreateSnapshot)
	assert.True(t, types.HasFinalizer(s))
	k.CatchUp()
	k.sync(nil)
	assert.True(t, k.get("s1").Status.ReadyToUse)
}

// TestANameOfAnotherVolume: the snapshot stays in the line, and the other volume's object as it is.
func TestANameOfAnotherVolume(t *testing.T) {
	k := begin(t, lineWith(point(4, "s1", ready)), snap("s1", func(s *longhorn.Snapshot) { s.Spec.Volume = "other" }))
	k.sync(nil)
	assert.Equal(t, "other", k.get("s1").Spec.Volume)
	assert.Equal(t, []string{"4 s1 ready"}, k.points())
	k.ExpectEvents("Warning Failed vol: snapshot s1 of this volume has no object, because a Snapshot of volume other has its name")
}

func TestAVolumeWithoutSnapshotsIsLeftAlone(t *testing.T) {
	k := begin(t, nil)
	k.sync(nil)
	k.ExpectWrites()
}

func TestNoncesAreRandomAndReadableInJSON(t *testing.T) {
	seen := map[int64]bool{}
	for range 100 {
		n := randomNonce()
		assert.Less(t, n, line.NonceLimit)
		assert.GreaterOrEqual(t, n, int64(0))
		seen[n] = true
	}
	assert.Len(t, seen, 100)
}
