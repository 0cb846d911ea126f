package attachment

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// VolumeStore holds all volumes.
type VolumeStore interface {
	datastore.WatchedReader[*longhorn.Volume]
	datastore.Writer[*longhorn.Volume]
}

// Store holds all volume attachments.
type Store interface {
	datastore.WatchedReader[*longhorn.VolumeAttachment]
	datastore.Lister[*longhorn.VolumeAttachment]
	datastore.StatusWriter[*longhorn.VolumeAttachment]
}

// lookAgain is when a refused ticket is checked again: changes of engines and replicas do not wake this controller.
const lookAgain = 30 * time.Second

// Deps are the dependencies of the controller.
type Deps struct {
	queue.Env

	Volumes           VolumeStore
	VolumeAttachments Store
	// Engines and Replicas are found by datastore.IndexVolume.
	Engines  datastore.Indexer[*longhorn.Engine]
	Replicas datastore.Indexer[*longhorn.Replica]
	// ShareClients lists the nodes for which shared volumes wait. It holds only the ConfigMap
	// types.ShareClientsConfigMap, if that exists.
	ShareClients datastore.WatchedReader[*corev1.ConfigMap]
}

// Controller attaches and detaches all volumes of the cluster. Create it with New, then call Run.
type Controller struct {
	deps  Deps
	queue *queue.Queue[string]
}

// New registers the controller's handlers. Nothing else happens before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{deps: d}
	c.queue = queue.New(queue.Options[string]{Name: "attachment", Env: d.Env, Workers: 2, Sync: c.sync})
	// A volume and its attachment have the same name.
	byName := queue.Handler(c.queue, func(o metav1.Object) []string { return []string{o.GetName()} })
	err := c.queue.Watch(
		queue.Watch{Events: d.Volumes, Handler: byName},
		queue.Watch{Events: d.VolumeAttachments, Handler: byName},
		queue.Watch{Events: d.ShareClients, Handler: queue.Changes(c.queue, c.whenWaiting)},
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// whenWaiting returns the attachments with a CSI ticket for a node that shared volumes have started or stopped waiting
// for.
func (c *Controller) whenWaiting(was, is *corev1.ConfigMap) []string {
	before, now := waiting(was), waiting(is)
	if slices.Equal(before, now) {
		return nil
	}
	all, err := c.deps.VolumeAttachments.List(labels.Everything())
	if err != nil {
		return nil
	}
	var names []string
	for _, va := range all {
		for _, t := range va.Spec.AttachmentTickets {
			if t.Type == longhorn.AttacherTypeCSI && slices.Contains(before, t.NodeID) != slices.Contains(now, t.NodeID) {
				names = append(names, va.Name)
				break
			}
		}
	}
	return names
}

func waiting(list *corev1.ConfigMap) []string {
	if list == nil {
		return nil
	}
	return types.ShareClientsWaiting(list.Data)
}

// Sync syncs one volume, as the queue does. It exists for tests of several controllers together.
func (c *Controller) Sync(ctx context.Context, name string) (queue.Result, error) {
	return c.sync(ctx, name)
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	va, err := c.deps.VolumeAttachments.GetRO(name)
	if apierrors.IsNotFound(err) {
		return queue.Result{}, nil
	}
	if err != nil {
		return queue.Result{}, err
	}
	v, err := c.deps.Volumes.GetRO(name)
	if apierrors.IsNotFound(err) {
		return queue.Result{}, nil
	}
	if err != nil {
		return queue.Result{}, err
	}
	if c.deps.Volumes.IsStale(v) || c.deps.VolumeAttachments.IsStale(va) {
		return queue.Result{}, queue.ErrStale
	}
	nodes, err := c.strictLocalNodes(v)
	if err != nil {
		return queue.Result{}, err
	}
	clients, err := c.deps.ShareClients.GetRO(types.ShareClientsConfigMap)
	if err != nil && !apierrors.IsNotFound(err) {
		return queue.Result{}, err
	}
	if err != nil {
		clients = nil
	}
	p := plan(Input{Volume: v, Attachment: va, Nodes: nodes, Waiting: waiting(clients), Now: c.deps.Clock.Now()})
	var result queue.Result
	if p.Refuses {
		result.RequeueAfter = lookAgain
	}
	if p.Volume != nil {
		queue.Log(ctx).WithField(logfields.Node, p.Volume.Spec.NodeID).Info("changing the node where the volume is requested")
		if _, err := c.deps.Volumes.Update(ctx, p.Volume); err != nil {
			return queue.Result{}, fmt.Errorf("update volume %s: %w", name, err)
		}
	}
	_, _, err = datastore.WriteStatus(ctx, c.deps.VolumeAttachments, va,
		func(va *longhorn.VolumeAttachment) *longhorn.VolumeAttachmentStatus { return &va.Status }, p.Status)
	return result, err
}

// strictLocalNodes reads the only nodes to which a volume may be attached; nil: all nodes.
func (c *Controller) strictLocalNodes(v *longhorn.Volume) ([]string, error) {
	if !types.IsStrictLocal(v) {
		return nil, nil
	}
	engines, err := c.deps.Engines.ByIndex(datastore.IndexVolume, v.Name)
	if err != nil {
		return nil, fmt.Errorf("list engines of volume %s: %w", v.Name, err)
	}
	replicas, err := c.deps.Replicas.ByIndex(datastore.IndexVolume, v.Name)
	if err != nil {
		return nil, fmt.Errorf("list replicas of volume %s: %w", v.Name, err)
	}
	var engine *longhorn.Engine
	if own := ownedBy(engines, v); len(own) > 0 {
		engine = own[0]
	}
	return types.StrictLocalNodes(v, engine, ownedBy(replicas, v)), nil
}

// ownedBy are the objects that belong to this very volume, and not to an earlier volume with the same name.
func ownedBy[T metav1.Object](list []T, v *longhorn.Volume) []T {
	return slices.DeleteFunc(slices.Clone(list), func(o T) bool {
		return !slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == v.UID })
	})
}
