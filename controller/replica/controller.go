package replica

import (
	"context"
	"fmt"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Deps are what the controller needs.
type Deps struct {
	Store     *datastore.Datastore
	DataPlane DataPlane
	Recorder  record.EventRecorder
	Clock     clock.WithTicker
	Log       *logrus.Entry
	// Metrics of the queue; nil: none.
	Metrics *queue.Metrics
	// Scope is the node whose replicas are run; "" on the leader, for those without one.
	Scope string
	// Owner is the node of this daemon, for status.ownerID.
	Owner string
}

// Controller runs the replicas of one node. Make it with New, then Run it.
type Controller struct {
	Deps
	queue *queue.Queue[string]
}

// New registers the controller's handlers; nothing happens before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{Deps: d}
	c.queue = queue.New(queue.Options[string]{Name: "replica", Clock: d.Clock, Log: d.Log, Workers: 4, Sync: c.sync, Metrics: d.Metrics})
	own := queue.Handler(c.queue, func(o metav1.Object) []string { return []string{o.GetName()} })
	if _, err := d.Store.Replicas.AddHandler(own); err != nil {
		return nil, fmt.Errorf("watch replicas: %w", err)
	}
	if d.Scope == "" {
		return c, nil
	}
	// A disk or the instance manager of this node changed: any replica here may care.
	all := queue.Handler(c.queue, func(metav1.Object) []string { return c.names() })
	for _, add := range []func(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error){
		d.Store.Nodes.AddHandler, d.Store.InstanceManagers.AddHandler,
	} {
		if _, err := add(all); err != nil {
			return nil, fmt.Errorf("watch what replicas stand on: %w", err)
		}
	}
	return c, nil
}

// Run syncs until ctx ends, and returns when the last sync is done.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// Notify tells the controller that the data plane's state of these replicas changed.
func (c *Controller) Notify(names ...string) {
	for _, name := range names {
		c.queue.Add(name)
	}
}

// NotifyAll tells the controller that the state of any replica may have changed.
func (c *Controller) NotifyAll() { c.Notify(c.names()...) }

func (c *Controller) names() []string {
	replicas, err := c.Store.Replicas.List(labels.Everything())
	if err != nil {
		return nil
	}
	var names []string
	for _, r := range replicas {
		if r.Spec.NodeID == c.Scope {
			names = append(names, r.Name)
		}
	}
	return names
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	r, err := c.Store.Replicas.GetRO(name)
	if apierrors.IsNotFound(err) || err == nil && r.Spec.NodeID != c.Scope {
		return queue.Result{}, nil
	}
	if err != nil {
		return queue.Result{}, err
	}
	if c.Store.Replicas.IsStale(r) {
		return queue.Result{}, queue.ErrStale
	}
	if r.DeletionTimestamp != nil && !types.HasFinalizer(r) {
		return queue.Result{}, nil
	}
	in := c.gather(r)
	p := plan(in)
	return queue.Result{RequeueAfter: p.After}, c.apply(ctx, in, p)
}

func (c *Controller) gather(r *longhorn.Replica) Input {
	in := Input{Replica: r, Owner: c.Owner, Now: c.Clock.Now(), Observed: Observed{Phase: PhaseUnknown}}
	if c.Scope == "" {
		return in
	}
	in.Observed = c.DataPlane.ObserveReplica(r.Name)
	if im, err := c.Store.InstanceManagers.GetRO(types.InstanceManagerName(c.Scope)); err == nil {
		in.Manager = im
	}
	if n, err := c.Store.Nodes.GetRO(c.Scope); err == nil {
		in.Disk = diskOf(n, r.Spec.DiskID)
	}
	return in
}

// diskOf finds a disk by its UUID: a path is not a disk.
func diskOf(n *longhorn.Node, uuid string) Disk {
	for name, status := range n.Status.DiskStatus {
		if status.DiskUUID != uuid || uuid == "" {
			continue
		}
		ready := types.FindCondition(status.Conditions, types.ConditionReady)
		return Disk{
			Known: true, Ready: ready.Status == longhorn.ConditionTrue,
			Path: n.Spec.Disks[name].Path, Message: ready.Message,
		}
	}
	return Disk{}
}
