package engine

import (
	"context"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Store holds the engines: those of one node, or all for the leader.
type Store interface {
	GetRO(name string) (*longhorn.Engine, error)
	List(selector labels.Selector) ([]*longhorn.Engine, error)
	ByIndex(index, value string) ([]*longhorn.Engine, error)
	Live(ctx context.Context, name string) (*longhorn.Engine, error)
	Update(ctx context.Context, e *longhorn.Engine) (*longhorn.Engine, error)
	UpdateStatus(ctx context.Context, e *longhorn.Engine) (*longhorn.Engine, error)
	IsStale(e *longhorn.Engine) bool
	queue.Events
}

// ReplicaStore reads replicas of any node from the API server.
type ReplicaStore interface {
	Live(ctx context.Context, name string) (*longhorn.Replica, error)
}

// NodeStore holds the nodes of the whole cluster.
type NodeStore interface {
	GetRO(name string) (*longhorn.Node, error)
	Live(ctx context.Context, name string) (*longhorn.Node, error)
	queue.Events
}

// Deps are what the controller needs.
type Deps struct {
	queue.Env

	Engines  Store
	Replicas ReplicaStore
	// Nodes are needed by the leader alone.
	Nodes NodeStore
	// VolumeKey reads the key of a volume's data plane; that there is none is an error.
	VolumeKey func(ctx context.Context, volume string) ([]byte, error)
	Setting   func(types.SettingName) string // a setting's value as it stands, or ""
	DataPlane DataPlane
	// Scope is the node whose engines are run; "" on the leader, for those whose node cannot.
	Scope string
	// Owner is the node of this daemon, for status.ownerID.
	Owner string
}

// Controller runs the engines of one node. Make it with New, then Run it.
type Controller struct {
	Deps
	queue    *queue.Queue[string]
	refusals refusals
}

// New registers the controller's handlers; nothing happens before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{Deps: d}
	c.queue = queue.New(queue.Options[string]{Name: "engine", Env: d.Env, Workers: 4, Sync: c.sync})
	watches := []queue.Watch{{Events: d.Engines, Handler: queue.Handler(c.queue, queue.Name[*longhorn.Engine])}}
	if d.Scope == "" {
		watches = append(watches, queue.Watch{Events: d.Nodes, Handler: queue.Handler(c.queue, c.ofNode)})
	}
	if err := c.queue.Watch(watches...); err != nil {
		return nil, err
	}
	return c, nil
}

// Run syncs until ctx ends, and returns when the last sync is done.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// NotifyAll tells the controller that the data plane's state of any engine may have
// changed, and which engines it hosts.
func (c *Controller) NotifyAll() {
	engines, err := c.Engines.List(labels.Everything())
	if err != nil {
		return
	}
	for _, e := range engines {
		if e.Spec.NodeID == c.Scope {
			c.queue.Add(e.Name)
		}
	}
	hosted, _ := c.DataPlane.Engines()
	for _, name := range hosted {
		c.queue.Add(name)
	}
}

// ofNode names the engines of a node, if it is down: of others the leader has nothing to see to.
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
	case err != nil && !apierrors.IsNotFound(err):
		return queue.Result{}, err
	case c.Scope != "" && (err != nil || e.Spec.NodeID != c.Scope):
		return queue.Result{}, c.evictStray(ctx, name)
	case err != nil:
		return queue.Result{}, nil
	case c.Engines.IsStale(e):
		return queue.Result{}, queue.ErrStale
	case e.DeletionTimestamp != nil && !types.HasFinalizer(e):
		return queue.Result{}, nil
	}
	in := Input{
		Engine: e, Scope: c.Scope, Owner: c.Owner, Now: c.Clock.Now(),
		NewSession: uuid.NewString(), Observed: Observed{Phase: types.PhaseUnknown},
	}
	if c.Scope != "" {
		in.Manager = types.InstanceManagerName(c.Scope)
		in.Observed = c.DataPlane.ObserveEngine(name)
		in.RefusedAt = c.refusals.last(name, in.Observed)
		if in.Observed.Phase == types.PhaseKept {
			if in.Awaited, err = c.awaited(ctx, e); err != nil {
				return queue.Result{}, err
			}
		}
	} else if in.NodeDown, err = c.isNodeDown(e.Spec.NodeID); err != nil {
		return queue.Result{}, err
	}
	p := plan(in)
	return queue.Result{RequeueAfter: p.After}, c.apply(ctx, in, p)
}

func (c *Controller) isNodeDown(name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	n, err := c.Nodes.GetRO(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	return types.IsNodeDown(n), nil
}
