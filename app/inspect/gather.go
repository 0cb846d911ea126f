package inspect

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/explain"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/k8s/client/clientset/versioned"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Cluster reads a cluster with the rights of a user.
type Cluster struct {
	Kube      kubernetes.Interface
	Longhorn  versioned.Interface
	Namespace string
	Clock     clock.PassiveClock
	// ClaimNamespace is the only namespace from which claims, and the pods that use them, are read; empty: all
	// namespaces.
	ClaimNamespace string
}

// pageSize is the number of objects in one response of the API server.
const pageSize = 500

// Snapshot reads all objects that package explain needs. Unseen lists the kinds that the user may not read. A
// namespace without an installation is an error. So are the API server's refusal of all kinds of this product, and
// every other failure.
func (c Cluster) Snapshot(ctx context.Context) (*explain.Snapshot, error) {
	s := &explain.Snapshot{Now: c.Clock.Now(), Namespace: c.Namespace}
	g := gathering{ctx: ctx, s: s}
	ours, core := c.Longhorn.LonghornV1beta2(), c.Kube.CoreV1()
	// A claim is bound after its PersistentVolume is created, and the PersistentVolume is created after the volume.
	// If the kinds are read in this order, no object seems to be missing.
	s.Claims = gather[corev1.PersistentVolumeClaim](&g, explain.ResourceClaims, core.PersistentVolumeClaims(c.ClaimNamespace).List, "")
	s.PersistentVolumes = gather[corev1.PersistentVolume](&g, explain.ResourcePVs, core.PersistentVolumes().List, "")
	s.Volumes = gather[longhorn.Volume](&g, explain.ResourceVolumes, ours.Volumes(c.Namespace).List, "")
	s.Engines = gather[longhorn.Engine](&g, explain.ResourceEngines, ours.Engines(c.Namespace).List, "")
	s.Replicas = gather[longhorn.Replica](&g, explain.ResourceReplicas, ours.Replicas(c.Namespace).List, "")
	s.Attachments = gather[longhorn.VolumeAttachment](&g, explain.ResourceAttachments, ours.VolumeAttachments(c.Namespace).List, "")
	s.Nodes = gather[longhorn.Node](&g, explain.ResourceNodes, ours.Nodes(c.Namespace).List, "")
	s.InstanceManagers = gather[longhorn.InstanceManager](&g, explain.ResourceInstanceManagers, ours.InstanceManagers(c.Namespace).List, "")
	s.ShareManagers = gather[longhorn.ShareManager](&g, explain.ResourceShareManagers, ours.ShareManagers(c.Namespace).List, "")
	s.Settings = gather[longhorn.Setting](&g, explain.ResourceSettings, ours.Settings(c.Namespace).List, "")
	s.Snapshots = gather[longhorn.Snapshot](&g, explain.ResourceSnapshots, ours.Snapshots(c.Namespace).List, "")
	s.KubeNodes = gather[corev1.Node](&g, explain.ResourceKubeNodes, core.Nodes().List, "")
	s.Pods = gather[corev1.Pod](&g, explain.ResourcePods, core.Pods(c.Namespace).List, "")
	s.UserPods = slices.DeleteFunc(gather[corev1.Pod](&g, explain.ResourceUserPods, core.Pods(c.ClaimNamespace).List, c.userPods()), usesNoClaim)
	s.Events = c.events(&g)
	s.Classes = gather[storagev1.StorageClass](&g, explain.ResourceClasses, c.Kube.StorageV1().StorageClasses().List, "")
	s.KubeAttachments = slices.DeleteFunc(gather[storagev1.VolumeAttachment](&g, explain.ResourceKubeAttachments, c.Kube.StorageV1().VolumeAttachments().List, ""),
		func(a *storagev1.VolumeAttachment) bool { return a.Spec.Attacher != types.DriverName })
	if g.err != nil {
		return nil, g.err
	}
	if !s.IsEmpty() {
		return s, nil
	}
	if s.MayNotRead(explain.ResourceVolumes) && s.MayNotRead(explain.ResourceNodes) && s.MayNotRead(explain.ResourceSettings) {
		return nil, fmt.Errorf("your account may not list %s in namespace %s: request the rights get and list on longhorn.io there, or name another --namespace%s",
			explain.ResourceVolumes, c.Namespace, c.elsewhere(ctx).where())
	}
	if err := c.CheckInstalled(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// userPods returns the field selector for pods that use claims. In a whole cluster it selects pods that have not
// started. All pods would be too many, and the other pods have their volumes.
func (c Cluster) userPods() string {
	if c.ClaimNamespace == "" {
		return "status.phase=" + string(corev1.PodPending)
	}
	return ""
}

func usesNoClaim(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
}

// events returns the Warnings about claims and about volumes that cannot be mounted, each once. A single list request
// cannot select both.
func (c Cluster) events(g *gathering) []*corev1.Event {
	selectors := []string{"involvedObject.kind=PersistentVolumeClaim,type=Warning"}
	for _, reason := range explain.MountEvents {
		selectors = append(selectors, "involvedObject.kind=Pod,reason="+reason)
	}
	var all []*corev1.Event
	seen := map[string]bool{}
	for _, selector := range selectors {
		for _, e := range gather[corev1.Event](g, explain.ResourceEvents, c.Kube.CoreV1().Events(c.ClaimNamespace).List, selector) {
			if key := e.Namespace + "/" + e.Name; !seen[key] {
				seen[key] = true
				all = append(all, e)
			}
		}
	}
	return all
}

// gathering stores the first error, so that the caller can list several kinds in a row and check for an error once.
type gathering struct {
	ctx context.Context
	s   *explain.Snapshot
	err error
}

// gather lists all objects of a kind, page by page.
func gather[T any, L runtime.Object](g *gathering, resource string, list func(context.Context, metav1.ListOptions) (L, error), fields string) []*T {
	var all []*T
	opts := metav1.ListOptions{Limit: pageSize, FieldSelector: fields}
	for g.err == nil {
		page, err := list(g.ctx, opts)
		switch {
		case apierrors.IsForbidden(err):
			if !g.s.MayNotRead(resource) {
				g.s.Unseen = append(g.s.Unseen, resource)
			}
			return nil
		case apierrors.IsNotFound(err) && resource == explain.ResourceSnapshots:
			return nil // the installation is of a release without snapshots
		case apierrors.IsNotFound(err):
			g.err = fmt.Errorf("the cluster has no resource %s: this product is not installed there, or your kubeconfig names another cluster", resource)
			return nil
		case err != nil:
			g.err = fmt.Errorf("list %s: %w", resource, err)
			return nil
		}
		items, next := itemsOf[T](page)
		all = append(all, items...)
		if next == "" {
			return all
		}
		opts.Continue = next
	}
	return nil
}

// itemsOf returns the objects of a list, and the token of its next page.
func itemsOf[T any](list runtime.Object) (items []*T, next string) {
	if err := meta.EachListItem(list, func(o runtime.Object) error {
		items = append(items, any(o).(*T))
		return nil
	}); err != nil {
		panic("BUG: a list of the API server is not a list: " + err.Error())
	}
	if m, err := meta.ListAccessor(list); err == nil {
		next = m.GetContinue()
	}
	return items, next
}
