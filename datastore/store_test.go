package datastore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	if err != nil || !slices.Equal(names(all), []string{"a", "b", "c"}) {
		t.Errorf("List = %v, %v", names(all), err)
	}
	labelled, err := replicas.List(labels.SelectorFromSet(labels.Set{types.LabelVolume: "vol"}))
	if err != nil || !slices.Equal(names(labelled), []string{"a", "b"}) {
		t.Errorf("List by label = %v, %v", names(labelled), err)
	}
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
		if err != nil || !slices.Equal(names(got), c.want) {
			t.Errorf("ByIndex(%s, %q) = %v, %v; want %v", c.index, c.value, names(got), err, c.want)
		}
	}

	copied, err := replicas.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	copied.Spec.NodeID = "changed"
	if shared, _ := replicas.GetRO("a"); shared.Spec.NodeID != "node-1" {
		t.Error("Get shares memory with the cache")
	}
	if obj, err := replicas.Get("absent"); !apierrors.IsNotFound(err) || obj != nil {
		t.Errorf("Get of an absent object = %v, %v", obj, err)
	}
	if _, err := replicas.ByIndex("no-such-index", "x"); err == nil {
		t.Error("an unknown index is no error")
	}
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
	if err != nil || updated.Spec.AllowScheduling || updated.Status.Region != "" {
		t.Errorf("Update = %+v, %v; want the spec alone to change", updated, err)
	}
	second.Status.Zone = "z"
	if obj, err := nodes.UpdateStatus(ctx, second); !apierrors.IsConflict(err) || obj != nil {
		t.Errorf("UpdateStatus of an old version = %v, %v; want a conflict and no object", obj, err)
	}
	updated.Status.Zone = "z"
	updated.Spec.AllowScheduling = true
	updated, err = nodes.UpdateStatus(ctx, updated)
	if err != nil || updated.Status.Zone != "z" || updated.Spec.AllowScheduling {
		t.Errorf("UpdateStatus = %+v, %v; want the status alone to change", updated, err)
	}

	if err := nodes.Delete(ctx, "node-1", datastore.Preconditions{UID: "another"}); !apierrors.IsConflict(err) {
		t.Errorf("Delete of another UID = %v; want a conflict", err)
	}
	if err := nodes.Delete(ctx, "node-1", datastore.Preconditions{ResourceVersion: "1"}); !apierrors.IsConflict(err) {
		t.Errorf("Delete of an old version = %v; want a conflict", err)
	}
	if err := nodes.Delete(ctx, "node-1", datastore.Preconditions{UID: "uid-node-1", ResourceVersion: updated.ResourceVersion}); err != nil {
		t.Errorf("Delete = %v", err)
	}
	if err := nodes.Delete(ctx, "node-1", datastore.Preconditions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Delete of an absent object = %v; want not found", err)
	}
	if _, err := nodes.Live(ctx, "node-1"); !apierrors.IsNotFound(err) {
		t.Errorf("Live of an absent object = %v; want not found", err)
	}
}

func TestKindsThatAreNotWatchedAreWrittenAndReadLive(t *testing.T) {
	h := testutil.New(t)
	d := h.Datastore(datastore.Options{Kinds: []datastore.Kind{datastore.Volumes}})
	ctx := t.Context()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: types.Namespace}, Data: map[string][]byte{"key": {1}}}
	if _, err := d.Secrets.Create(ctx, secret); err != nil {
		t.Fatal(err)
	}
	if live, err := d.Secrets.Live(ctx, "s"); err != nil || live.Data["key"][0] != 1 {
		t.Errorf("Live = %v, %v", live, err)
	}
	if _, err := d.Secrets.Get("s"); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("Get from a cache that is not there = %v; want an error other than not found", err)
	}
	if _, err := d.Replicas.AddHandler(cache.ResourceEventHandlerFuncs{}); err == nil {
		t.Error("handling events of a kind that is not watched is no error")
	}
	if d.Secrets.IsStaleIn(datastore.IndexVolume, "vol") || !d.Secrets.HasSynced() {
		t.Error("a kind that is not watched waits for a cache")
	}
}

func TestStartedCachesFollowTheServerAndHandlersHear(t *testing.T) {
	h := testutil.New(t, build.Volume("a"), build.KubeNode("node-1", func(n *corev1.Node) {
		n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
		n.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}}
	}))
	d := datastore.New(datastore.Options{Kube: h.Kube, Longhorn: h.Longhorn, Namespace: types.Namespace})
	heard := make(chan string, 10)
	if _, err := d.Volumes.AddHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { heard <- "add " + obj.(*longhorn.Volume).Name },
		DeleteFunc: func(obj any) { heard <- "delete " + obj.(*longhorn.Volume).Name },
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer d.Wait()
	defer cancel()
	d.Start(ctx)
	if err := d.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	expect(t, heard, "add a")
	if n, err := d.KubeNodes.Get("node-1"); err != nil || n.ManagedFields != nil || n.Status.Images != nil {
		t.Errorf("cached node = %+v, %v; want it without managed fields and images", n, err)
	}

	volume := build.Volume("b")
	if _, err := d.Volumes.Create(ctx, volume); err != nil {
		t.Fatal(err)
	}
	expect(t, heard, "add b")
	if d.Volumes.IsStaleIn(datastore.IndexVolume, "b") {
		t.Error("stale although the cache shows the new object")
	}
	if err := d.Volumes.Delete(ctx, "b", datastore.Preconditions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, heard, "delete b")
	if _, err := d.Volumes.Get("b"); !apierrors.IsNotFound(err) {
		t.Errorf("Get after the deletion = %v", err)
	}
}

func expect(t *testing.T, heard <-chan string, want string) {
	t.Helper()
	select {
	case got := <-heard:
		if got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("never heard %q", want)
	}
}

func TestADatastoreOfANodeSelectsByField(t *testing.T) {
	var mu sync.Mutex // guards selectors and lists: each kind lists from a goroutine
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
	})
	ctx, cancel := context.WithCancel(t.Context())
	d.Start(ctx)
	err := d.WaitForSync(ctx)
	cancel()
	d.Wait()
	if err != nil || lists != 9 {
		t.Fatalf("WaitForSync = %v after %d lists; want 9", err, lists)
	}
	want := map[string]string{
		"volumes.longhorn.io": "", "volumeattachments.longhorn.io": "", "settings.longhorn.io": "",
		"engines.longhorn.io": "spec.nodeID=node-1", "replicas.longhorn.io": "spec.nodeID=node-1",
		"instancemanagers.longhorn.io": "spec.nodeID=node-1", "nodes.longhorn.io": "metadata.name=node-1",
		"nodes.": "metadata.name=node-1", "pods.": "spec.nodeName=node-1|app=longhorn-manager",
	}
	for resource, selector := range want {
		if got, ok := selectors[resource]; !ok || got != selector {
			t.Errorf("%s listed with %q, want %q", resource, got, selector)
		}
	}
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
	if err == nil || !strings.Contains(err.Error(), "caches of volumes: context canceled") {
		t.Errorf("WaitForSync = %v", err)
	}
}

func TestASettingThatIsMissingIsEmpty(t *testing.T) {
	h := testutil.New(t, build.Setting(types.SettingDefaultReplicaCount, "2"))
	d := h.Datastore(datastore.Options{})
	if got := d.Setting(types.SettingDefaultReplicaCount); got != "2" {
		t.Errorf("Setting = %q", got)
	}
	if got := d.Setting(types.SettingDefaultDataPath); got != "" {
		t.Errorf("missing Setting = %q", got)
	}
}
