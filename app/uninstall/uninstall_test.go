package uninstall

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// expectNothingLeft checks that nothing of the installation is left, and that other objects stay.
func (c *cluster) expectNothingLeft() {
	c.t.Helper()
	for k := range kindOf {
		switch k {
		case kubeNodes:
			assert.Equal(c.t, []string{"a", "b"}, c.names(k))
		case storageClasses:
			assert.Equal(c.t, []string{"standard"}, c.names(k))
		case clusterRoles:
			assert.Equal(c.t, []string{"admin"}, c.names(k))
		case kubeAttachments:
			assert.Equal(c.t, []string{"csi-2"}, c.names(k))
		case persistentVolumes:
			other := c.get(k, "pv-of-another")
			assert.Nil(c.t, other.GetDeletionTimestamp())
			assert.Equal(c.t, []string{provisionerFinalizer, "external-attacher/another"}, other.GetFinalizers())
			pv := c.get(k, "pv")
			assert.NotNil(c.t, pv.GetDeletionTimestamp())
			assert.Equal(c.t, []string{"kubernetes.io/pv-protection"}, pv.GetFinalizers(), "Kubernetes takes it when the claim is gone")
		default:
			assert.Empty(c.t, c.names(k), k.Resource)
		}
	}
	if c.t.Failed() {
		c.t.Log(c.out.String())
	}
}

func TestUninstallWithTheManagerRunning(t *testing.T) {
	c := newCluster(t)
	c.install(true, "a", "b")
	c.confirm()
	require.True(t, c.run(false).Done)
	c.expectNothingLeft()
	assert.ElementsMatch(t, []string{"/disk/replicas/v-a", "/disk/replicas/v-b"}, c.removed, "the daemons remove the data")
	assert.NotContains(t, c.out.String(), "stays in")
}

func TestUninstallWithTheManagerGone(t *testing.T) {
	c := newCluster(t)
	c.install(false, "a", "b")
	c.confirm()
	require.True(t, c.run(false).Done)
	c.expectNothingLeft()
	assert.Empty(t, c.removed)
	assert.Contains(t, c.out.String(), "the data of replica v-r-a stays in /disk/replicas/v-a on node a: no daemon of this installation runs there")
}

func TestUninstallWithTheNamespaceTerminating(t *testing.T) {
	c := newCluster(t)
	c.install(true, "a", "b")
	c.delete(namespaces.GroupVersionResource, types.Namespace)
	for _, name := range c.names(globalSettings) { // the settings are gone first, so none of them can confirm
		c.delete(globalSettings.GroupVersionResource, name)
	}
	for _, name := range c.names(daemonSets) {
		c.delete(daemonSets.GroupVersionResource, name)
	}
	p, err := round(t.Context(), c.options(false))
	require.NoError(t, err)
	require.Contains(t, p.Refused, "there is data: volume v")
	require.True(t, c.run(true).Done)
	c.expectNothingLeft()
}

func TestUninstallWithTheDefinitionsBeingDeleted(t *testing.T) {
	c := newCluster(t)
	c.install(false, "a", "b")
	for _, name := range c.names(definitions) {
		c.delete(definitions.GroupVersionResource, name)
	}
	c.step()
	assert.Empty(t, c.names(globalSettings), "the settings go first")
	assert.Equal(t, []string{"v"}, c.names(volumes), "what stands for data is held by its finalizer")
	require.True(t, c.run(true).Done)
	c.expectNothingLeft()
}

func TestUninstallWithANodeDead(t *testing.T) {
	c := newCluster(t)
	c.install(true, "a")
	c.confirm()
	require.True(t, c.run(false).Done)
	c.expectNothingLeft()
	assert.Equal(t, []string{"/disk/replicas/v-a"}, c.removed)
	assert.Contains(t, c.out.String(), "the data of replica v-r-b stays in /disk/replicas/v-b on node b: no daemon of this installation runs there")
	assert.Contains(t, c.out.String(), "processes of pod im-b may run there until the node restarts")
}

func TestNothingIsChangedWithoutConfirmation(t *testing.T) {
	c := newCluster(t)
	c.install(true, "a", "b")
	err := Run(t.Context(), c.options(false))
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	assert.Contains(t, err.Error(), "there is data: volume v. To delete it")
	assert.Contains(t, err.Error(), "This run removed nothing")
	assert.Zero(t, c.writes)
}

// TestAnInterruptedRunCanBeRepeated: each write fails once, while the other components continue.
func TestAnInterruptedRunCanBeRepeated(t *testing.T) {
	whole := newCluster(t)
	whole.install(false, "a")
	require.True(t, whole.run(true).Done)
	require.Greater(t, whole.writes, 40)
	for n := 1; n <= whole.writes; n++ {
		c := newCluster(t)
		c.install(false, "a")
		c.fail = n
		require.True(t, c.run(true).Done)
		c.expectNothingLeft()
		require.Contains(t, c.out.String(), "the API server is away")
	}
}

// TestAFinalizerIsRemovedOnlyAfterASecondRead: a daemon is back at the second look.
func TestAFinalizerIsRemovedOnlyAfterASecondRead(t *testing.T) {
	c := newCluster(t)
	c.install(false, "a", "b")
	for _, k := range []Kind{policies, policyBindings} {
		c.objects[k.GroupVersionResource] = nil
	}
	c.delete(configMaps.GroupVersionResource, types.StorageClassConfigMap)
	c.delete(storageClasses.GroupVersionResource, "longhorn")
	for _, k := range []Kind{volumes, engines, replicas} {
		for _, name := range c.names(k) {
			c.delete(k.GroupVersionResource, name)
		}
	}
	s, err := observe(t.Context(), c.options(true))
	require.NoError(t, err)
	require.Contains(t, did(plan(s)), "strip replicas/v-r-a")
	back := &comeBack{Options: c.options(true), c: c}
	c.client.PrependReactor("list", "pods", back.react)
	_, err = round(t.Context(), back.Options)
	require.ErrorContains(t, err, "must keep its finalizer for now")
	assert.Equal(t, []string{"v-r-a", "v-r-b"}, c.names(replicas))
}

func TestItEndsWithItsContext(t *testing.T) {
	c := newCluster(t)
	c.install(true)
	c.confirm()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, Run(ctx, c.options(false)), "run it again to continue")
}

// TestAWrongNamespaceIsRefused: the given namespace has nothing of the installation. Nothing is removed, although the
// definitions belong to no namespace.
func TestAWrongNamespaceIsRefused(t *testing.T) {
	for _, forced := range []bool{false, true} {
		c := newCluster(t)
		c.install(true, "a", "b")
		c.add(namespaces, "storage", nil, "kubernetes")
		o := c.options(forced)
		o.Namespace = "storage"
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := Run(ctx, o)
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		assert.Contains(t, err.Error(), "namespace storage is given, but ")
		assert.Contains(t, err.Error(), "is in namespace "+types.Namespace)
		assert.Contains(t, err.Error(), "--namespace="+types.Namespace)
		assert.Zero(t, c.writes)
	}
}

// TestANamespaceWithoutOurLabelStays: the namespace may belong to other software. The installation's objects in it
// are removed.
func TestANamespaceWithoutOurLabelStays(t *testing.T) {
	c := newCluster(t)
	c.install(true, "a", "b")
	c.confirm()
	c.get(namespaces, types.Namespace).SetLabels(nil)
	p := c.run(false)
	assert.Equal(t, "namespace longhorn-system stays: it has no label longhorn.io/installation=lep; if only the installation used it, delete it manually", p.Stays)
	assert.Nil(t, c.get(namespaces, types.Namespace).GetDeletionTimestamp())
	assert.Empty(t, c.names(definitions))
	assert.Empty(t, c.names(daemonSets))
}

// TestAVolumeCreatedDuringTheRunIsRefused: the volume is provisioned just before the provisioner's pod stops. Until
// its deletion is confirmed, the policies stay. The error names the objects that were removed.
func TestAVolumeCreatedDuringTheRunIsRefused(t *testing.T) {
	c := newCluster(t)
	c.install(true, "a", "b")
	for _, k := range []Kind{volumes, replicas, engines, attachments} {
		c.objects[k.GroupVersionResource] = nil
	}
	c.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if c.get(deployments, "longhorn-csi-controller") == nil && c.get(pods, "longhorn-csi-controller-1") != nil {
			c.strip(pods.GroupVersionResource, "longhorn-csi-controller-1")
			c.delete(pods.GroupVersionResource, "longhorn-csi-controller-1")
			c.add(volumes, "pvc-1", nil, types.Finalizer)
		}
		return false, nil, nil
	})
	o := c.options(false)
	o.Clock = clock.RealClock{}
	o.Every = time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := Run(ctx, o)
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	assert.Contains(t, err.Error(), "there is data: volume pvc-1. ")
	assert.Contains(t, err.Error(), "This run has removed configmaps/longhorn-storageclass, storageclasses/longhorn, deployments/longhorn-csi-controller; "+
		"apply deploy/longhorn.yaml again to restore them")
	assert.Len(t, c.names(policies), len(policyNames))
	assert.Len(t, c.names(policyBindings), len(policyNames))
	assert.Empty(t, c.get(volumes, "pvc-1").GetDeletionTimestamp())
}

// TestUnrelatedPodsAreNotWaitedFor: only the deletion of the namespace removes the pod, also on a dead node.
func TestUnrelatedPodsAreNotWaitedFor(t *testing.T) {
	c := newCluster(t)
	c.install(true, "a")
	c.confirm()
	for _, n := range []string{"a", "b"} {
		c.add(pods, "curl-"+n, map[string]any{"spec": map[string]any{"nodeName": n}}, kubelet)
	}
	require.True(t, c.run(false).Done)
	c.expectNothingLeft()
	assert.NotContains(t, c.out.String(), "force pods curl-a")
	assert.Contains(t, c.out.String(), "the namespace: force pods curl-b")
}
