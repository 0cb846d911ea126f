package replica

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Store holds the replicas: those of one node, or all for the leader.
type Store interface {
	GetRO(name string) (*longhorn.Replica, error)
	List(selector labels.Selector) ([]*longhorn.Replica, error)
	ByIndex(index, value string) ([]*longhorn.Replica, error)
	Live(ctx context.Context, name string) (*longhorn.Replica, error)
	Update(ctx context.Context, r *longhorn.Replica) (*longhorn.Replica, error)
	UpdateStatus(ctx context.Context, r *longhorn.Replica) (*longhorn.Replica, error)
	IsStale(r *longhorn.Replica) bool
	queue.Events
}

// NodeStore holds this node, or all nodes for the leader.
type NodeStore interface {
	GetRO(name string) (*longhorn.Node, error)
	List(selector labels.Selector) ([]*longhorn.Node, error)
	Live(ctx context.Context, name string) (*longhorn.Node, error)
	ListLive(ctx context.Context, opts metav1.ListOptions) ([]*longhorn.Node, error)
	queue.Events
}

// KubeNodeStore holds all Kubernetes nodes.
type KubeNodeStore interface {
	GetRO(name string) (*corev1.Node, error)
	Live(ctx context.Context, name string) (*corev1.Node, error)
	queue.Events
}

// InstanceManagerStore holds this node's instance manager.
type InstanceManagerStore interface {
	GetRO(name string) (*longhorn.InstanceManager, error)
	queue.Events
}

// Deps are what the controller needs.
type Deps struct {
	queue.Env

	Replicas Store
	Nodes    NodeStore
	// KubeNodes are needed by the leader alone.
	KubeNodes KubeNodeStore
	// InstanceManagers are not needed by the leader.
	InstanceManagers InstanceManagerStore
	// VolumeKey reads the key of a volume's data plane; that there is none is an error.
	VolumeKey func(ctx context.Context, volume string) ([]byte, error)
	DataPlane DataPlane
	// Scope is the node whose replicas are run; "" on the leader, for those whose node cannot.
	Scope string
	// Owner is the node of this daemon, for status.ownerID.
	Owner string
}

// Controller runs the replicas of one node. Make it with New, then Run it.
type Controller struct {
	Deps
	queue    *queue.Queue[string]
	attempts attempts
	turns    *turns
}

// workers are more than the disks that may hang at a time hold, at callsPerDisk each.
const workers = 8

// New registers the controller's handlers; nothing happens before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{Deps: d}
	c.queue = queue.New(queue.Options[string]{Name: "replica", Env: d.Env, Workers: workers, Sync: c.sync})
	c.turns = newTurns(c.queue.Add)
	watches := []queue.Watch{{Events: d.Replicas, Handler: queue.Handler(c.queue, queue.Name[*longhorn.Replica])}}
	if d.Scope == "" {
		gone := queue.Handler(c.queue, func(n *corev1.Node) []string { return c.onNode(n.Name) })
		watches = append(watches, queue.Watch{Events: d.Nodes, Handler: queue.Handler(c.queue, c.ofGoneNode)},
			queue.Watch{Events: d.KubeNodes, Handler: cache.ResourceEventHandlerFuncs{DeleteFunc: gone.OnDelete}})
	} else {
		// A disk or the instance manager of this node changed: any replica here may care.
		all := queue.Handler(c.queue, func(metav1.Object) []string { return c.names() })
		watches = append(watches, queue.Watch{Events: d.Nodes, Handler: all}, queue.Watch{Events: d.InstanceManagers, Handler: all})
	}
	if err := c.queue.Watch(watches...); err != nil {
		return nil, err
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

// NotifyAll tells the controller that the state of any replica may have changed, and
// which replicas the data plane hosts.
func (c *Controller) NotifyAll() {
	hosted, _ := c.DataPlane.Replicas()
	c.Notify(append(c.names(), hosted...)...)
}

// ofGoneNode names the replicas of a node that will not come back.
func (c *Controller) ofGoneNode(n *longhorn.Node) []string {
	if !types.IsNodeGone(n) && n.DeletionTimestamp == nil {
		return nil
	}
	return c.onNode(n.Name)
}

func (c *Controller) onNode(node string) []string {
	replicas, err := c.Replicas.ByIndex(datastore.IndexNode, node)
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(replicas))
	for _, r := range replicas {
		names = append(names, r.Name)
	}
	return names
}

func (c *Controller) names() []string {
	replicas, err := c.Replicas.List(labels.Everything())
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
	r, err := c.Replicas.GetRO(name)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return queue.Result{}, err
	case c.Scope != "" && (err != nil || r.Spec.NodeID != c.Scope):
		c.attempts.forget(name)
		return queue.Result{}, c.stopStray(ctx, name)
	case err != nil:
		return queue.Result{}, nil
	case c.Replicas.IsStale(r):
		return queue.Result{}, queue.ErrStale
	}
	if r.DeletionTimestamp != nil && !types.HasFinalizer(r) {
		return queue.Result{}, nil
	}
	in, err := c.gather(r)
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

func (c *Controller) gather(r *longhorn.Replica) (Input, error) {
	in := Input{Replica: r, Owner: c.Owner, Now: c.Clock.Now(), Observed: Observed{Phase: types.PhaseUnknown}}
	if c.Scope == "" {
		return in, c.gatherCluster(&in)
	}
	in.Observed = c.DataPlane.ObserveReplica(r.Name)
	if in.Observed.Phase == types.PhaseRunning {
		c.attempts.forget(r.Name)
	}
	in.Tried = c.attempts.of(r.Name)
	if im, err := c.InstanceManagers.GetRO(types.InstanceManagerName(c.Scope)); err == nil {
		in.Manager = im
	}
	n, err := c.Nodes.GetRO(c.Scope)
	if err != nil && !apierrors.IsNotFound(err) {
		return in, err
	}
	if in.Silent = types.IsNodeGone(n); n != nil {
		in.Disk = diskOf(n, r.Spec.DiskID)
	}
	return in, nil
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
