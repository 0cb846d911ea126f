package manager

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// snapshotOf returns a snapshot of a volume that is complete if it has a number.
func snapshotOf(volume, name string, number int64, change ...func(*longhorn.Snapshot)) *longhorn.Snapshot {
	s := owned(&longhorn.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: name, Finalizers: []string{types.Finalizer}},
		Spec:       longhorn.SnapshotSpec{Volume: volume, CreateSnapshot: true},
	}, volume)
	if number > 0 {
		s.Status = longhorn.SnapshotStatus{Number: number, ReadyToUse: true, UserCreated: true, CreationTime: "2030-01-01T00:00:00Z"}
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func isBeingDeleted(s *longhorn.Snapshot) {
	now := metav1.NewTime(time.Unix(1e9, 0))
	s.DeletionTimestamp, s.Status.MarkRemoved, s.Status.ReadyToUse = &now, true, false
}

// snapshotNames returns the names of snapshots, separated by spaces.
func snapshotNames(list []*longhorn.Snapshot) string {
	var names []string
	for _, s := range list {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}

func attachedVolume(name string) *longhorn.Volume {
	return detachedVolume(name, func(v *longhorn.Volume) {
		v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.State = "node-1", "node-1", longhorn.VolumeStateAttached
	})
}

func TestCreateSnapshot(t *testing.T) {
	b := newBench(t, detachedVolume("vol"))
	s, err := b.CreateSnapshot(t.Context(), "vol", "", map[string]string{"app": "db"})
	require.NoError(t, err)
	assert.Regexp(t, "^snap-[0-9a-f]{16}$", s.Name)
	b.ExpectWrites("create snapshots/" + s.Name)
	live, err := b.Longhorn.LonghornV1beta2().Snapshots(types.Namespace).Get(t.Context(), s.Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, longhorn.SnapshotSpec{Volume: "vol", CreateSnapshot: true, Labels: map[string]longhorn.SnapshotLabel{"app": "db"}}, live.Spec)
	assert.Equal(t, map[string]string{"longhornvolume": "vol"}, live.Labels)
	assert.Equal(t, owned(&longhorn.Snapshot{}, "vol").OwnerReferences, live.OwnerReferences)

	_, err = b.CreateSnapshot(t.Context(), "vol", s.Name, nil)
	wantProblem(t, err, ErrConflict, `snapshot "`+s.Name+`" already exists`)
}

func TestCreateSnapshotRefuses(t *testing.T) {
	b := newBench(t, detachedVolume("vol"), detachedVolume("bad", func(v *longhorn.Volume) { v.Status.Robustness = longhorn.VolumeRobustnessFaulted }))
	create := func(volume, name string, labels map[string]string) error {
		_, err := b.CreateSnapshot(t.Context(), volume, name, labels)
		return err
	}
	const rule = "must consist of lower-case letters, digits, '-' and '.', with a letter or digit at both ends, and must not be volume-head"
	wantInvalid(t, create("vol", "S1", nil), "name", `name: "S1" `+rule)
	wantInvalid(t, create("vol", "volume-head", nil), "name", `name: "volume-head" `+rule)
	const equals = " is refused: neither the name nor the value of a label may contain '='"
	wantInvalid(t, create("vol", "s1", map[string]string{"a=b": "c"}), "labels", `labels: "a=b"`+equals)
	wantInvalid(t, create("vol", "s1", map[string]string{"a": "b=c"}), "labels", `labels: "a"`+equals)
	wantInvalid(t, create("vol", "s1", map[string]string{"a": strings.Repeat("x", 1025)}), "labels", `labels: "a" has a value of 1025 bytes; the limit is 1024`)
	wantProblem(t, create("nix", "s1", nil), ErrNotFound, `volume "nix" does not exist`)
	wantProblem(t, create("bad", "s1", nil), ErrConflict, `failed to create snapshot "s1": volume "bad" is faulted`)
	b.ExpectWrites()
}

func TestSnapshotsAreThoseOfTheVolume(t *testing.T) {
	b := newBench(t, detachedVolume("vol"), detachedVolume("other"),
		snapshotOf("vol", "a-third", 7), snapshotOf("vol", "b-requested", 0), snapshotOf("vol", "c-first", 2), snapshotOf("vol", "d-deleted", 4, isBeingDeleted),
		snapshotOf("vol", "e-earlier", 3, func(s *longhorn.Snapshot) { s.OwnerReferences[0].UID = "uid-of-an-earlier-volume" }),
		snapshotOf("vol", "f-by-kubectl", 0, func(s *longhorn.Snapshot) { s.OwnerReferences = nil }), snapshotOf("other", "g", 1))
	list, err := b.Snapshots(t.Context(), "vol")
	require.NoError(t, err)
	assert.Equal(t, "c-first d-deleted a-third b-requested f-by-kubectl", snapshotNames(list))
	taken, head, err := b.TakenSnapshots(t.Context(), "vol")
	require.NoError(t, err)
	assert.Equal(t, "c-first d-deleted a-third", snapshotNames(taken))
	assert.Equal(t, HeadView{Parent: "a-third", Size: "0"}, head)

	_, err = b.Snapshot(t.Context(), "vol", "c-first")
	require.NoError(t, err)
	_, err = b.Snapshot(t.Context(), "vol", "g")
	wantProblem(t, err, ErrNotFound, "cannot find snapshot 'g' for volume 'vol'")
	_, err = b.Snapshots(t.Context(), "nix")
	wantProblem(t, err, ErrNotFound, `volume "nix" does not exist`)
}

func TestTheHeadIsAsTheEngineShowsIt(t *testing.T) {
	b := newBench(t, attachedVolume("vol"), snapshotOf("vol", "s", 1), owned(build.Engine("vol", func(e *longhorn.Engine) {
		e.Status.Snapshots = map[string]longhorn.SnapshotInfo{types.VolumeHead: {Name: types.VolumeHead, Parent: "p", Size: "4096"}}
	}), "vol"))
	_, head, err := b.TakenSnapshots(t.Context(), "vol")
	require.NoError(t, err)
	assert.Equal(t, HeadView{Parent: "p", Size: "4096"}, head)
}

// TestTakeSnapshotWaits: isDone follows from the snapshot's status, however long that takes.
func TestTakeSnapshotWaits(t *testing.T) {
	for name, c := range map[string]struct {
		readyAfter int // waits; 0: never
		isDone     bool
	}{"becomes ready → done": {3, true}, "stays incomplete → not done": {0, false}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, attachedVolume("vol"))
			waits := 0
			b.hasty.during = func() {
				if waits++; waits == c.readyAfter {
					s, err := b.Longhorn.LonghornV1beta2().Snapshots(types.Namespace).Get(t.Context(), "s", metav1.GetOptions{})
					require.NoError(t, err)
					s.Status.ReadyToUse, s.Status.Number = true, 1
					b.Overwrite(s)
				}
				b.CatchUp()
			}
			s, isDone, err := b.TakeSnapshot(t.Context(), "vol", "s", nil)
			require.NoError(t, err)
			assert.Equal(t, "s", s.Name)
			assert.Equal(t, c.isDone, isDone)
			assert.Equal(t, c.isDone, s.Status.ReadyToUse)
		})
	}
	b := newBench(t, detachedVolume("vol"))
	_, _, err := b.TakeSnapshot(t.Context(), "vol", "s", nil)
	wantProblem(t, err, ErrConflict, "cannot get vol volume engine: engine is not running")
	b.ExpectWrites()
}

func TestDeleteSnapshot(t *testing.T) {
	b := newBench(t, detachedVolume("vol"), snapshotOf("vol", "s", 1), snapshotOf("vol", "going", 2, isBeingDeleted), snapshotOf("other", "g", 1))
	require.NoError(t, b.DeleteSnapshot(t.Context(), "vol", "s"))
	b.ExpectWrites("delete snapshots/s")
	require.NoError(t, b.DeleteSnapshot(t.Context(), "vol", "going"))
	wantProblem(t, b.DeleteSnapshot(t.Context(), "vol", "g"), ErrNotFound, "cannot find snapshot 'g' for volume 'vol'")
	wantInvalid(t, b.DeleteSnapshot(t.Context(), "vol", types.VolumeHead), "name", `name: "volume-head" is not a snapshot: it is what users write to now`)
	b.ExpectWrites()
}

// stoppedEngine returns the engine of volume vol with these points.
func stoppedEngine(points ...longhorn.LinePoint) *longhorn.Engine {
	return owned(build.Engine("vol", func(e *longhorn.Engine) {
		e.Spec.DesireState, e.Status.CurrentState = longhorn.DesireStateStopped, longhorn.InstanceStateStopped
		e.Status.Line = &longhorn.Line{Counter: 5, Points: points}
	}), "vol")
}

func readyPoint(number int64, name string) longhorn.LinePoint {
	return longhorn.LinePoint{Number: number, Nonce: 7, Name: name, State: longhorn.PointStateReady}
}

func TestRevertSnapshot(t *testing.T) {
	b := newBench(t, detachedVolume("vol"), snapshotOf("vol", "s", 4), stoppedEngine(readyPoint(4, "s")))
	s, err := b.RevertSnapshot(t.Context(), "vol", "s")
	require.NoError(t, err)
	assert.Equal(t, "s", s.Name)
	b.ExpectWrites("update engines/vol-e-0/status")
	e, err := b.Longhorn.LonghornV1beta2().Engines(types.Namespace).Get(t.Context(), "vol-e-0", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, &longhorn.Line{
		Counter: 6, Points: []longhorn.LinePoint{readyPoint(4, "s")}, Reverted: &longhorn.LineInterval{To: 4, By: 6},
	}, e.Status.Line)
}

func TestRevertSnapshotRefuses(t *testing.T) {
	maintenance := attachedVolume("vol")
	maintenance.Status.FrontendDisabled = true
	starting := stoppedEngine(readyPoint(4, "s"))
	starting.Spec.DesireState = longhorn.DesireStateRunning
	withSession := stoppedEngine(readyPoint(4, "s"))
	withSession.Status.Session = "session"
	for name, c := range map[string]struct {
		objects []runtime.Object
		text    string
	}{
		"in use": {
			[]runtime.Object{attachedVolume("vol"), stoppedEngine(readyPoint(4, "s"))},
			"failed to revert snapshot for volume vol with frontend enabled: detach the volume first",
		},
		"attached without a frontend": {
			[]runtime.Object{maintenance, stoppedEngine(readyPoint(4, "s"))},
			"failed to revert snapshot for volume vol: it is not detached, and this release reverts only detached volumes",
		},
		"an engine was requested": {
			[]runtime.Object{detachedVolume("vol"), starting},
			"failed to revert snapshot for volume vol: its engine is not stopped yet; try again",
		},
		"an engine has a session": {
			[]runtime.Object{detachedVolume("vol"), withSession},
			"failed to revert snapshot for volume vol: its engine is not stopped yet; try again",
		},
		"no engine": {
			[]runtime.Object{detachedVolume("vol")},
			"failed to revert snapshot for volume vol: no record of its snapshots exists",
		},
		"a later snapshot": {
			[]runtime.Object{detachedVolume("vol"), stoppedEngine(readyPoint(4, "s"), readyPoint(5, "later"))},
			`failed to revert volume "vol" to snapshot "s": later snapshots exist, and they would be lost: later`,
		},
	} {
		t.Run(name+" → refused", func(t *testing.T) {
			b := newBench(t, append(c.objects, snapshotOf("vol", "s", 4))...)
			_, err := b.RevertSnapshot(t.Context(), "vol", "s")
			wantProblem(t, err, ErrConflict, c.text)
			b.ExpectWrites()
		})
	}
	b := newBench(t, detachedVolume("vol"), stoppedEngine(), snapshotOf("vol", "gone", 4, isBeingDeleted))
	_, err := b.RevertSnapshot(t.Context(), "vol", "gone")
	wantProblem(t, err, ErrConflict, `failed to revert volume "vol" to snapshot "gone" since it's marked as Removed`)
}

// TestAnEngineThatIsRequestedMeanwhileIsNotReverted: the write of the revert is a conflict, and the next attempt sees
// the request.
func TestAnEngineThatIsRequestedMeanwhileIsNotReverted(t *testing.T) {
	b := newBench(t, detachedVolume("vol"), snapshotOf("vol", "s", 4), stoppedEngine(readyPoint(4, "s")))
	b.Fail("update", "engines", apierrors.NewConflict(longhorn.Resource("engines"), "vol-e-0", errors.New("newer")))
	b.hasty.during = func() {
		e, err := b.Longhorn.LonghornV1beta2().Engines(types.Namespace).Get(t.Context(), "vol-e-0", metav1.GetOptions{})
		require.NoError(t, err)
		e.Spec.DesireState = longhorn.DesireStateRunning
		b.Overwrite(e)
	}
	_, err := b.RevertSnapshot(t.Context(), "vol", "s")
	wantProblem(t, err, ErrConflict, "failed to revert snapshot for volume vol: its engine is not stopped yet; try again")
}

func TestPurgesFollowDeletedSnapshots(t *testing.T) {
	engine := func(line *longhorn.Line) *longhorn.Engine {
		return owned(build.Engine("vol", func(e *longhorn.Engine) {
			e.Spec.NodeID, e.Status.Line = "node-1", line
			e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"r-2": longhorn.ReplicaModeRW, "r-1": longhorn.ReplicaModeRW, "r-3": longhorn.ReplicaModeWO}
		}), "vol")
	}
	for name, c := range map[string]struct {
		objects []runtime.Object
		want    []PurgeView
	}{
		"never had a snapshot → none":     {[]runtime.Object{engine(nil)}, nil},
		"no deleted snapshot → done":      {[]runtime.Object{engine(&longhorn.Line{Counter: 1}), snapshotOf("vol", "s", 1)}, []PurgeView{{"r-1", true}, {"r-2", true}}},
		"a deleted snapshot → not done":   {[]runtime.Object{engine(&longhorn.Line{Counter: 1}), snapshotOf("vol", "s", 1, isBeingDeleted)}, []PurgeView{{"r-1", false}, {"r-2", false}}},
		"one of another volume → is done": {[]runtime.Object{engine(&longhorn.Line{Counter: 1}), snapshotOf("other", "s", 1, isBeingDeleted)}, []PurgeView{{"r-1", true}, {"r-2", true}}},
	} {
		t.Run(name, func(t *testing.T) {
			view, err := newBench(t, append(c.objects, attachedVolume("vol"))...).Volume(t.Context(), "vol")
			require.NoError(t, err)
			assert.Equal(t, c.want, view.Purges)
		})
	}
}

// TestManifestsWithoutSnapshots: the account may not read them, so no cache is filled.
func TestManifestsWithoutSnapshots(t *testing.T) {
	b := newBench(t, attachedVolume("vol"), snapshotOf("vol", "s", 1), owned(build.Engine("vol", func(e *longhorn.Engine) {
		e.Spec.NodeID, e.Status.Line = "node-1", &longhorn.Line{Counter: 1}
	}), "vol"))
	store := b.Datastore(datastore.Options{Kinds: []datastore.Kind{
		datastore.Volumes, datastore.VolumeAttachments, datastore.Engines, datastore.Replicas, datastore.Nodes, datastore.Settings,
		datastore.InstanceManagers, datastore.Pods, datastore.ShareManagers,
	}})
	m := New(DepsOf(store, datastore.NewWorkloads(b.Kube), b.hasty, b.Log))
	list, err := m.Snapshots(t.Context(), "vol")
	require.NoError(t, err)
	assert.Empty(t, list)
	_, err = m.Volume(t.Context(), "vol")
	require.NoError(t, err)
	_, err = m.ListFindings()
	require.NoError(t, err)
}
