package attachment

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// A share admits the addresses of nodes that it knows. So a shared volume is published to a node only once the node's
// addresses are known.
func TestASharedVolumeWaitsForTheAddressesOfANode(t *testing.T) {
	list := func(waiting string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: types.ShareClientsConfigMap},
			Data:       map[string]string{types.ShareClientsKey: "10.0.0.1\n", types.ShareClientsWaitingKey: waiting},
		}
	}
	h := testutil.New(t, list("new\nother\n"),
		build.Volume("vol", func(v *longhorn.Volume) {
			v.Spec.AccessMode = longhorn.AccessModeReadWriteMany
			v.Status.State, v.Status.ShareState, v.Status.ShareEndpoint = longhorn.VolumeStateAttached, longhorn.ShareManagerStateRunning, "nfs://10.0.0.9/vol"
		}),
		build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) {
			va.Spec.AttachmentTickets = tickets{
				"a": ticket("a", longhorn.AttacherTypeCSI, "a"), "n": ticket("n", longhorn.AttacherTypeCSI, "new"),
				"s": ticket("s", longhorn.AttacherTypeShareManager, "new"),
			}
		}),
		build.VolumeAttachment("elsewhere", func(va *longhorn.VolumeAttachment) {
			va.Spec.AttachmentTickets = tickets{"a": ticket("a", longhorn.AttacherTypeCSI, "a"), "s": ticket("s", longhorn.AttacherTypeShareManager, "new")}
		}))
	store := h.Datastore(datastore.Options{})
	c, err := New(Deps{Volumes: store.Volumes, VolumeAttachments: store.VolumeAttachments, Engines: store.Engines, Replicas: store.Replicas, ShareClients: store.ShareClients, Env: h.Env()})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	h.CatchUp()
	statuses := func() map[string]longhorn.AttachmentTicketStatus {
		t.Helper()
		_, err := c.sync(t.Context(), "vol")
		require.NoError(t, err)
		h.CatchUp()
		va, err := store.VolumeAttachments.GetRO("vol")
		require.NoError(t, err)
		return va.Status.AttachmentTicketStatuses
	}
	got := statuses()
	assert.True(t, got["a"].Satisfied)
	assert.False(t, got["n"].Satisfied)
	satisfied := types.FindCondition(got["n"].Conditions, types.ConditionSatisfied)
	assert.Equal(t, types.ReasonClientsNotKnown, satisfied.Reason)
	assert.Contains(t, satisfied.Message, "until the daemon of node new reports the node's addresses")

	known := list("other\n")
	assert.Equal(t, []string{"vol"}, c.whenWaiting(list("new\nother\n"), known))
	assert.Equal(t, []string{"vol"}, c.whenWaiting(known, list("new\nother\n")))
	assert.Equal(t, []string{"vol"}, c.whenWaiting(list("new\n"), nil))
	assert.Empty(t, c.whenWaiting(known, known))
	h.Overwrite(known)
	h.CatchUp()
	assert.True(t, statuses()["n"].Satisfied)
}
