// Package controllers tests how several controllers work together, over one fake API server and a fake clock.
package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/attachment"
	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/controller/sharemanager"
	"github.com/longhorn-lep/longhorn-manager/controller/volume"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

type claims []*corev1.PersistentVolume

func (c claims) Claims(string) ([]*corev1.PersistentVolume, error) { return c, nil }

// sharedVolume has one replica, on node b. A workload on node c uses it.
type sharedVolume struct {
	t     *testing.T
	h     *testutil.Harness
	store *datastore.Datastore
	syncs []func(context.Context, string) (queue.Result, error)
	pods  int // how many were created
}

func newSharedVolume(t *testing.T) *sharedVolume {
	t.Helper()
	owner := []metav1.OwnerReference{{APIVersion: "longhorn.io/v1beta2", Kind: "Volume", Name: "vol", UID: "uid-vol"}}
	down := build.ReadyNode("b", "disk-b", func(n *longhorn.Node) {
		n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: types.ReasonKubernetesNodeNotReady}}
	})
	h := testutil.New(t, down, build.ReadyNode("a", "disk-a"), build.ReadyNode("c", "disk-c"),
		build.KubeNode("a"), build.KubeNode("b"), build.KubeNode("c"),
		build.RunningInstanceManager("a", "10.0.0.1", "p"), build.RunningInstanceManager("c", "10.0.0.3", "p"),
		build.Volume("vol", func(v *longhorn.Volume) {
			types.AddFinalizer(v)
			v.Spec.AccessMode, v.Spec.NumberOfReplicas = longhorn.AccessModeReadWriteMany, 1
			v.Status.State, v.Status.Size = longhorn.VolumeStateDetached, build.GiB
			v.Status.Robustness = longhorn.VolumeRobustnessUnknown
		}),
		build.Engine("vol", func(e *longhorn.Engine) {
			e.OwnerReferences = owner
			types.AddFinalizer(e)
			e.Status.CurrentState = longhorn.InstanceStateStopped
			e.Status.Generation = 3
			e.Status.Epoch = &longhorn.Epoch{Generation: 3, Members: []string{"vol-r-1"}}
		}),
		build.PlacedReplica("vol-r-1", "vol", "b", "disk-b", func(r *longhorn.Replica) {
			r.OwnerReferences = owner
			types.AddFinalizer(r)
			r.Spec.HealthyAt, r.Spec.LastHealthyAt = "2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z"
		}),
		&longhorn.ShareManager{
			ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: "vol", UID: "uid-share", OwnerReferences: owner, Labels: map[string]string{types.LabelVolume: "vol"}},
			Spec:       longhorn.ShareManagerSpec{Image: "image:1"},
		},
		build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) {
			va.OwnerReferences = owner
			va.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{"csi-1": {ID: "csi-1", Type: longhorn.AttacherTypeCSI, NodeID: "c", Generation: 1}}
		}))
	store := h.Datastore(datastore.Options{})
	deps := volume.DepsOf(store)
	deps.Env, deps.Owner, deps.ShareImage = h.Env(), "leader", "image:1"
	volumes, err := volume.New(deps)
	require.NoError(t, err)
	h.EndWithTest(volumes.Run)
	attachments, err := attachment.New(attachment.Deps{
		Env: h.Env(), Volumes: store.Volumes, VolumeAttachments: store.VolumeAttachments, Engines: store.Engines, Replicas: store.Replicas, ShareClients: store.ShareClients,
	})
	require.NoError(t, err)
	h.EndWithTest(attachments.Run)
	shares, err := sharemanager.New(sharemanager.Deps{
		Env: h.Env(), Owner: "leader", Shares: store.ShareManagers, Volumes: store.Volumes, Attachments: store.VolumeAttachments,
		Nodes: store.Nodes, KubeNodes: store.KubeNodes, Pods: store.Pods, Services: store.Services, Slices: store.EndpointSlices, ConfigMap: store.ShareClients, Engines: store.Engines,
		Replicas: store.Replicas, Claims: claims(nil), Classes: store.StorageClasses, Setting: store.Setting,
		Silences: noSilences{}, Managers: store.InstanceManagers,
		Ask: func(context.Context, string) (types.ShareRecovery, error) {
			return types.ShareRecovery{}, errors.New("none")
		},
	})
	require.NoError(t, err)
	h.EndWithTest(shares.Run)
	return &sharedVolume{t: t, h: h, store: store, syncs: []func(context.Context, string) (queue.Result, error){volumes.Sync, attachments.Sync, shares.Sync}}
}

// live lets every controller sync the volume once a second, and does the work of the scheduler and the kubelet. It
// returns the writes.
func (s *sharedVolume) live(d time.Duration) (writes []string) {
	s.t.Helper()
	for range int(d / time.Second) {
		for _, sync := range s.syncs {
			if _, err := sync(s.t.Context(), "vol"); err != nil && !errors.Is(err, queue.ErrStale) && !apierrors.IsConflict(err) {
				s.t.Fatal(err)
			}
			s.h.CatchUp()
		}
		for _, w := range s.h.Writes() {
			writes = append(writes, w)
			if w == "create pods/share-manager-vol" {
				s.pods++
			}
		}
		if pod, err := s.store.Pods.GetRO("share-manager-vol"); err == nil && pod.Spec.NodeName == "" {
			pod = pod.DeepCopy()
			pod.Spec.NodeName, pod.Status.Phase = "a", corev1.PodRunning
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "share-manager", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
			s.h.Overwrite(pod)
			s.h.CatchUp()
		}
		s.h.Clock.Step(time.Second)
	}
	return writes
}

// The node of the only replica is down: the pod of the share stays, and waits for its device.
func TestAFaultedShareAtRestWritesNothing(t *testing.T) {
	s := newSharedVolume(t)
	writes := s.live(2 * time.Minute)
	v, err := s.store.Volumes.GetRO("vol")
	require.NoError(t, err)
	require.Equal(t, longhorn.VolumeRobustnessFaulted, v.Status.Robustness)
	assert.Equal(t, longhorn.VolumeStateAttaching, v.Status.State, "it starts by itself when the node is back")
	assert.Less(t, len(writes), 50)
	assert.Empty(t, s.live(8*time.Minute), "a faulted share at rest writes nothing")
	assert.Equal(t, 1, s.pods)
	assert.Less(t, len(s.h.Recorder.Take()), 10)
	share, err := s.store.ShareManagers.GetRO("vol")
	require.NoError(t, err)
	assert.Equal(t, longhorn.ShareManagerStateStarting, share.Status.State)
	va, err := s.store.VolumeAttachments.GetRO("vol")
	require.NoError(t, err)
	assert.Contains(t, va.Spec.AttachmentTickets, types.ShareTicketID("vol"))
}

// noSilences belongs to a leader that asks no questions.
type noSilences struct{}

func (noSilences) SilentSince(string) time.Time { return time.Time{} }
func (noSilences) OnSilence(func(string))       {}
