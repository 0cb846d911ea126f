package datastore

import (
	"context"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

var allKinds = []Kind{Volumes, VolumeAttachments, Engines, Replicas, Nodes, Settings, InstanceManagers, Pods, KubeNodes, Budgets, DefaultSettings, StorageClassConfig, ShareClients, StorageClasses, ShareManagers, Snapshots, Services, EndpointSlices, NodeLeases}

// optionalKinds may be watched, and nothing waits for their caches: their content counts from its arrival on. The role
// of the first release does not grant them. While one release replaces another, a daemon must do its other work under
// that role.
var optionalKinds = []Kind{DefaultSettings, StorageClassConfig, ShareClients, StorageClasses, ShareManagers, Snapshots, Services, EndpointSlices, NodeLeases}

// selection decides which objects of a kind a watch shows.
type selection struct {
	field  string // compared with Options.Node; empty: always the whole cluster
	name   string // of the only object; empty: any name
	labels labels.Selector
}

var all = selection{labels: labels.Everything()}

func byField(path string) selection { return selection{field: path, labels: labels.Everything()} }

// named selects one object. Then a role needs to grant only this object.
func named(name string) selection { return selection{name: name, labels: labels.Everything()} }

func (s selection) andLabels(text string) selection {
	selector, err := labels.Parse(text)
	if err != nil {
		panic("BUG: label selector of pods: " + err.Error())
	}
	s.labels = selector
	return s
}

// tweak adds the selection to the options of a list or watch.
func (s selection) tweak(opts *metav1.ListOptions, node string) {
	if s.field != "" && node != "" {
		opts.FieldSelector = fields.OneTermEqualSelector(s.field, node).String()
	}
	if s.name != "" {
		opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.name).String()
	}
	if !s.labels.Empty() {
		opts.LabelSelector = s.labels.String()
	}
}

// matches applies the same selection to one object.
func (s selection) matches(obj Object, node string) bool {
	return (s.field == "" || node == "" || nodeOf(obj) == node) && (s.name == "" || s.name == obj.GetName()) && s.labels.Matches(labels.Set(obj.GetLabels()))
}

type builder struct {
	options   Options
	datastore *Datastore
}

func (b *builder) isWatched(kind Kind) bool {
	if len(b.options.Kinds) == 0 {
		return slices.Contains(allKinds, kind)
	}
	return slices.Contains(b.options.Kinds, kind)
}

// newStore creates the Store of a kind. clientset is the origin of c: a fake clientset declares through it that it
// cannot stream lists.
func newStore[T Object, L runtime.Object](b *builder, kind Kind, namespace string, c typedClient[T, L], clientset any, sel selection, example T, indexers cache.Indexers) *Store[T] {
	node := b.options.Node
	s := &Store[T]{
		resource:  resourceOf(kind),
		namespace: namespace,
		verbs:     adapter[T, L]{typedClient: c},
		selects:   func(obj T) bool { return sel.matches(obj, node) },
	}
	if kind != secrets {
		s.kept = lru.New(keptVersions)
	}
	if !b.isWatched(kind) {
		return s
	}
	s.informer = newInformer(s.verbs, clientset, example, indexers, func(opts *metav1.ListOptions) { sel.tweak(opts, node) })
	if _, err := s.informer.AddEventHandler(s.forgetSeen()); err != nil {
		panic("BUG: handle events of an informer that was never started: " + err.Error())
	}
	b.datastore.informers[kind] = s.informer
	return s
}

// newInformer creates an informer that never resyncs: controllers have their own timers.
func newInformer[T Object](v verbs[T], clientset any, example T, indexers cache.Indexers, tweak func(*metav1.ListOptions)) cache.SharedIndexInformer {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			tweak(&opts)
			return v.ListAny(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			tweak(&opts)
			return v.Watch(ctx, opts)
		},
	}
	informer := cache.NewSharedIndexInformerWithOptions(
		cache.ToListWatcherWithWatchListSemantics(lw, clientset), example,
		cache.SharedIndexInformerOptions{Indexers: indexers})
	if err := informer.SetTransform(slim); err != nil {
		panic("BUG: transform of an informer that was never started: " + err.Error())
	}
	return informer
}

// slim removes the parts of an object that no reader of a cache needs.
func slim(obj any) (any, error) {
	if node, ok := obj.(*corev1.Node); ok {
		node.Status.Images = nil
	}
	return withoutManagedFields(obj)
}

// resourceOf returns the kind's name in errors.
func resourceOf(kind Kind) schema.GroupResource {
	switch kind {
	case KubeNodes:
		return corev1.Resource("nodes")
	case Pods, Services, secrets:
		return corev1.Resource(string(kind))
	case Budgets:
		return policyv1.Resource(string(kind))
	case leases, NodeLeases:
		return coordinationv1.Resource(string(leases))
	case DefaultSettings, StorageClassConfig:
		return corev1.Resource("configmaps")
	case EndpointSlices:
		return discoveryv1.Resource(string(kind))
	case StorageClasses, csiDrivers:
		return storagev1.Resource(string(kind))
	case priorityClasses:
		return schedulingv1.Resource(string(kind))
	}
	return longhorn.Resource(string(kind))
}
