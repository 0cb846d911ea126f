package engine

import (
	"context"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Store lists the engines of this node, and reads and writes any engine.
type Store interface {
	datastore.WatchedReader[*longhorn.Engine]
	datastore.Lister[*longhorn.Engine]
	datastore.LiveReader[*longhorn.Engine]
	datastore.Updater[*longhorn.Engine]
	datastore.StatusWriter[*longhorn.Engine]
}

// Deps are the dependencies of the controller.
type Deps struct {
	queue.Env

	Engines  Store
	Replicas datastore.LiveReader[*longhorn.Replica] // of any node
	// VolumeKey reads the key of a volume's data plane; a missing key is an error.
	VolumeKey func(ctx context.Context, volume string) ([]byte, error)
	Setting   settings.Values
	DataPlane DataPlane
	// Node is this daemon's node: the controller runs its engines.
	Node string
}

// Controller runs the engines of one node. Create it with New, then call Run.
type Controller struct {
	Deps
	queue    *queue.Queue[string]
	refusals refusals
}

// New registers the controller's handlers. The controller does nothing before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{Deps: d}
	c.queue = queue.New(queue.Options[string]{Name: "engine", Env: d.Env, Workers: 4, Sync: c.sync})
	if err := c.queue.Watch(queue.Watch{Events: d.Engines, Handler: queue.Handler(c.queue, queue.Name[*longhorn.Engine])}); err != nil {
		return nil, err
	}
	return c, nil
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// Notify notifies the controller that the data plane's state of these engines changed.
func (c *Controller) Notify(names ...string) {
	for _, name := range names {
		c.queue.Add(name)
	}
}

// NotifyAll notifies the controller that the state of any engine, and the list of engines in the data plane, may
// have changed.
func (c *Controller) NotifyAll() {
	engines, err := c.Engines.List(labels.Everything())
	if err != nil {
		return
	}
	for _, e := range engines {
		if e.Spec.NodeID == c.Node {
			c.queue.Add(e.Name)
		}
	}
	hosted, _ := c.DataPlane.Engines()
	c.Notify(hosted...)
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	e, err := c.Engines.GetRO(name)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return queue.Result{}, err
	case err != nil || e.Spec.NodeID != c.Node:
		return queue.Result{}, c.evictUnlisted(ctx, name)
	case c.Engines.IsStale(e):
		return queue.Result{}, queue.ErrStale
	case e.DeletionTimestamp != nil && !types.HasFinalizer(e):
		return queue.Result{}, nil
	}
	in := Input{
		Engine: e, Observed: c.DataPlane.ObserveEngine(name), Manager: types.InstanceManagerName(c.Node),
		NewSession: uuid.NewString(), Owner: c.Node, Now: c.Clock.Now(),
	}
	in.RefusedAt = c.refusals.last(name, in.Observed)
	if in.Observed.Phase == types.PhaseKept {
		if in.Awaited, err = c.awaited(ctx, e); err != nil {
			return queue.Result{}, err
		}
	}
	p := plan(in)
	return queue.Result{RequeueAfter: p.After}, c.apply(ctx, in, p)
}
