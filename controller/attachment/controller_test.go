package attachment

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTicketIsServedAndAnsweredOnce(t *testing.T) {
	h := testutil.New(t,
		build.Volume("vol", func(v *longhorn.Volume) { v.Status.State = longhorn.VolumeStateDetached }),
		build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) {
			va.Spec.AttachmentTickets = tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "a")}
		}))
	store := h.Datastore(datastore.Options{})
	c, err := New(Deps{Volumes: store.Volumes, VolumeAttachments: store.VolumeAttachments, Engines: store.Engines, Replicas: store.Replicas, ShareClients: store.ShareClients, Env: h.Env()})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	sync := func() {
		t.Helper()
		_, err := c.sync(t.Context(), "vol")
		require.NoError(t, err)
	}
	sync()
	h.ExpectWrites("update volumes/vol", "update volumeattachments/vol/status")
	h.CatchUp()
	v, err := store.Volumes.GetRO("vol")
	require.NoError(t, err)
	require.Equal(t, "a", v.Spec.NodeID)
	h.Overwrite(build.Volume("vol", func(v *longhorn.Volume) {
		v.Spec.NodeID = "a"
		v.Status.State, v.Status.CurrentNodeID, v.Status.Robustness = longhorn.VolumeStateAttached, "a", longhorn.VolumeRobustnessDegraded
	}))
	h.CatchUp()
	sync()
	h.ExpectWrites("update volumeattachments/vol/status")
	h.CatchUp()
	va, err := store.VolumeAttachments.GetRO("vol")
	require.NoError(t, err)
	assert.True(t, va.Status.AttachmentTicketStatuses["x"].Satisfied, "a degraded volume does not satisfy: %+v", va.Status)
	sync()
	h.ExpectWrites() // at rest nothing is written
}

// A strict-local volume is attached only to the node with its data. A ticket for another node is checked again, because
// there is no event when the data has moved.
func TestStrictLocalVolumeGoesWhereItsDataIs(t *testing.T) {
	owner := []metav1.OwnerReference{{UID: "uid-vol"}}
	earlier := []metav1.OwnerReference{{UID: "uid-of-an-earlier-one"}}
	h := testutil.New(t,
		build.Volume("vol", func(v *longhorn.Volume) {
			v.Spec.DataLocality, v.Status.State = longhorn.DataLocalityStrictLocal, longhorn.VolumeStateDetached
		}),
		build.Engine("vol", func(e *longhorn.Engine) {
			e.OwnerReferences, e.Status.Epoch = owner, &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"r-1", "r-2"}}
		}),
		build.PlacedReplica("r-1", "vol", "b", "disk-b", func(r *longhorn.Replica) { r.OwnerReferences = owner }),
		build.PlacedReplica("r-2", "vol", "a", "disk-a", func(r *longhorn.Replica) { r.OwnerReferences = earlier }),
		build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) {
			va.Spec.AttachmentTickets = tickets{"x": ticket("x", longhorn.AttacherTypeAPI, "a")}
		}))
	store := h.Datastore(datastore.Options{})
	c, err := New(Deps{Volumes: store.Volumes, VolumeAttachments: store.VolumeAttachments, Engines: store.Engines, Replicas: store.Replicas, ShareClients: store.ShareClients, Env: h.Env()})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	result, err := c.sync(t.Context(), "vol")
	require.NoError(t, err)
	h.ExpectWrites("update volumeattachments/vol/status")
	assert.Equal(t, lookAgain, result.RequeueAfter)
	h.CatchUp()
	va, err := store.VolumeAttachments.GetRO("vol")
	require.NoError(t, err)
	satisfied := types.FindCondition(va.Status.AttachmentTicketStatuses["x"].Conditions, types.ConditionSatisfied)
	assert.Contains(t, satisfied.Message, `its data is on node "b"`)
	result, err = c.sync(t.Context(), "vol")
	require.NoError(t, err)
	h.ExpectWrites() // at rest nothing is written
	assert.Equal(t, lookAgain, result.RequeueAfter)
}
