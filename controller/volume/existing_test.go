package volume

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// usedOnce is a detached volume with one replica. Its children have lost the volume's label or have the label of
// another volume.
func usedOnce(labels map[string]string, changes ...func(*longhorn.Volume)) []runtime.Object {
	v := build.Volume("vol", append([]func(*longhorn.Volume){finalized, func(v *longhorn.Volume) {
		v.Spec.NumberOfReplicas = 1
		v.Status.State, v.Status.Size = longhorn.VolumeStateDetached, build.GiB
	}}, changes...)...)
	engine := build.Engine("vol", owned, func(e *longhorn.Engine) {
		e.Labels = labels
		types.AddFinalizer(e)
		e.Status.CurrentState = longhorn.InstanceStateStopped
		e.Status.Generation, e.Status.Epoch = 3, &longhorn.Epoch{Generation: 3, Members: []string{"vol-r-1"}}
	})
	return []runtime.Object{
		v, engine,
		build.PlacedReplica("vol-r-1", "vol", "a", "disk-a", ownedReplica, func(r *longhorn.Replica) { r.Labels = labels }),
		build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) { va.OwnerReferences, va.Labels = owner(), labels }),
	}
}

var wrongLabels = map[string]map[string]string{"no labels": nil, "the label of another volume": {types.LabelVolume: "other"}}

func TestChildrenWithoutTheirLabelGetItBackAndTheVolumeIsAttached(t *testing.T) {
	for name, labels := range wrongLabels {
		t.Run(name, func(t *testing.T) {
			h, c := begin(t, usedOnce(labels, func(v *longhorn.Volume) { v.Spec.NodeID = "a" })...)
			syncOf(t, h, c, nil)
			h.ExpectWrites("update engines/vol-e-0", "update replicas/vol-r-1", "update volumeattachments/vol")
			h.CatchUp()
			syncOf(t, h, c, nil)
			h.ExpectWrites("update replicas/vol-r-1", "update volumes/vol/status")
			for _, o := range []interface {
				GetLabels() map[string]string
			}{must(c.deps.Engines.Live(t.Context(), "vol-e-0")), must(c.deps.Attachments.Live(t.Context(), "vol"))} {
				assert.Equal(t, "vol", o.GetLabels()[types.LabelVolume])
			}
			v := must(c.deps.Volumes.Live(t.Context(), "vol"))
			assert.Equal(t, longhorn.VolumeStateAttaching, v.Status.State)
		})
	}
}

func TestAVolumeWhoseChildrenHaveLostTheirLabelIsDeleted(t *testing.T) {
	for name, labels := range wrongLabels {
		t.Run(name, func(t *testing.T) {
			h, c := begin(t, usedOnce(labels, deletedVolume)...)
			syncOf(t, h, c, nil)
			h.ExpectWrites("update volumes/vol/status", "delete engines/vol-e-0")
		})
	}
}

func must[T any](o T, err error) T {
	if err != nil {
		panic(err)
	}
	return o
}

// A replica that has lost its label is missing from a list by label.
func TestAReplicaWithoutItsLabelDoesNotMakeTheCacheLookLate(t *testing.T) {
	replica := func(name string, labels map[string]string, changes ...func(*longhorn.Replica)) *longhorn.Replica {
		return build.Replica(name, "vol", append(changes, func(r *longhorn.Replica) { r.Labels = labels })...)
	}
	label := map[string]string{types.LabelVolume: "vol"}
	one, two, bare := replica("r1", label), replica("r2", label), replica("r3", nil)
	foreign := build.Replica("o1", "other", func(r *longhorn.Replica) { r.Labels = label })
	for _, tc := range []struct {
		name         string
		cached, live []*longhorn.Replica
		want         bool
	}{
		{"the same → shown", []*longhorn.Replica{one, two}, []*longhorn.Replica{two, one}, true},
		{"one more was made → not shown", []*longhorn.Replica{one}, []*longhorn.Replica{one, two}, false},
		{"one has gone → not shown", []*longhorn.Replica{one, two}, []*longhorn.Replica{one}, false},
		{"one has gone and another was made → not shown", []*longhorn.Replica{one}, []*longhorn.Replica{two}, false},
		{"one without its label → shown", []*longhorn.Replica{one, bare}, []*longhorn.Replica{one}, true},
		{"one of another volume has the label → shown", []*longhorn.Replica{one}, []*longhorn.Replica{foreign, one}, true},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, showsAll(tc.cached, tc.live, "vol")) })
	}
}

func TestWhatHasTheNameOfAChildIsNamedAndLeftAlone(t *testing.T) {
	const exists = `create the engine: create engines.longhorn.io vol-e-0: engines.longhorn.io "vol-e-0" already exists: `
	earlier := func(e *longhorn.Engine) {
		e.OwnerReferences = owner()
		e.OwnerReferences[0].UID = "uid-earlier"
	}
	deleting := func(e *longhorn.Engine) {
		e.DeletionTimestamp, e.Finalizers = &metav1.Time{Time: testutil.Now.Add(-time.Minute)}, []string{"example.com/keep"}
	}
	recent := func(v *longhorn.Volume) { v.CreationTimestamp = metav1.Time{Time: testutil.Now.Add(-59 * time.Second)} }
	old := func(v *longhorn.Volume) { v.CreationTimestamp = metav1.Time{Time: testutil.Now.Add(-time.Minute)} }
	for _, tc := range []struct {
		name    string
		engine  func(*longhorn.Engine)
		volume  func(*longhorn.Volume)
		message string // "": Kubernetes removes it soon, no condition
	}{
		{"of an earlier volume → said", earlier, old, "vol-e-0 is owned by Volume vol with UID uid-earlier, not by this volume; delete it to continue"},
		{"of an earlier volume, just now → it goes by itself", earlier, recent, ""},
		{"of no owner → said", func(*longhorn.Engine) {}, old, "vol-e-0 has no owner; delete it to continue"},
		{"ours, of another volume by its spec → said", func(e *longhorn.Engine) { owned(e); e.Spec.VolumeName = "other" }, recent, `vol-e-0 is owned by this volume, but its spec names volume "other"; delete it to continue`},
		{"deleted for long → said", func(e *longhorn.Engine) { earlier(e); deleting(e) }, old, "vol-e-0 was deleted at 2030-01-02T03:03:05Z, but its finalizers (example.com/keep) block the deletion"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, c := begin(t, build.Volume("vol", finalized, tc.volume), build.Engine("vol", tc.engine),
				build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) { va.OwnerReferences = owner() }))
			_, err := c.sync(t.Context(), "vol")
			if tc.message == "" {
				require.ErrorIs(t, err, queue.ErrStale)
				h.ExpectEvents()
				return
			}
			assert.True(t, apierrors.IsAlreadyExists(err), "%v", err)
			h.ExpectWrites("create secrets/vol-data-plane", "create engines/vol-e-0", "update volumes/vol/status")
			h.ExpectEvents("Warning ChildRefused vol: " + exists + tc.message)
			condition := types.FindCondition(must(c.deps.Volumes.Live(t.Context(), "vol")).Status.Conditions, types.ConditionChildRefused)
			assert.Equal(t, longhorn.ConditionTrue, condition.Status)
			assert.Equal(t, "AlreadyExists", condition.Reason)
			assert.Equal(t, exists+tc.message, condition.Message)
		})
	}
}

func TestAnEngineThatTheCacheDoesNotShowYetIsNoObstacle(t *testing.T) {
	h, c := begin(t, build.Volume("vol", finalized), build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) { va.OwnerReferences = owner() }))
	h.Seed(build.Engine("vol", owned))
	syncOf(t, h, c, queue.ErrStale)
	h.ExpectEvents()
}

// The deletion waits for an engine that only the API server shows. If the cache can never show it, a condition says
// so.
func TestTheDeletionSaysWhichEngineItWaitsFor(t *testing.T) {
	h, c := begin(t, build.Volume("vol", finalized, deletedVolume), build.PlacedReplica("r", "vol", "a", "disk-a", ownedReplica),
		build.Engine("vol", owned, func(e *longhorn.Engine) { e.Spec.VolumeName = "other" }))
	_, err := c.sync(t.Context(), "vol")
	require.Error(t, err)
	h.CatchUp()
	_, err = c.sync(t.Context(), "vol")
	require.Error(t, err)
	h.ExpectEvents(`Warning ChildRefused vol: delete the engine: engine vol-e-0 still exists: vol-e-0 is owned by this volume, but its spec names volume "other"; delete it to continue`)
	for _, w := range h.Writes() {
		assert.False(t, strings.HasPrefix(w, "delete"), w)
	}
}
