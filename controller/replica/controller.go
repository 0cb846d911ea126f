package replica

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/controller/replicateardown"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Store lists the replicas of this node, and reads and writes any replica.
type Store interface {
	datastore.WatchedReader[*longhorn.Replica]
	datastore.Lister[*longhorn.Replica]
	datastore.LiveReader[*longhorn.Replica]
	datastore.LiveLister[*longhorn.Replica]
	datastore.Updater[*longhorn.Replica]
	datastore.StatusWriter[*longhorn.Replica]
}

// NodeStore watches this node, and reads any node.
type NodeStore interface {
	datastore.WatchedReader[*longhorn.Node]
	datastore.LiveReader[*longhorn.Node]
}

// Deps are the dependencies of the controller.
type Deps struct {
	queue.Env

	Replicas         Store
	Nodes            NodeStore
	InstanceManagers datastore.WatchedReader[*longhorn.InstanceManager] // of this node
	// Volumes and Engines are read to decide whether a deleted replica is the last copy.
	Volumes replicateardown.VolumeStore
	Engines replicateardown.EngineStore
	// VolumeKey reads the key of a volume's data plane; a missing key is an error.
	VolumeKey func(ctx context.Context, volume string) ([]byte, error)
	DataPlane DataPlane
	// Node is this daemon's node: the controller runs its replicas.
	Node string
}

// Controller runs the replicas of one node. Create it with New, then call Run.
type Controller struct {
	Deps
	queue    *queue.Queue[string]
	attempts attempts // to create or open replicas
	growths  attempts // to grow replicas
	turns    *turns
}

// workers is the number of workers. It is larger than the number that the disks which may hang at a time can block,
// at callsPerDisk each.
const workers = 8

// New registers the controller's handlers. The controller does nothing before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{Deps: d}
	c.queue = queue.New(queue.Options[string]{Name: "replica", Env: d.Env, Workers: workers, Sync: c.sync})
	c.turns = newTurns(c.queue.Add)
	// A change of a disk or of this node's instance manager may concern any replica.
	all := queue.Handler(c.queue, func(metav1.Object) []string { return c.names() })
	err := c.queue.Watch(
		queue.Watch{Events: d.Replicas, Handler: queue.Handler(c.queue, queue.Name[*longhorn.Replica])},
		queue.Watch{Events: d.Nodes, Handler: all},
		queue.Watch{Events: d.InstanceManagers, Handler: all},
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// Notify notifies the controller that the data plane's state of these replicas changed.
func (c *Controller) Notify(names ...string) {
	for _, name := range names {
		c.queue.Add(name)
	}
}

// NotifyAll notifies the controller that the state of any replica, and the list of replicas in the data plane, may
// have changed.
func (c *Controller) NotifyAll() {
	hosted, _ := c.DataPlane.Replicas()
	c.Notify(append(c.names(), hosted...)...)
}

func (c *Controller) names() []string {
	replicas, err := c.Replicas.List(labels.Everything())
	if err != nil {
		return nil
	}
	var names []string
	for _, r := range replicas {
		if r.Spec.NodeID == c.Node {
			names = append(names, r.Name)
		}
	}
	return names
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	r, err := c.Replicas.GetRO(name)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return queue.Result{}, err
	case err != nil || r.Spec.NodeID != c.Node:
		c.attempts.forget(name)
		c.growths.forget(name)
		return queue.Result{}, c.stopUnlisted(ctx, name)
	case c.Replicas.IsStale(r):
		return queue.Result{}, queue.ErrStale
	case r.DeletionTimestamp != nil && !types.HasFinalizer(r):
		return queue.Result{}, nil
	}
	in, err := c.gather(ctx, r)
	if err != nil {
		return queue.Result{}, err
	}
	p := plan(in)
	if p.Action.asksDisk() {
		done, ok := c.turns.take(r.Spec.DiskID, name)
		if !ok {
			return queue.Result{}, nil
		}
		defer done()
	}
	return queue.Result{RequeueAfter: p.After}, c.apply(ctx, in, p)
}

func (c *Controller) gather(ctx context.Context, r *longhorn.Replica) (Input, error) {
	in := Input{Replica: r, Observed: c.DataPlane.ObserveReplica(r.Name), Owner: c.Node, Now: c.Clock.Now()}
	if in.Observed.Phase == types.PhaseRunning {
		c.attempts.forget(r.Name)
	}
	in.Tried, in.Grown = c.attempts.of(r.Name), c.growths.of(r.Name)
	if im, err := c.InstanceManagers.GetRO(types.InstanceManagerName(c.Node)); err == nil {
		in.Manager = im
	}
	n, err := c.Nodes.GetRO(c.Node)
	if err != nil && !apierrors.IsNotFound(err) {
		return in, err
	}
	if in.Silent = types.IsNodeGone(n); n != nil {
		in.Disk = diskOf(n, r.Spec.DiskID)
	}
	if r.DeletionTimestamp != nil {
		if in.Kept, err = c.isLastCopy(ctx, r); err != nil {
			return in, fmt.Errorf("check whether it is the last copy: %w", err)
		}
	}
	return in, nil
}

func (c *Controller) isLastCopy(ctx context.Context, r *longhorn.Replica) (bool, error) {
	return replicateardown.Stores{Volumes: c.Volumes, Engines: c.Engines, Nodes: c.Nodes, Replicas: c.Replicas}.IsLastCopy(ctx, r)
}

// diskOf finds a disk by its UUID: a path is not a disk.
func diskOf(n *longhorn.Node, uuid string) Disk {
	name := types.DiskOf(n, uuid)
	if name == "" {
		return Disk{}
	}
	ready := types.FindCondition(n.Status.DiskStatus[name].Conditions, types.ConditionReady)
	return Disk{Known: true, Ready: ready.Status == longhorn.ConditionTrue, Path: n.Spec.Disks[name].Path, Message: ready.Message}
}
