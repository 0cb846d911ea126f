package strandedreplica

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/controller/replicateardown"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Store holds the replicas of the whole cluster.
type Store interface {
	GetRO(name string) (*longhorn.Replica, error)
	List(selector labels.Selector) ([]*longhorn.Replica, error)
	ByIndex(index, value string) ([]*longhorn.Replica, error)
	Live(ctx context.Context, name string) (*longhorn.Replica, error)
	ListLive(ctx context.Context, opts metav1.ListOptions) ([]*longhorn.Replica, error)
	Update(ctx context.Context, r *longhorn.Replica) (*longhorn.Replica, error)
	UpdateStatus(ctx context.Context, r *longhorn.Replica) (*longhorn.Replica, error)
	IsStale(r *longhorn.Replica) bool
	queue.Events
}

// NodeStore holds the nodes of the whole cluster.
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

// Deps are the dependencies of the controller. The stores are those for the whole cluster.
type Deps struct {
	queue.Env

	Replicas  Store
	Nodes     NodeStore
	KubeNodes KubeNodeStore
	// Volumes and Engines are read to decide whether a deleted replica is the last copy.
	Volumes replicateardown.VolumeStore
	Engines replicateardown.EngineStore
	// Owner is the node of the leader, for status.ownerID.
	Owner string
}

// Controller handles replicas that their own node cannot handle. Create it with New, then call Run.
type Controller struct {
	Deps
	queue *queue.Queue[string]
}

// New registers the controller's handlers. The controller does nothing before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{Deps: d}
	// The name is a value of a label of the metrics, so it stays the same in all releases.
	c.queue = queue.New(queue.Options[string]{Name: "replica-orphan", Env: d.Env, Workers: 4, Sync: c.sync})
	err := c.queue.Watch(
		queue.Watch{Events: d.Replicas, Handler: queue.Handler(c.queue, queue.Name[*longhorn.Replica])},
		queue.Watch{Events: d.Nodes, Handler: c.ofNodes()},
		queue.Watch{Events: d.KubeNodes, Handler: c.ofKubeNodes()},
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	r, err := c.Replicas.GetRO(name)
	switch {
	case apierrors.IsNotFound(err):
		return queue.Result{}, nil
	case err != nil:
		return queue.Result{}, err
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
	return queue.Result{RequeueAfter: p.After}, c.apply(ctx, in, p)
}

// gather treats a node as gone only if both the Node and the Kubernetes node show that: a Node that a user deleted
// will be registered again.
func (c *Controller) gather(ctx context.Context, r *longhorn.Replica) (Input, error) {
	in := Input{Replica: r, Owner: c.Owner, Now: c.Clock.Now()}
	n, err := c.Nodes.GetRO(r.Spec.NodeID)
	if err != nil && !apierrors.IsNotFound(err) {
		return in, err
	}
	if types.IsNodeGone(n) {
		_, err := c.KubeNodes.GetRO(r.Spec.NodeID)
		if err != nil && !apierrors.IsNotFound(err) {
			return in, err
		}
		in.NodeGone = err != nil
	}
	if r.DeletionTimestamp == nil {
		return in, nil
	}
	in.LacksDisk = types.LacksDisk(n, r)
	nodes, err := c.Nodes.List(labels.Everything())
	if err != nil {
		return in, err
	}
	in.DiskRecorded = isRecorded(nodes, r.Spec.DiskID)
	last := replicateardown.Stores{Volumes: c.Volumes, Engines: c.Engines, Nodes: c.Nodes, Replicas: c.Replicas}
	if in.Kept, err = last.IsLastCopy(ctx, r); err != nil {
		return in, fmt.Errorf("check whether it is the last copy: %w", err)
	}
	return in, nil
}

// isRecorded reports whether any node has a disk of that UUID.
func isRecorded(nodes []*longhorn.Node, uuid string) bool {
	for _, n := range nodes {
		for _, status := range n.Status.DiskStatus {
			if uuid != "" && status.DiskUUID == uuid {
				return true
			}
		}
	}
	return false
}
