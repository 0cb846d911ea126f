package uninstall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubetypes "k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// cluster is a fake cluster. Objects with finalizers remain after their deletion, and step does the work of
// Kubernetes' controllers and of the daemons.
type cluster struct {
	t       *testing.T
	client  *dynamicfake.FakeDynamicClient
	clock   *testclock.FakeClock
	objects map[schema.GroupVersionResource]map[string]*unstructured.Unstructured
	writes  int
	fail    int // the number of the write that fails; 0: none
	// removed are the directories of replicas that daemons have removed.
	removed []string
	out     bytes.Buffer
}

var kindOf = map[Kind]string{
	volumes: "Volume", engines: "Engine", replicas: "Replica", attachments: "VolumeAttachment", instanceManagers: "InstanceManager", shareManagers: "ShareManager", snapshots: "Snapshot", nodes: "Node", globalSettings: "Setting",
	definitions: "CustomResourceDefinition", namespaces: "Namespace", kubeNodes: "Node", pods: "Pod", services: "Service", daemonSets: "DaemonSet", deployments: "Deployment", replicaSets: "ReplicaSet",
	budgets: "PodDisruptionBudget", configMaps: "ConfigMap", policies: "ValidatingAdmissionPolicy", policyBindings: "ValidatingAdmissionPolicyBinding", storageClasses: "StorageClass",
	drivers: "CSIDriver", clusterRoles: "ClusterRole", clusterBindings: "ClusterRoleBinding", kubeAttachments: "VolumeAttachment",
	persistentVolumes: "PersistentVolume",
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{}
	for k, name := range kindOf {
		lists[k.GroupVersionResource] = name + "List"
	}
	c := &cluster{
		t: t, clock: testclock.NewFakeClock(now), client: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists),
		objects: map[schema.GroupVersionResource]map[string]*unstructured.Unstructured{},
	}
	c.client.PrependReactor("*", "*", c.react)
	return c
}

func (c *cluster) add(k Kind, name string, fields map[string]any, finalizers ...string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	for key, value := range fields {
		u.Object[key] = value
	}
	u.SetAPIVersion(k.GroupVersion().String())
	u.SetKind(kindOf[k])
	u.SetName(name)
	if k.Namespaced {
		u.SetNamespace(types.Namespace)
	}
	u.SetUID(kubetypes.UID("uid-" + kindOf[k] + name))
	u.SetFinalizers(finalizers)
	if c.objects[k.GroupVersionResource] == nil {
		c.objects[k.GroupVersionResource] = map[string]*unstructured.Unstructured{}
	}
	c.objects[k.GroupVersionResource][name] = u
	return u
}

func (c *cluster) names(k Kind) []string {
	names := make([]string, 0, len(c.objects[k.GroupVersionResource]))
	for name := range c.objects[k.GroupVersionResource] {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (c *cluster) get(k Kind, name string) *unstructured.Unstructured {
	return c.objects[k.GroupVersionResource][name]
}

// delete behaves like the API server.
func (c *cluster) delete(k schema.GroupVersionResource, name string) {
	u := c.objects[k][name]
	if u == nil {
		return
	}
	if len(u.GetFinalizers()) == 0 {
		delete(c.objects[k], name)
	} else if u.GetDeletionTimestamp() == nil {
		u.SetDeletionTimestamp(&metav1.Time{Time: c.clock.Now()})
	}
}

func (c *cluster) strip(k schema.GroupVersionResource, name string) {
	u := c.objects[k][name]
	u.SetFinalizers(nil)
	if u.GetDeletionTimestamp() != nil {
		delete(c.objects[k], name)
	}
}

func (c *cluster) react(action clienttesting.Action) (bool, runtime.Object, error) {
	k := action.GetResource()
	if verb := action.GetVerb(); verb == "delete" || verb == "update" {
		if c.writes++; c.writes == c.fail {
			return true, nil, errors.New("the API server is away")
		}
	}
	switch a := action.(type) {
	case clienttesting.ListAction:
		list := &unstructured.UnstructuredList{Object: map[string]any{"kind": "List", "apiVersion": "v1"}}
		for _, u := range c.objects[k] {
			if ns := action.GetNamespace(); ns != "" && ns != u.GetNamespace() {
				continue
			}
			list.Items = append(list.Items, *u.DeepCopy())
		}
		return true, list, nil
	case clienttesting.DeleteActionImpl:
		u := c.objects[k][a.Name]
		if u == nil {
			return true, nil, apierrors.NewNotFound(k.GroupResource(), a.Name)
		}
		require.NotNil(c.t, a.DeleteOptions.Preconditions, "%s %s is deleted without a precondition", k.Resource, a.Name)
		require.Equal(c.t, u.GetUID(), *a.DeleteOptions.Preconditions.UID)
		if g := a.DeleteOptions.GracePeriodSeconds; g != nil && *g == 0 {
			c.strip(k, a.Name)
			return true, nil, nil
		}
		c.delete(k, a.Name)
		return true, nil, nil
	case clienttesting.UpdateAction:
		u := a.GetObject().(*unstructured.Unstructured).DeepCopy()
		c.objects[k][u.GetName()] = u
		if len(u.GetFinalizers()) == 0 && u.GetDeletionTimestamp() != nil {
			delete(c.objects[k], u.GetName())
		}
		return true, u, nil
	case clienttesting.GetAction:
		u := c.objects[k][a.GetName()]
		if u == nil {
			return true, nil, apierrors.NewNotFound(k.GroupResource(), a.GetName())
		}
		return true, u.DeepCopy(), nil
	}
	return false, nil, nil
}

// kubelet is the finalizer that keeps a deleted pod in the fake until its node answers.
const kubelet = "fake/kubelet"

// install creates an installation on nodes a and b, with volume v on both. If there is a manager, daemons run on live
// nodes.
func (c *cluster) install(manager bool, alive ...string) {
	for _, n := range []string{"a", "b"} {
		ready := "False"
		if slices.Contains(alive, n) {
			ready = "True"
		}
		conditions := map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": ready}}}
		c.add(kubeNodes, n, map[string]any{"status": conditions})
		c.add(nodes, n, nil)
		c.add(instanceManagers, "im-"+n, nil)
		c.add(budgets, "im-"+n, nil).SetLabels(map[string]string{types.LabelManagedBy: types.ManagedByManager})
		c.add(pods, "im-"+n, map[string]any{"spec": map[string]any{"nodeName": n}, "status": conditions}, kubelet).
			SetLabels(types.InstanceManagerSelector(n))
		if manager {
			c.add(pods, "longhorn-manager-"+n, map[string]any{"spec": map[string]any{"nodeName": n}, "status": conditions}, kubelet).
				SetLabels(map[string]string{types.LabelApp: types.AppManager})
		}
		// Labels are easily lost; the spec of a replica names its volume.
		c.add(replicas, "v-r-"+n, map[string]any{
			"spec":   map[string]any{"volumeName": "v", "nodeID": n, "diskPath": "/disk", "dataDirectoryName": "v-" + n},
			"status": map[string]any{"directoryCreated": true},
		}, types.Finalizer)
	}
	c.add(volumes, "v", nil, types.Finalizer)
	c.add(engines, "v-e-0", nil, types.Finalizer).SetLabels(map[string]string{types.LabelVolume: "v"})
	c.add(attachments, "v", nil)
	c.add(globalSettings, "default-replica-count", map[string]any{"value": "3"})
	c.add(globalSettings, string(settings.DeletingConfirmation), map[string]any{"value": "false"})
	if manager {
		c.add(daemonSets, "longhorn-manager", nil)
		c.add(daemonSets, "longhorn-csi-plugin", nil)
		c.add(deployments, "longhorn-csi-controller", nil)
		c.add(services, "longhorn-backend", nil)
		c.add(pods, "longhorn-csi-controller-1", map[string]any{"spec": map[string]any{"nodeName": "a"}}, kubelet).
			SetLabels(map[string]string{types.LabelApp: types.AppCSIController})
	}
	c.add(kubeAttachments, "csi-1", map[string]any{"spec": map[string]any{"attacher": types.DriverName}}, "external-attacher/driver-longhorn-io")
	c.add(kubeAttachments, "csi-2", map[string]any{"spec": map[string]any{"attacher": "another"}}, "external-attacher/another")
	c.addPersistentVolume("pv", types.DriverName, "v", provisionerFinalizer, attacherFinalizer, "kubernetes.io/pv-protection")
	c.addPersistentVolume("pv-of-another", "another", "v", provisionerFinalizer, "external-attacher/another")
	label := map[string]string{types.InstallationLabel: types.InstallationValue}
	for _, resource := range []Kind{volumes, engines, replicas, attachments, instanceManagers, shareManagers, snapshots, nodes, globalSettings} {
		c.add(definitions, resource.Resource+".longhorn.io", nil, "customresourcecleanup.apiextensions.k8s.io").SetLabels(label)
	}
	c.add(configMaps, types.StorageClassConfigMap, nil)
	c.add(storageClasses, "longhorn", map[string]any{"provisioner": types.DriverName}).SetLabels(label)
	c.add(storageClasses, "standard", map[string]any{"provisioner": "another"})
	c.add(drivers, types.DriverName, nil).SetLabels(label)
	for _, name := range policyNames {
		c.add(policies, name, nil)
		c.add(policyBindings, name, nil)
	}
	c.add(clusterRoles, "longhorn-manager", nil)
	c.add(clusterBindings, "longhorn-manager", nil)
	c.add(clusterRoles, "admin", nil)
	c.add(namespaces, types.Namespace, nil, "kubernetes").SetLabels(label)
}

func (c *cluster) addPersistentVolume(name, driver, volume string, finalizers ...string) {
	c.add(persistentVolumes, name, map[string]any{"spec": map[string]any{"csi": map[string]any{"driver": driver, "volumeHandle": volume}}}, finalizers...)
}

func (c *cluster) confirm() {
	c.get(globalSettings, string(settings.DeletingConfirmation)).Object["value"] = "true"
}

// step does what other components do in ten seconds.
func (c *cluster) step() {
	c.clock.Step(10 * time.Second)
	c.daemons()
	// Kubernetes: pods stop when their creators are deleted, if their kubelet answers.
	for _, name := range c.names(pods) {
		u := c.get(pods, name)
		o := objectOf(u)
		maker := u
		if isInstallationPod(o) {
			maker = c.get(instanceManagers, name)
		}
		switch u.GetLabels()[types.LabelApp] {
		case types.AppManager:
			maker = c.get(daemonSets, "longhorn-manager")
		case types.AppCSIController:
			maker = c.get(deployments, "longhorn-csi-controller")
		}
		if maker == nil {
			c.delete(pods.GroupVersionResource, name)
		}
		if node := c.get(kubeNodes, o.Node); u.GetDeletionTimestamp() != nil && node != nil && objectOf(node).Ready {
			c.strip(pods.GroupVersionResource, name)
		}
	}
	for _, name := range c.names(definitions) { // the deletion of a definition deletes its objects
		k := longhornKind(name[:len(name)-len(".longhorn.io")])
		if c.get(definitions, name).GetDeletionTimestamp() == nil {
			continue
		}
		for _, object := range c.names(k) {
			c.delete(k.GroupVersionResource, object)
		}
		if len(c.names(k)) == 0 {
			c.strip(definitions.GroupVersionResource, name)
		}
	}
	if ns := c.get(namespaces, types.Namespace); ns != nil && ns.GetDeletionTimestamp() != nil {
		left := 0
		for k := range kindOf {
			if !k.Namespaced {
				continue
			}
			for _, name := range c.names(k) {
				c.delete(k.GroupVersionResource, name)
			}
			left += len(c.names(k))
		}
		if left == 0 {
			c.strip(namespaces.GroupVersionResource, types.Namespace)
		}
	}
}

// daemons do their work for volumes that were deleted.
func (c *cluster) daemons() {
	running := map[string]bool{}
	for _, name := range c.names(pods) {
		if o := objectOf(c.get(pods, name)); o.Labels[types.LabelApp] == types.AppManager && o.Ready && !o.isDeleted() {
			running[o.Node] = true
		}
	}
	if len(running) == 0 {
		return
	}
	for _, name := range c.names(volumes) {
		if c.get(volumes, name).GetDeletionTimestamp() == nil {
			continue
		}
		for _, e := range c.names(engines) {
			c.delete(engines.GroupVersionResource, e)
			c.strip(engines.GroupVersionResource, e)
		}
		for _, r := range c.names(replicas) {
			c.delete(replicas.GroupVersionResource, r)
		}
		c.strip(volumes.GroupVersionResource, name)
	}
	for _, name := range c.names(replicas) {
		if o := objectOf(c.get(replicas, name)); o.isDeleted() && running[o.Node] {
			c.removed = append(c.removed, o.Path)
			c.strip(replicas.GroupVersionResource, name)
		}
	}
}

func (c *cluster) options(deleteVolumes bool) Options {
	return Options{Client: c.client, Clock: c.clock, Namespace: types.Namespace, DeleteVolumes: deleteVolumes, Out: &c.out, Every: time.Second, Patience: patience}
}

// run executes rounds until the run is complete, and fails if it takes too many.
func (c *cluster) run(deleteVolumes bool) Plan {
	c.t.Helper()
	for range 100 {
		p, err := round(context.Background(), c.options(deleteVolumes))
		if err != nil {
			fmt.Fprintln(&c.out, "error:", err)
		}
		if err == nil && (p.Done || p.Refused != "") {
			return p
		}
		c.step()
	}
	c.t.Fatalf("it does not end:\n%s", c.out.String())
	return Plan{}
}

// comeBack makes daemons run from the second list of pods on.
type comeBack struct {
	Options
	c     *cluster
	lists int
}

func (b *comeBack) react(clienttesting.Action) (bool, runtime.Object, error) {
	if b.lists++; b.lists == 2 {
		for _, n := range []string{"a", "b"} {
			b.c.add(pods, "longhorn-manager-"+n, map[string]any{
				"spec": map[string]any{"nodeName": n}, "status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
			}, kubelet).SetLabels(map[string]string{types.LabelApp: types.AppManager})
		}
	}
	return false, nil, nil
}
