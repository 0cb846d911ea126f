package usage

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// VolumeStore holds all volumes.
type VolumeStore interface {
	datastore.WatchedReader[*longhorn.Volume]
	datastore.StatusWriter[*longhorn.Volume]
}

// Workloads finds PersistentVolumes and pods. *datastore.Workloads implements it.
type Workloads interface {
	// PersistentVolumes returns the PersistentVolumes of a volume, from the cache.
	PersistentVolumes(volume string) ([]*corev1.PersistentVolume, error)
	// Pods must be read from the API server; an empty node stands for all.
	Pods(ctx context.Context, namespace, node string) ([]corev1.Pod, error)
	queue.Events
}

// Deps are the dependencies of a Controller; its caches must be filled before Run.
type Deps struct {
	queue.Env

	Volumes   VolumeStore
	Workloads Workloads
}

// Controller maintains Volume.status.kubernetesStatus. Create it with New, then call Run.
type Controller struct {
	deps  Deps
	queue *queue.Queue[string]

	mu sync.Mutex // guards listed
	// listed has, by volume, the attachment for which the pods were listed, so that a volume that no pod uses is not
	// checked again and again. A new leader lists once more.
	listed map[string]string
}

// New registers the controller's handlers. Nothing else happens before Run.
func New(deps Deps) (*Controller, error) {
	c := &Controller{deps: deps, listed: map[string]string{}}
	c.queue = queue.New(queue.Options[string]{Name: "usage", Env: deps.Env, Sync: c.sync})
	err := c.queue.Watch(
		queue.Watch{Events: deps.Volumes, Handler: queue.Handler(c.queue, queue.Name[*longhorn.Volume])},
		queue.Watch{Events: deps.Workloads, Handler: queue.Handler(c.queue, volumeOf)},
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// volumeOf is the volume of a PersistentVolume. For other drivers, the cache does not store the source.
func volumeOf(pv *corev1.PersistentVolume) []string {
	if pv.Spec.CSI == nil {
		return nil
	}
	return []string{pv.Spec.CSI.VolumeHandle}
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	v, err := c.deps.Volumes.GetRO(name)
	if apierrors.IsNotFound(err) {
		c.note(name, "")
		return queue.Result{}, nil
	}
	if err != nil || v.DeletionTimestamp != nil {
		return queue.Result{}, err
	}
	if c.deps.Volumes.IsStale(v) {
		return queue.Result{}, queue.ErrStale
	}
	in := Input{Volume: v, Now: c.deps.Clock.Now()}
	if in.PV, err = c.persistentVolume(name); err != nil {
		return queue.Result{}, err
	}
	after, now := untilList(in, c.lastListed(name))
	if now {
		if in.Pods, err = c.pods(ctx, in); err != nil {
			return queue.Result{}, err
		}
		in.Listed = true
	}
	next := plan(in)
	if _, _, err := datastore.WriteStatus(ctx, c.deps.Volumes, v, usageOf, next); err != nil {
		return queue.Result{}, err
	}
	if now {
		c.note(name, v.Status.AttachedAt)
	}
	return queue.Result{RequeueAfter: after}, nil
}

func usageOf(v *longhorn.Volume) *longhorn.KubernetesStatus { return &v.Status.KubernetesStatus }

// persistentVolume is the bound PersistentVolume of a volume, else the first by name; nil: it has none.
func (c *Controller) persistentVolume(volume string) (*corev1.PersistentVolume, error) {
	all, err := c.deps.Workloads.PersistentVolumes(volume)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	bound := slices.IndexFunc(all, func(pv *corev1.PersistentVolume) bool { return claimOf(pv) != nil })
	return all[max(bound, 0)], nil
}

// pods reads the pods that may use the volume. For a shared volume these are the pods on any node.
func (c *Controller) pods(ctx context.Context, in Input) ([]corev1.Pod, error) {
	node := in.Volume.Status.CurrentNodeID
	if types.IsShared(in.Volume) {
		node = ""
	}
	pods, err := c.deps.Workloads.Pods(ctx, claimOf(in.PV).Namespace, node)
	if err != nil {
		return nil, fmt.Errorf("find the pods that use the volume: %w", err)
	}
	return pods, nil
}

func (c *Controller) lastListed(volume string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed[volume]
}

// note stores the attachment for which the pods were listed; "": none.
func (c *Controller) note(volume, attachedAt string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if attachedAt == "" {
		delete(c.listed, volume)
		return
	}
	c.listed[volume] = attachedAt
}
