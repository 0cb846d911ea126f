package manager

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func (b *bench) tickets(t *testing.T, volume string) map[string]longhorn.AttachmentTicket {
	t.Helper()
	va, err := b.deps.Attachments.Live(t.Context(), volume)
	require.NoError(t, err)
	return va.Spec.AttachmentTickets
}

func TestAttachWritesATicket(t *testing.T) {
	b := newBench(t, append(threeNodes(), detachedVolume("vol"), owned(build.VolumeAttachment("vol"), "vol"))...)
	req := AttachRequest{NodeID: "node-1", TicketID: "csi-1", Attacher: "csi-attacher", AttachedBy: "somebody"}
	view, err := b.AttachVolume(t.Context(), "vol", req)
	require.NoError(t, err)
	b.ExpectWrites("update volumeattachments/vol")
	got := view.Attachment.Spec.AttachmentTickets["csi-1"]
	assert.Equal(t, "csi-1", got.ID)
	assert.Equal(t, csi, got.Type)
	assert.Equal(t, "node-1", got.NodeID)
	assert.Equal(t, int64(1), got.Generation)
	assert.Equal(t, "false", got.Parameters["disableFrontend"])
	assert.Equal(t, "somebody", got.Parameters["lastAttachedBy"])
	assert.Empty(t, view.Volume.Spec.NodeID, "spec.nodeID was written; it is the attachment controller's")

	_, err = b.AttachVolume(t.Context(), "vol", req)
	require.NoError(t, err, "the same again")
	b.ExpectWrites()
}

func TestAttachCreatesAMissingAttachment(t *testing.T) {
	b := newBench(t, append(threeNodes(), detachedVolume("vol"))...)
	view, err := b.AttachVolume(t.Context(), "vol", AttachRequest{NodeID: "node-1"})
	require.NoError(t, err)
	b.ExpectWrites("create volumeattachments/vol")
	va := view.Attachment
	owner := va.OwnerReferences
	assert.Equal(t, "vol", va.Spec.Volume, "attachment %+v", va.ObjectMeta)
	assert.Equal(t, "vol", va.Labels["longhornvolume"])
	assert.Empty(t, va.Finalizers)
	require.Len(t, owner, 1)
	assert.EqualValues(t, "uid-vol", owner[0].UID)
	assert.Equal(t, "Volume", owner[0].Kind)
	assert.Nil(t, owner[0].Controller)
	got := va.Spec.AttachmentTickets[""]
	assert.Equal(t, people, got.Type)
	assert.Equal(t, "node-1", got.NodeID)
}

func TestAttachRefuses(t *testing.T) {
	unready := func(name, reason string) *longhorn.Node {
		return build.ReadyNode(name, "uuid-"+name, func(n *longhorn.Node) {
			n.Status.Conditions = []longhorn.Condition{condition(types.ConditionReady, longhorn.ConditionFalse, reason, "it does not answer")}
		})
	}
	cases := map[string]struct {
		volume string
		req    AttachRequest
		class  error
		field  string
		text   string
	}{
		"a volume that is not there":   {volume: "nix", req: AttachRequest{NodeID: "node-1"}, class: ErrNotFound, text: `volume "nix" does not exist`},
		"no node":                      {volume: "vol", field: "hostId", text: "hostId: must name a node"},
		"a node that is not there":     {volume: "vol", req: AttachRequest{NodeID: "node-9"}, field: "hostId", text: `hostId: "node-9" does not exist: no node has this name`},
		"a node that does not answer":  {volume: "vol", req: AttachRequest{NodeID: "node-4"}, class: ErrConflict, text: `node "node-4" is not ready: KubernetesNodeNotReady: it does not answer`},
		"a node that left the cluster": {volume: "vol", req: AttachRequest{NodeID: "node-5"}, class: ErrConflict, text: `node "node-5" is not ready: KubernetesNodeGone: it does not answer`},
		"an attacher nobody knows":     {volume: "vol", req: AttachRequest{NodeID: "node-1", Attacher: "me"}, field: "attacherType", text: `attacherType: "me" must be longhorn-api or csi-attacher`},
		"a faulted volume":             {volume: "bad", req: AttachRequest{NodeID: "node-1"}, class: ErrConflict, text: `unable to attach volume "bad": volume is faulted`},
		"a volume without a place":     {volume: "homeless", req: AttachRequest{NodeID: "node-1"}, class: ErrConflict, text: `unable to attach volume "homeless": replicas of the volume cannot be placed: no room`},
		"a volume that is being made":  {volume: "young", req: AttachRequest{NodeID: "node-1"}, class: ErrConflict, text: `unable to attach volume "young": volume is creating, not detached`},
		"a second node for one ticket": {volume: "taken", req: AttachRequest{NodeID: "node-1"}, class: ErrConflict, text: `volume "taken" already has attachment "" for node "node-2"; detach it first`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			taken := owned(withTickets(ticket("", people, "node-2")), "taken")
			taken.Name, taken.Spec.Volume = "taken", "taken"
			b := newBench(t, append(threeNodes(), unready("node-4", "KubernetesNodeNotReady"), unready("node-5", "KubernetesNodeGone"), detachedVolume("vol"), detachedVolume("taken"), taken,
				detachedVolume("homeless", func(v *longhorn.Volume) {
					v.Status.Conditions = []longhorn.Condition{condition(types.ConditionScheduled, longhorn.ConditionFalse, types.ReasonReplicaSchedulingFailure, "no room")}
				}), detachedVolume("young", func(v *longhorn.Volume) { v.Status.State = "" }),
				detachedVolume("bad", func(v *longhorn.Volume) { v.Status.Robustness = "faulted" }))...)
			_, err := b.AttachVolume(t.Context(), c.volume, c.req)
			if c.field != "" {
				wantInvalid(t, err, c.field, c.text)
			} else {
				wantProblem(t, err, c.class, c.text)
			}
			b.ExpectWrites()
		})
	}
}

func TestAttachWorksWithoutTheNodesDaemon(t *testing.T) {
	for _, reason := range []string{"ManagerPodDown", "ManagerPodMissing", "InstanceManagerNotReady", "KubernetesNodePressure"} {
		t.Run(reason, func(t *testing.T) {
			node := build.ReadyNode("node-4", "uuid-4", func(n *longhorn.Node) {
				n.Status.Conditions = []longhorn.Condition{condition(types.ConditionReady, longhorn.ConditionFalse, reason, "")}
			})
			b := newBench(t, node, detachedVolume("vol"), owned(build.VolumeAttachment("vol"), "vol"))
			_, err := b.AttachVolume(t.Context(), "vol", AttachRequest{NodeID: "node-4"})
			require.NoError(t, err)
			b.ExpectWrites("update volumeattachments/vol")
		})
	}
}

func TestAttachLostRaces(t *testing.T) {
	clash := apierrors.NewConflict(longhorn.Resource("volumeattachments"), "vol", errors.New("newer"))
	exists := apierrors.NewAlreadyExists(longhorn.Resource("volumeattachments"), "vol")
	many := func(err error, n int) []error {
		errs := make([]error, n)
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	t.Run("two conflicts, then free → written on the third try after growing delays", func(t *testing.T) {
		b := newBench(t, append(threeNodes(), detachedVolume("vol"), owned(build.VolumeAttachment("vol"), "vol"))...)
		b.Fail("update", "volumeattachments", many(clash, 2)...)
		_, err := b.AttachVolume(t.Context(), "vol", AttachRequest{NodeID: "node-1"})
		require.NoError(t, err)
		b.ExpectWrites("update volumeattachments/vol", "update volumeattachments/vol", "update volumeattachments/vol")
		for i, want := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond} {
			got := b.hasty.delays[i]
			assert.GreaterOrEqual(t, got, want*3/4, "delay %d, want %s give or take a quarter", i, want)
			assert.LessOrEqual(t, got, want*5/4, "delay %d, want %s give or take a quarter", i, want)
		}
	})
	t.Run("ten conflicts → a conflict for the caller", func(t *testing.T) {
		b := newBench(t, append(threeNodes(), detachedVolume("vol"), owned(build.VolumeAttachment("vol"), "vol"))...)
		b.Fail("update", "volumeattachments", many(clash, 11)...)
		_, err := b.AttachVolume(t.Context(), "vol", AttachRequest{NodeID: "node-1"})
		wantProblem(t, err, ErrConflict, `other clients changed the attachment of volume "vol" at the same time; try again`)
		assert.Len(t, b.Writes(), 10)
	})
	t.Run("somebody else makes it first → the ticket goes into theirs", func(t *testing.T) {
		b := newBench(t, append(threeNodes(), detachedVolume("vol"))...)
		b.Fail("create", "volumeattachments", exists)
		_, err := b.AttachVolume(t.Context(), "vol", AttachRequest{NodeID: "node-1"})
		require.NoError(t, err)
		b.ExpectWrites("create volumeattachments/vol", "create volumeattachments/vol")
	})
	t.Run("an earlier volume's attachment stays → it is not touched", func(t *testing.T) {
		stranger := owned(build.VolumeAttachment("vol"), "earlier")
		b := newBench(t, append(threeNodes(), detachedVolume("vol"), stranger)...)
		_, err := b.AttachVolume(t.Context(), "vol", AttachRequest{NodeID: "node-1"})
		wantProblem(t, err, ErrConflict, `other clients changed the attachment of volume "vol" at the same time; try again`)
		b.ExpectWrites()
	})
	t.Run("the caller gives up while waiting → its context's error", func(t *testing.T) {
		b := newBench(t, append(threeNodes(), detachedVolume("vol"), owned(build.VolumeAttachment("vol"), "vol"))...)
		b.deps.Clock = b.Clock // timers do not fire
		b.Fail("update", "volumeattachments", many(clash, 10)...)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := b.AttachVolume(ctx, "vol", AttachRequest{NodeID: "node-1"})
			done <- err
		}()
		cancel()
		assert.ErrorIs(t, <-done, context.Canceled)
	})
}

func TestDetach(t *testing.T) {
	two := func() *longhorn.VolumeAttachment {
		return owned(withTickets(ticket("", people, "node-1"), ticket("csi-1", csi, "node-1")), "vol")
	}
	t.Run("an id → that ticket goes", func(t *testing.T) {
		b := newBench(t, detachedVolume("vol"), two())
		view, err := b.DetachVolume(t.Context(), "vol", DetachRequest{TicketID: "csi-1"})
		require.NoError(t, err)
		b.ExpectWrites("update volumeattachments/vol")
		left := b.tickets(t, "vol")
		_, ok := left[""]
		require.True(t, ok)
		assert.Len(t, left, 1)
		assert.Len(t, view.Attachment.Spec.AttachmentTickets, 1)
	})
	t.Run("a ticket the cache does not show yet → it goes all the same", func(t *testing.T) {
		b := newBench(t, detachedVolume("vol"))
		b.Seed(two())
		_, err := b.DetachVolume(t.Context(), "vol", DetachRequest{TicketID: "csi-1"})
		require.NoError(t, err)
		b.ExpectWrites("update volumeattachments/vol")
	})
	t.Run("by force → all go", func(t *testing.T) {
		b := newBench(t, detachedVolume("vol"), two())
		_, err := b.DetachVolume(t.Context(), "vol", DetachRequest{Force: true})
		require.NoError(t, err)
		assert.Empty(t, b.tickets(t, "vol"))
	})
	t.Run("nothing to drop → nothing is written", func(t *testing.T) {
		b := newBench(t, detachedVolume("vol"), detachedVolume("bare"), two())
		for _, volume := range []string{"vol", "bare"} {
			_, err := b.DetachVolume(t.Context(), volume, DetachRequest{TicketID: "csi-9"})
			assert.NoError(t, err, volume)
		}
		b.ExpectWrites()
	})
	t.Run("no such volume → not found", func(t *testing.T) {
		_, err := newBench(t).DetachVolume(t.Context(), "vol", DetachRequest{})
		wantProblem(t, err, ErrNotFound, `volume "vol" does not exist`)
	})
}
