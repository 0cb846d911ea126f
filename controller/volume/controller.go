package volume

import (
	"context"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// Controller drives all volumes of the cluster. Make it with New, then Run it.
type Controller struct {
	deps  Deps
	queue *queue.Queue[string]
}

// New registers the controller's handlers; nothing happens before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{deps: d}
	c.queue = queue.New(queue.Options[string]{Name: "volume", Env: d.Env, Workers: 4, Sync: c.sync})
	return c, c.watch()
}

// Run syncs until ctx ends, and returns when the last sync is done.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller) watch() error {
	own := queue.Handler(c.queue, queue.Name[*longhorn.Volume])
	child := queue.Handler(c.queue, func(o metav1.Object) []string { return []string{o.GetLabels()[types.LabelVolume]} })
	room := queue.Handler(c.queue, func(metav1.Object) []string { return c.unscheduled() })
	process := queue.Handler(c.queue, func(im *longhorn.InstanceManager) []string { return c.onNode(im.Spec.NodeID) })
	return c.queue.Watch(
		queue.Watch{Events: c.deps.Volumes, Handler: own},
		queue.Watch{Events: c.deps.Attachments, Handler: child},
		queue.Watch{Events: c.deps.Engines, Handler: child},
		queue.Watch{Events: c.deps.Replicas, Handler: child},
		queue.Watch{Events: c.deps.Nodes, Handler: room},
		queue.Watch{Events: c.deps.Nodes, Handler: c.whenNodeTurns()},
		queue.Watch{Events: c.deps.InstanceManagers, Handler: room},
		queue.Watch{Events: c.deps.InstanceManagers, Handler: process},
		queue.Watch{Events: c.deps.Settings, Handler: room},
	)
}

// whenNodeTurns wakes the volumes of a node that turned, was registered or was removed.
func (c *Controller) whenNodeTurns() cache.ResourceEventHandler {
	wake := func(n *longhorn.Node) {
		for _, name := range c.onNode(n.Name) {
			c.queue.Add(name)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			was, is := before.(*longhorn.Node), after.(*longhorn.Node)
			if hasTurned(was, is) {
				wake(is)
			}
		},
		AddFunc: func(obj any) { wake(obj.(*longhorn.Node)) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			wake(obj.(*longhorn.Node))
		},
	}
}

// hasTurned tells whether a node went down, came back, or has other disks than before. The
// many other changes of a node, of its disks' free space above all, concern no volume.
func hasTurned(was, is *longhorn.Node) bool {
	sameDisks := maps.EqualFunc(was.Status.DiskStatus, is.Status.DiskStatus, func(a, b longhorn.DiskStatus) bool { return a.DiskUUID == b.DiskUUID })
	return types.IsNodeDown(was) != types.IsNodeDown(is) || types.IsNodeGone(was) != types.IsNodeGone(is) || !sameDisks
}

// onNode lists the volumes whose engine or a replica of which is on a node.
func (c *Controller) onNode(node string) []string {
	var names []string
	if engines, err := c.deps.Engines.ByIndex(datastore.IndexNode, node); err == nil {
		for _, e := range engines {
			names = append(names, e.Spec.VolumeName)
		}
	}
	if replicas, err := c.deps.Replicas.ByIndex(datastore.IndexNode, node); err == nil {
		for _, r := range replicas {
			names = append(names, r.Spec.VolumeName)
		}
	}
	return names
}

// unscheduled lists the volumes that wait for room, which a change of a node may have made.
func (c *Controller) unscheduled() []string {
	volumes, err := c.deps.Volumes.List(labels.Everything())
	if err != nil {
		return nil
	}
	var names []string
	for _, v := range volumes {
		if !types.IsConditionTrue(v.Status.Conditions, types.ConditionScheduled) {
			names = append(names, v.Name)
		}
	}
	return names
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	v, err := c.deps.Volumes.Get(name)
	if apierrors.IsNotFound(err) {
		return queue.Result{}, nil
	}
	if err != nil {
		return queue.Result{}, err
	}
	if c.deps.Volumes.IsStale(v) {
		return queue.Result{}, queue.ErrStale
	}
	log := queue.Log(ctx).WithField(logfields.Volume, name)
	in, err := c.gather(v)
	if err != nil {
		return queue.Result{}, err
	}
	if v.DeletionTimestamp != nil {
		if !types.HasFinalizer(v) {
			return queue.Result{}, nil
		}
		return queue.Result{}, c.applyDeletion(ctx, log, v, planDeletion(in))
	}
	p := plan(in)
	return queue.Result{RequeueAfter: p.After}, c.apply(ctx, log, v, p)
}
