package strandedengine

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Store holds the engines of the whole cluster.
type Store interface {
	GetRO(name string) (*longhorn.Engine, error)
	ByIndex(index, value string) ([]*longhorn.Engine, error)
	Live(ctx context.Context, name string) (*longhorn.Engine, error)
	Update(ctx context.Context, e *longhorn.Engine) (*longhorn.Engine, error)
	UpdateStatus(ctx context.Context, e *longhorn.Engine) (*longhorn.Engine, error)
	IsStale(e *longhorn.Engine) bool
	queue.Events
}

// NodeStore holds the nodes of the whole cluster.
type NodeStore interface {
	GetRO(name string) (*longhorn.Node, error)
	Live(ctx context.Context, name string) (*longhorn.Node, error)
	queue.Events
}

// KubeNodeStore reads Kubernetes nodes from the API server.
type KubeNodeStore interface {
	Live(ctx context.Context, name string) (*corev1.Node, error)
}

// VolumeStore holds the volumes of the whole cluster.
type VolumeStore interface {
	GetRO(name string) (*longhorn.Volume, error)
	Live(ctx context.Context, name string) (*longhorn.Volume, error)
}

// Deps are the dependencies of the controller. The stores are those for the whole cluster.
type Deps struct {
	queue.Env

	Engines   Store
	Nodes     NodeStore
	KubeNodes KubeNodeStore
	Volumes   VolumeStore
	// Owner is the node of the leader, for status.ownerID.
	Owner string
}

// Controller stops engines that their own node cannot stop. Create it with New, then call Run.
type Controller struct {
	Deps
	queue *queue.Queue[string]
}

// New registers the controller's handlers. The controller does nothing before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{Deps: d}
	// The name is a value of a label of the metrics, so it stays the same in all releases.
	c.queue = queue.New(queue.Options[string]{Name: "engine-abandon", Env: d.Env, Workers: 4, Sync: c.sync})
	err := c.queue.Watch(
		queue.Watch{Events: d.Engines, Handler: queue.Handler(c.queue, queue.Name[*longhorn.Engine])},
		queue.Watch{Events: d.Nodes, Handler: queue.Handler(c.queue, c.ofNode)},
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// ofNode names the engines of a node, if the node is down. Engines on other nodes require no action.
func (c *Controller) ofNode(n *longhorn.Node) []string {
	if !types.IsNodeDown(n) {
		return nil
	}
	engines, err := c.Engines.ByIndex(datastore.IndexNode, n.Name)
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(engines))
	for _, e := range engines {
		names = append(names, e.Name)
	}
	return names
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	e, err := c.Engines.GetRO(name)
	switch {
	case apierrors.IsNotFound(err):
		return queue.Result{}, nil
	case err != nil:
		return queue.Result{}, err
	case c.Engines.IsStale(e):
		return queue.Result{}, queue.ErrStale
	case e.DeletionTimestamp != nil && !types.HasFinalizer(e):
		return queue.Result{}, nil
	}
	in, err := c.gather(e)
	if err != nil {
		return queue.Result{}, err
	}
	p := plan(in)
	return queue.Result{RequeueAfter: p.After}, c.apply(ctx, in, p)
}

func (c *Controller) gather(e *longhorn.Engine) (Input, error) {
	in := Input{Engine: e, Owner: c.Owner, Now: c.Clock.Now()}
	if e.Spec.NodeID == "" {
		return in, nil
	}
	n, err := c.Nodes.GetRO(e.Spec.NodeID)
	if err != nil && !apierrors.IsNotFound(err) {
		return in, err
	}
	in.NodeDown = types.IsNodeDown(n)
	if in.NodeGone = e.DeletionTimestamp != nil && types.IsNodeGone(n); !in.NodeGone {
		return in, nil
	}
	_, err = c.Volumes.GetRO(e.Spec.VolumeName)
	if err != nil && !apierrors.IsNotFound(err) {
		return in, err
	}
	in.VolumeGone = err != nil
	return in, nil
}
