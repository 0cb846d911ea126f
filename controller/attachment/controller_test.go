package attachment

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTicketIsServedAndAnsweredOnce(t *testing.T) {
	h := testutil.New(t,
		build.Volume("vol", func(v *longhorn.Volume) { v.Status.State = longhorn.VolumeStateDetached }),
		build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) {
			va.Spec.AttachmentTickets = tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "a")}
		}))
	store := h.Datastore(datastore.Options{})
	c, err := New(Deps{Volumes: store.Volumes, VolumeAttachments: store.VolumeAttachments, Env: h.Env()})
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
