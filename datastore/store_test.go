package datastore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func names[T datastore.Object](objs []T) []string {
	list := []string{}
	for _, obj := range objs {
		list = append(list, obj.GetName())
	}
	return list
}

func onNode(node string) func(*longhorn.Replica) {
	return func(r *longhorn.Replica) { r.Spec.NodeID = node }
}

func TestReadsComeFromTheCacheSortedAndUnshared(t *testing.T) {
	h := testutil.New(t,
		build.Replica("b", "vol", onNode("node-2")), build.Replica("a", "vol", onNode("node-1")),
		build.Replica("c", "other", onNode("node-1"), func(r *longhorn.Replica) { r.Spec.DiskID = "disk-uuid" }))
	replicas := h.Datastore(datastore.Options{}).Replicas

	all, err := replicas.List(labels.Everything())
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c"}, names(all))
	labelled, err := replicas.List(labels.SelectorFromSet(labels.Set{types.LabelVolume: "vol"}))
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b"}, names(labelled))
	for _, c := range []struct {
		index, value string
		want         []string
	}{
		{datastore.IndexVolume, "vol", []string{"a", "b"}},
		{datastore.IndexNode, "node-1", []string{"a", "c"}},
		{datastore.IndexDisk, "disk-uuid", []string{"c"}},
		{datastore.IndexDisk, "", []string{}},
	} {
		got, err := replicas.ByIndex(c.index, c.value)
		require.NoError(t, err, "%s, %q", c.index, c.value)
		assert.Equal(t, c.want, names(got), "%s, %q", c.index, c.value)
	}

	copied, err := replicas.Get("a")
	require.NoError(t, err)
	copied.Spec.NodeID = "changed"
	shared, _ := replicas.GetRO("a")
	assert.Equal(t, "node-1", shared.Spec.NodeID, "Get shares memory with the cache")
	obj, err := replicas.Get("absent")
	assert.True(t, apierrors.IsNotFound(err), err)
	assert.Nil(t, obj)
	_, err = replicas.ByIndex("no-such-index", "x")
	assert.Error(t, err, "an unknown index is no error")
}

func TestWritesCarryTheirPreconditions(t *testing.T) {
	h := testutil.New(t, build.Node("node-1"))
	nodes := h.Datastore(datastore.Options{}).Nodes
	ctx := t.Context()

	first, _ := nodes.Get("node-1")
	second := first.DeepCopy()
	first.Spec.AllowScheduling = false
	first.Status.Region = "ignored by Update"
	updated, err := nodes.Update(ctx, first)
	require.NoError(t, err)
	assert.False(t, updated.Spec.AllowScheduling)
	assert.Empty(t, updated.Status.Region)
	second.Status.Zone = "z"
	obj, err := nodes.UpdateStatus(ctx, second)
	assert.True(t, apierrors.IsConflict(err), err)
	assert.Nil(t, obj)
	updated.Status.Zone = "z"
	updated.Spec.AllowScheduling = true
	updated, err = nodes.UpdateStatus(ctx, updated)
	require.NoError(t, err)
	assert.Equal(t, "z", updated.Status.Zone)
	assert.False(t, updated.Spec.AllowScheduling)

	err = nodes.Delete(ctx, "node-1", datastore.Preconditions{UID: "another"})
	assert.True(t, apierrors.IsConflict(err), "Delete of another UID = %v; want a conflict", err)
	err = nodes.Delete(ctx, "node-1", datastore.Preconditions{ResourceVersion: "1"})
	assert.True(t, apierrors.IsConflict(err), "Delete of an old version = %v; want a conflict", err)
	assert.NoError(t, nodes.Delete(ctx, "node-1", datastore.Preconditions{UID: "uid-node-1", ResourceVersion: updated.ResourceVersion}))
	err = nodes.Delete(ctx, "node-1", datastore.Preconditions{})
	assert.True(t, apierrors.IsNotFound(err), "Delete of an absent object = %v; want not found", err)
	_, err = nodes.Live(ctx, "node-1")
	assert.True(t, apierrors.IsNotFound(err), "Live of an absent object = %v; want not found", err)
}

func TestKindsThatAreNotWatchedAreWrittenAndReadLive(t *testing.T) {
	h := testutil.New(t)
	d := h.Datastore(datastore.Options{Kinds: []datastore.Kind{datastore.Volumes}})
	ctx := t.Context()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: types.Namespace}, Data: map[string][]byte{"key": {1}}}
	_, err := d.Secrets.Create(ctx, secret)
	require.NoError(t, err)
	live, err := d.Secrets.Live(ctx, "s")
	require.NoError(t, err)
	assert.Equal(t, byte(1), live.Data["key"][0])
	_, err = d.Secrets.Get("s")
	require.Error(t, err)
	assert.False(t, apierrors.IsNotFound(err))
	_, err = d.Replicas.AddHandler(cache.ResourceEventHandlerFuncs{})
	assert.Error(t, err, "handling events of a kind that is not watched is no error")
	assert.False(t, d.Secrets.IsStaleIn(datastore.IndexVolume, "vol"))
	assert.True(t, d.Secrets.HasSynced(), "a kind that is not watched waits for a cache")
}

func TestStartedCachesFollowTheServerAndHandlersHear(t *testing.T) {
	h := testutil.New(t, build.Volume("a"), build.KubeNode("node-1", func(n *corev1.Node) {
		n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
		n.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}}
	}))
	d := datastore.New(datastore.Options{Kube: h.Kube, Longhorn: h.Longhorn, Namespace: types.Namespace})
	heard := make(chan string, 10)
	_, err := d.Volumes.AddHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { heard <- "add " + obj.(*longhorn.Volume).Name },
		DeleteFunc: func(obj any) { heard <- "delete " + obj.(*longhorn.Volume).Name },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer d.Wait()
	defer cancel()
	d.Start(ctx)
	require.NoError(t, d.WaitForSync(ctx))
	expect(t, heard, "add a")
	n, err := d.KubeNodes.Get("node-1")
	require.NoError(t, err)
	assert.Nil(t, n.ManagedFields)
	assert.Nil(t, n.Status.Images)

	volume := build.Volume("b")
	_, err = d.Volumes.Create(ctx, volume)
	require.NoError(t, err)
	expect(t, heard, "add b")
	assert.False(t, d.Volumes.IsStaleIn(datastore.IndexVolume, "b"), "stale although the cache shows the new object")
	require.NoError(t, d.Volumes.Delete(ctx, "b", datastore.Preconditions{}))
	expect(t, heard, "delete b")
	_, err = d.Volumes.Get("b")
	assert.True(t, apierrors.IsNotFound(err), "Get after the deletion = %v", err)
}

func expect(t *testing.T, heard <-chan string, want string) {
	t.Helper()
	select {
	case got := <-heard:
		assert.Equal(t, want, got)
	case <-time.After(10 * time.Second):
		t.Fatalf("never heard %q", want)
	}
}

func TestADatastoreOfANodeSelectsByField(t *testing.T) {
	var mu sync.Mutex // guards selectors and lists: each kind lists from a separate goroutine
	selectors, lists := map[string]string{}, 0
	h := testutil.New(t)
	record := func(action clienttesting.Action) (bool, error) {
		r := action.(clienttesting.ListAction).GetListRestrictions()
		text := r.Fields.String()
		if l := r.Labels.String(); l != "" {
			text += "|" + l
		}
		mu.Lock()
		defer mu.Unlock()
		selectors[action.GetResource().Resource+"."+action.GetResource().Group] = text
		lists++
		return false, nil
	}
	for _, fake := range []*clienttesting.Fake{&h.Kube.Fake, &h.Longhorn.Fake} {
		fake.PrependReactor("list", "*", listReaction(record))
	}
	d := datastore.New(datastore.Options{
		Kube: h.Kube, Longhorn: h.Longhorn, Namespace: types.Namespace, Node: "node-1", PodLabels: "app=longhorn-manager",
		Kinds: []datastore.Kind{
			datastore.Volumes, datastore.VolumeAttachments, datastore.Engines, datastore.Replicas, datastore.Nodes,
			datastore.Settings, datastore.InstanceManagers, datastore.Pods, datastore.KubeNodes,
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	d.Start(ctx)
	err := d.WaitForSync(ctx)
	cancel()
	d.Wait()
	require.NoError(t, err)
	require.Equal(t, 9, lists)
	want := map[string]string{
		"volumes.longhorn.io": "", "volumeattachments.longhorn.io": "", "settings.longhorn.io": "",
		"engines.longhorn.io": "spec.nodeID=node-1", "replicas.longhorn.io": "spec.nodeID=node-1",
		"instancemanagers.longhorn.io": "spec.nodeID=node-1", "nodes.longhorn.io": "metadata.name=node-1",
		"nodes.": "metadata.name=node-1", "pods.": "spec.nodeName=node-1|app=longhorn-manager",
	}
	for resource, selector := range want {
		got, ok := selectors[resource]
		require.True(t, ok, resource)
		assert.Equal(t, selector, got, resource)
	}
}

// TestOptionalKindsAreNotWaitedFor: the role of an earlier release does not grant them.
func TestOptionalKindsAreNotWaitedFor(t *testing.T) {
	h := testutil.New(t)
	asked := make(chan string, 100)
	h.Kube.PrependReactor("list", "configmaps", listReaction(func(action clienttesting.Action) (bool, error) {
		select {
		case asked <- action.(clienttesting.ListAction).GetListRestrictions().Fields.String():
		default:
		}
		return true, apierrors.NewForbidden(action.GetResource().GroupResource(), "", errors.New("no rule"))
	}))
	d := datastore.New(datastore.Options{Kube: h.Kube, Longhorn: h.Longhorn, Namespace: types.Namespace})
	ctx, cancel := context.WithCancel(t.Context())
	d.Start(ctx)
	err := d.WaitForSync(ctx)
	require.NoError(t, err)
	assert.False(t, d.DefaultSettings.HasSynced(), "the ConfigMap's cache is filled")
	// Each is requested only by its name, repeatedly, and in no order.
	missing := map[string]bool{"metadata.name=longhorn-default-setting": true, "metadata.name=longhorn-storageclass": true}
	for deadline := time.After(10 * time.Second); len(missing) > 0; {
		select {
		case selector := <-asked:
			delete(missing, selector)
		case <-deadline:
			t.Fatalf("never asked for %v", missing)
		}
	}
	cancel()
	d.Wait()
}

func TestANamedKindShowsNothingElse(t *testing.T) {
	h := testutil.New(t, build.ConfigMap("longhorn-default-setting", "a", "1"), build.ConfigMap("another", "a", "2"))
	d := h.Datastore(datastore.Options{})
	cm, err := d.DefaultSettings.Get("longhorn-default-setting")
	require.NoError(t, err)
	assert.Equal(t, "1", cm.Data["a"])
	_, err = d.DefaultSettings.Get("another")
	assert.True(t, apierrors.IsNotFound(err), "another ConfigMap: %v", err)
}

func TestWaitForSyncNamesWhatIsMissing(t *testing.T) {
	h := testutil.New(t)
	h.Longhorn.PrependReactor("list", "volumes", listReaction(func(clienttesting.Action) (bool, error) {
		return true, errors.New("down")
	}))
	d := datastore.New(datastore.Options{
		Kube: h.Kube, Longhorn: h.Longhorn, Namespace: types.Namespace,
		Kinds: []datastore.Kind{datastore.Volumes},
	})
	ctx, cancel := context.WithCancel(t.Context())
	d.Start(ctx)
	cancel()
	err := d.WaitForSync(ctx)
	d.Wait()
	assert.ErrorContains(t, err, "caches of volumes: context canceled")
}

func TestASettingThatIsMissingIsEmpty(t *testing.T) {
	h := testutil.New(t, build.Setting(settings.DefaultReplicaCount, "2"))
	d := h.Datastore(datastore.Options{})
	assert.Equal(t, "2", d.Setting(settings.DefaultReplicaCount))
	assert.Empty(t, d.Setting(settings.DefaultDataPath))
}
