package engine

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
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
	// Scope is the node whose engines are run; "" on the leader, for those without one.
	Scope string
	// Owner is the node of this daemon, for status.ownerID.
	Owner string
}

// Controller runs the engines of one node. Make it with New, then Run it.
type Controller struct {
	Deps
	queue *queue.Queue[string]
}

// New registers the controller's handlers; nothing happens before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{Deps: d}
	c.queue = queue.New(queue.Options[string]{Name: "engine", Clock: d.Clock, Log: d.Log, Workers: 4, Sync: c.sync, Metrics: d.Metrics})
	own := queue.Handler(c.queue, func(o metav1.Object) []string { return []string{o.GetName()} })
	if _, err := d.Store.Engines.AddHandler(own); err != nil {
		return nil, fmt.Errorf("watch engines: %w", err)
	}
	return c, nil
}

// Run syncs until ctx ends, and returns when the last sync is done.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// NotifyAll tells the controller that the data plane's state of any engine may have changed.
func (c *Controller) NotifyAll() {
	engines, err := c.Store.Engines.List(labels.Everything())
	if err != nil {
		return
	}
	for _, e := range engines {
		if e.Spec.NodeID == c.Scope {
			c.queue.Add(e.Name)
		}
	}
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	e, err := c.Store.Engines.GetRO(name)
	if apierrors.IsNotFound(err) || err == nil && e.Spec.NodeID != c.Scope {
		return queue.Result{}, nil
	}
	if err != nil {
		return queue.Result{}, err
	}
	if c.Store.Engines.IsStale(e) {
		return queue.Result{}, queue.ErrStale
	}
	if e.DeletionTimestamp != nil && !types.HasFinalizer(e) {
		return queue.Result{}, nil
	}
	in := Input{
		Engine: e, Scope: c.Scope, Owner: c.Owner, Now: c.Clock.Now(),
		NewSession: uuid.NewString(), Observed: Observed{Phase: PhaseUnknown},
	}
	if c.Scope != "" {
		in.Manager = types.InstanceManagerName(c.Scope)
		in.Observed = c.DataPlane.ObserveEngine(name)
	}
	return queue.Result{}, c.apply(ctx, in, plan(in))
}
