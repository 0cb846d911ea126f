package volume

import (
	"errors"
	"strings"
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
	for i, node := range []string{"a", "b", "c"} {
		objs = append(objs, build.ReadyNode(node, "disk-"+node), build.RunningInstanceManager(node, "10.0.0."+string(rune('1'+i)), "p"))
	}
	h := testutil.New(t, objs...)
	d := DepsOf(h.Datastore(datastore.Options{}))
	d.Env, d.Owner = h.Env(), "leader"
	c, err := New(d)
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	return h, c
}

func syncOf(t *testing.T, h *testutil.Harness, c *Controller, want error) {
	t.Helper()
	_, err := c.sync(t.Context(), "vol")
	require.ErrorIs(t, err, want)
}

func TestVolumeFromClaimToReplicas(t *testing.T) {
	h, c := begin(t, build.Volume("vol"))
	syncOf(t, h, c, nil)
	h.ExpectWrites("update volumes/vol") // finalizer
	h.CatchUp()
	syncOf(t, h, c, nil)
	h.ExpectWrites("create volumeattachments/vol", "create secrets/vol-data-plane", "create engines/vol-e-0", "update volumes/vol/status")
	h.CatchUp()
	syncOf(t, h, c, nil)
	writes := h.Writes()
	require.Len(t, writes, 4)
	require.True(t, strings.HasPrefix(writes[0], "create replicas/vol-r-"), writes[0])
	require.Equal(t, "update volumes/vol/status", writes[3])

	// The cache is late: the controller must not create a second set of replicas.
	syncOf(t, h, c, queue.ErrStale)
	h.ExpectWrites()

	h.CatchUp()
	syncOf(t, h, c, nil)
	h.CatchUp()
	h.Writes()
	syncOf(t, h, c, nil)
	h.ExpectWrites() // at rest, it writes nothing
}

func TestNoRoomIsSaidOnceAndNothingIsMade(t *testing.T) {
	engine := build.Engine("vol", owned)
	h, c := begin(t, build.Volume("vol", finalized, func(v *longhorn.Volume) { v.Spec.Size = 1000 * build.GiB }),
		engine, build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) { va.OwnerReferences = owner() }))
	syncOf(t, h, c, nil)
	h.ExpectWrites("update volumes/vol/status")
	events := h.Recorder.Take()
	require.Len(t, events, 1)
	assert.Contains(t, events[0], "insufficient storage")
	h.CatchUp()
	syncOf(t, h, c, nil)
	h.ExpectWrites()
	h.ExpectEvents()
}

func owner() []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "longhorn.io/v1beta2", Kind: "Volume", Name: "vol", UID: "uid-vol"}}
}
func owned(e *longhorn.Engine)           { e.OwnerReferences = owner() }
func ownedReplica(r *longhorn.Replica)   { r.OwnerReferences = owner(); types.AddFinalizer(r) }
func finalized(v *longhorn.Volume)       { types.AddFinalizer(v) }
func deletedVolume(v *longhorn.Volume)   { v.DeletionTimestamp = &metav1.Time{Time: testutil.Now} }
func deletedReplica(r *longhorn.Replica) { r.DeletionTimestamp = &metav1.Time{Time: testutil.Now} }

func TestDeletionKeepsReplicasWhileAnEngineIsThere(t *testing.T) {
	// The engine is missing from the cache, but not from the API server.
	h, c := begin(t, build.Volume("vol", finalized, deletedVolume), build.PlacedReplica("r", "vol", "a", "disk-a", ownedReplica))
	h.Seed(build.Engine("vol", owned, func(e *longhorn.Engine) { e.Spec.NodeID = "a"; e.Status.CurrentState = longhorn.InstanceStateRunning }))
	syncOf(t, h, c, queue.ErrStale)
	h.ExpectWrites("update volumes/vol/status")
}

func TestDeletionOfReplicasThenOfTheVolume(t *testing.T) {
	h, c := begin(t, build.Volume("vol", finalized, deletedVolume), build.PlacedReplica("r", "vol", "a", "disk-a", ownedReplica))
	syncOf(t, h, c, nil)
	h.ExpectWrites("update volumes/vol/status", "delete replicas/r")
	h.CatchUp()
	syncOf(t, h, c, nil)
	h.ExpectWrites() // its node has not removed the data yet
	r := must(c.deps.Replicas.(*datastore.Store[*longhorn.Replica]).Get("r"))
	types.RemoveFinalizer(r)
	_, err := c.deps.Replicas.Update(t.Context(), r)
	require.NoError(t, err)
	h.CatchUp()
	h.Writes()
	syncOf(t, h, c, nil)
	h.ExpectWrites("update volumes/vol")
}

// Another volume of the same name was created and deleted before the cache shows it. Its own plan must delete its
// replicas.
func TestDeletionOfAVolumeThatIsAnotherOneByNow(t *testing.T) {
	h, c := begin(t, build.Volume("vol", finalized, deletedVolume), build.PlacedReplica("r", "vol", "a", "disk-a", ownedReplica))
	away := errors.New("away")
	h.Fail("delete", "replicas", away)
	syncOf(t, h, c, away)
	h.CatchUp()
	h.Writes()
	h.Overwrite(build.Volume("vol", finalized, deletedVolume, func(v *longhorn.Volume) { v.UID = "later" }))
	syncOf(t, h, c, queue.ErrStale)
	h.ExpectWrites()
}

func TestReplicasOfAnEarlierVolumeAreNotTouched(t *testing.T) {
	h, c := begin(t, build.Volume("vol", finalized, deletedVolume),
		build.PlacedReplica("mine", "vol", "away", "disk-away", ownedReplica, deletedReplica),
		build.PlacedReplica("old", "vol", "b", "disk-b", func(r *longhorn.Replica) {
			r.OwnerReferences = owner()
			r.OwnerReferences[0].UID = "an earlier one"
		}))
	syncOf(t, h, c, nil)
	h.ExpectWrites("update volumes/vol/status", "update volumes/vol")
}
