package datastore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/k8s/client/clientset/versioned"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Kind names a kind that a Datastore can watch.
type Kind string

// The kinds. Kinds marked + are watched for one node alone if Options.Node is set.
const (
	Volumes           Kind = "volumes"
	VolumeAttachments Kind = "volumeattachments"
	Engines           Kind = "engines"  // + spec.nodeID
	Replicas          Kind = "replicas" // + spec.nodeID
	Nodes             Kind = "nodes"    // + metadata.name
	Settings          Kind = "settings"
	InstanceManagers  Kind = "instancemanagers" // + spec.nodeID
	Pods              Kind = "pods"             // + spec.nodeName
	KubeNodes         Kind = "kubenodes"        // + metadata.name
	Budgets           Kind = "poddisruptionbudgets"
	// Each of the next three is one ConfigMap of that name, if it exists.
	DefaultSettings    Kind = "configmap " + types.DefaultSettingsConfigMap
	StorageClassConfig Kind = "configmap " + types.StorageClassConfigMap
	ShareClients       Kind = "configmap " + types.ShareClientsConfigMap
	StorageClasses     Kind = "storageclasses"
	ShareManagers      Kind = "sharemanagers"
	Snapshots          Kind = "snapshots"
	Services           Kind = "services"        // of share managers
	EndpointSlices     Kind = "endpointslices"  // of shares, written by the leader
	NodeLeases         Kind = "leases of nodes" // types.NodeLeaseName
)

// The kinds that are never watched. Secrets are also never kept in memory.
const (
	secrets Kind = "secrets"
	leases  Kind = "leases"

	priorityClasses Kind = "priorityclasses"
	csiDrivers      Kind = "csidrivers"
)

// Options say which objects a Datastore sees.
type Options struct {
	Kube     kubernetes.Interface
	Longhorn versioned.Interface
	// Namespace contains all objects except the Kubernetes nodes.
	Namespace string
	// Node restricts the watches to the objects of that node; empty: the whole cluster.
	Node string
	// Kinds are the watched kinds; empty: all. The others can be written and read live.
	Kinds []Kind
	// PodLabels selects pods by their labels ("app=longhorn-manager"); empty: all pods of the namespace.
	PodLabels string
}

// Datastore holds one Store per kind.
type Datastore struct {
	Namespace string

	Volumes           *Store[*longhorn.Volume]
	VolumeAttachments *Store[*longhorn.VolumeAttachment]
	Engines           *Store[*longhorn.Engine]
	Replicas          *Store[*longhorn.Replica]
	Nodes             *Store[*longhorn.Node]
	Settings          *Store[*longhorn.Setting]
	InstanceManagers  *Store[*longhorn.InstanceManager]
	Pods              *Store[*corev1.Pod]
	// KubeNodes are the cluster's own nodes; the cache lacks their lists of images.
	KubeNodes *Store[*corev1.Node]
	// DefaultSettings, StorageClassConfig and ShareClients contain only the ConfigMap of their name.
	DefaultSettings    *Store[*corev1.ConfigMap]
	StorageClassConfig *Store[*corev1.ConfigMap]
	ShareClients       *Store[*corev1.ConfigMap]
	StorageClasses     *Store[*storagev1.StorageClass]
	ShareManagers      *Store[*longhorn.ShareManager]
	Snapshots          *Store[*longhorn.Snapshot]
	// Services are the Services of share managers.
	Services *Store[*corev1.Service]
	// EndpointSlices are the slices that the leader writes for shares. The slices of Kubernetes are never read.
	EndpointSlices *Store[*discoveryv1.EndpointSlice]
	// Budgets are the budgets of our own pods, and all others in the namespace.
	Budgets *Store[*policyv1.PodDisruptionBudget]
	// Secrets are never watched: read them with Live.
	Secrets *Store[*corev1.Secret]
	// Leases are all Leases of the namespace. They are never watched either. types.DiskLeaseName names the Leases of
	// disks.
	Leases *Store[*coordinationv1.Lease]
	// PriorityClasses are never watched: read them with Live.
	PriorityClasses *Store[*schedulingv1.PriorityClass]
	// CSIDrivers are never watched: read them with Live.
	CSIDrivers *Store[*storagev1.CSIDriver]
	// NodeLeases belong to nodes with a daemon of an earlier release. With them such nodes report that they live while
	// they serve shares.
	NodeLeases *Store[*coordinationv1.Lease]
	// Events are watched only while a client reads them.
	Events *Events

	informers map[Kind]cache.SharedIndexInformer
	running   sync.WaitGroup
}

// New creates the stores. It reads nothing and starts nothing. It panics on an invalid PodLabels, which is a constant
// of the program.
func New(o Options) *Datastore {
	d := &Datastore{Namespace: o.Namespace, informers: map[Kind]cache.SharedIndexInformer{}}
	api, core, ns := o.Longhorn.LonghornV1beta2(), o.Kube.CoreV1(), o.Namespace
	b := &builder{options: o, datastore: d}

	d.Volumes = newStore(b, Volumes, ns, api.Volumes(ns), o.Longhorn, all, &longhorn.Volume{}, volumeIndexers())
	d.VolumeAttachments = newStore(b, VolumeAttachments, ns, api.VolumeAttachments(ns), o.Longhorn, all, &longhorn.VolumeAttachment{}, volumeIndexers())
	d.Engines = newStore(b, Engines, ns, api.Engines(ns), o.Longhorn, byField("spec.nodeID"), &longhorn.Engine{}, engineIndexers())
	d.Replicas = newStore(b, Replicas, ns, api.Replicas(ns), o.Longhorn, byField("spec.nodeID"), &longhorn.Replica{}, replicaIndexers())
	d.Nodes = newStore(b, Nodes, ns, api.Nodes(ns), o.Longhorn, byField("metadata.name"), &longhorn.Node{}, nil)
	d.Settings = newStore(b, Settings, ns, api.Settings(ns), o.Longhorn, all, &longhorn.Setting{}, nil)
	d.InstanceManagers = newStore(b, InstanceManagers, ns, api.InstanceManagers(ns), o.Longhorn, byField("spec.nodeID"), &longhorn.InstanceManager{}, nodeIndexers())
	d.Pods = newStore(b, Pods, ns, core.Pods(ns), o.Kube, byField("spec.nodeName").andLabels(o.PodLabels), &corev1.Pod{}, nodeIndexers())
	d.KubeNodes = newStore(b, KubeNodes, "", core.Nodes(), o.Kube, byField("metadata.name"), &corev1.Node{}, nil)
	d.DefaultSettings = newStore(b, DefaultSettings, ns, core.ConfigMaps(ns), o.Kube, named(types.DefaultSettingsConfigMap), &corev1.ConfigMap{}, nil)
	d.StorageClassConfig = newStore(b, StorageClassConfig, ns, core.ConfigMaps(ns), o.Kube, named(types.StorageClassConfigMap), &corev1.ConfigMap{}, nil)
	d.ShareClients = newStore(b, ShareClients, ns, core.ConfigMaps(ns), o.Kube, named(types.ShareClientsConfigMap), &corev1.ConfigMap{}, nil)
	d.StorageClasses = newStore(b, StorageClasses, "", o.Kube.StorageV1().StorageClasses(), o.Kube, all, &storagev1.StorageClass{}, nil)
	d.Budgets = newStore(b, Budgets, ns, o.Kube.PolicyV1().PodDisruptionBudgets(ns), o.Kube, all, &policyv1.PodDisruptionBudget{}, nil)
	d.ShareManagers = newStore(b, ShareManagers, ns, api.ShareManagers(ns), o.Longhorn, all, &longhorn.ShareManager{}, nil)
	d.Snapshots = newStore(b, Snapshots, ns, api.Snapshots(ns), o.Longhorn, all, &longhorn.Snapshot{}, volumeIndexers())
	d.Services = newStore(b, Services, ns, core.Services(ns), o.Kube, all.andLabels(types.LabelShareManager), &corev1.Service{}, nil)
	d.EndpointSlices = newStore(b, EndpointSlices, ns, o.Kube.DiscoveryV1().EndpointSlices(ns), o.Kube,
		all.andLabels(discoveryv1.LabelManagedBy+"="+types.EndpointSliceManager), &discoveryv1.EndpointSlice{}, nil)
	d.NodeLeases = newStore(b, NodeLeases, ns, o.Kube.CoordinationV1().Leases(ns), o.Kube, all.andLabels(types.LabelNodeLease), &coordinationv1.Lease{}, nil)
	d.Leases = newStore(b, leases, ns, o.Kube.CoordinationV1().Leases(ns), o.Kube, all, &coordinationv1.Lease{}, nil)
	d.PriorityClasses = newStore(b, priorityClasses, "", o.Kube.SchedulingV1().PriorityClasses(), o.Kube, all, &schedulingv1.PriorityClass{}, nil)
	d.CSIDrivers = newStore(b, csiDrivers, "", o.Kube.StorageV1().CSIDrivers(), o.Kube, all, &storagev1.CSIDriver{}, nil)
	d.Events = newEvents(o.Kube, ns)
	d.Secrets = newStore(b, secrets, ns, core.Secrets(ns), o.Kube, all, &corev1.Secret{}, nil)
	return d
}

// Start starts to fill the caches and returns; they are kept up to date until ctx is done. It must be called once.
func (d *Datastore) Start(ctx context.Context) {
	d.Events.start(ctx)
	for _, informer := range d.informers {
		d.running.Go(func() { informer.RunWithContext(ctx) })
	}
}

// Wait returns when all goroutines of Start have exited, after its context is done.
func (d *Datastore) Wait() {
	d.running.Wait()
	d.Events.wait()
}

// WaitForSync returns nil when every cache was filled once. If ctx is done first, it returns an error that names the
// caches that were not filled. It does not wait for the optional kinds.
func (d *Datastore) WaitForSync(ctx context.Context) error {
	synced := make([]cache.InformerSynced, 0, len(d.informers))
	for kind, informer := range d.informers {
		if !slices.Contains(optionalKinds, kind) {
			synced = append(synced, informer.HasSynced)
		}
	}
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	var missing []string
	for _, kind := range allKinds {
		if informer, ok := d.informers[kind]; ok && !informer.HasSynced() && !slices.Contains(optionalKinds, kind) {
			missing = append(missing, string(kind))
		}
	}
	return fmt.Errorf("wait for the caches of %s: %w", strings.Join(missing, ", "), context.Cause(ctx))
}

// Setting returns the value in force of a setting, or "" if there is no such object; settings.Values turns that
// into the default.
func (d *Datastore) Setting(name settings.Name) string {
	setting, err := d.Settings.GetRO(string(name))
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil { // only for a datastore that does not watch settings
		panic("BUG: " + err.Error())
	}
	return settings.ValueInForce(setting)
}
