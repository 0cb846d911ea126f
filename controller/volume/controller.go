package volume

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// Controller drives all volumes of the cluster. Create it with New, then call Run.
type Controller struct {
	deps   Deps
	queue  *queue.Queue[string]
	placed *reservations
	turns  turns
	// refusals holds the API server's refusals to write children of volumes, by the volume's name.
	refusals queue.Refusals[string]
	// taking serializes the decisions that use room or turns. A holder reads the free room and turns, decides, and
	// reserves them.
	taking sync.Mutex
}

// New registers the controller's handlers. The controller does nothing before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{deps: d, placed: newReservations(d.Clock)}
	c.queue = queue.New(queue.Options[string]{Name: "volume", Env: d.Env, Workers: 4, Sync: c.sync})
	return c, c.watch()
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// Sync syncs one volume, as the queue does. It is for tests of several controllers at once.
func (c *Controller) Sync(ctx context.Context, name string) (queue.Result, error) {
	return c.sync(ctx, name)
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	v, err := c.deps.Volumes.Get(name)
	if apierrors.IsNotFound(err) {
		c.turns.forget(name)
		c.refusals.Forget(name)
		return queue.Result{}, nil
	}
	if err != nil {
		return queue.Result{}, err
	}
	if c.deps.Volumes.IsStale(v) {
		return queue.Result{}, queue.ErrStale
	}
	log := queue.Log(ctx).WithField(logfields.Volume, name)
	if v.DeletionTimestamp != nil {
		in, err := c.gather(v)
		if err != nil || !types.HasFinalizer(v) {
			return queue.Result{}, err
		}
		d := planDeletion(in)
		return queue.Result{RequeueAfter: d.After}, c.showRefusal(ctx, v, c.applyDeletion(ctx, log, v, d))
	}
	p, err := c.plan(v)
	if err != nil {
		return queue.Result{}, err
	}
	err = c.apply(ctx, log, v, p)
	c.turns.wrote(name)
	return queue.Result{RequeueAfter: p.After}, c.showRefusal(ctx, v, err)
}

// plan decides the next actions for the volume. A plan may place replicas, grow them, or start a rebuild. Then plan
// decides a second time while it holds taking. It reserves the room and the turn before another volume's plan reads
// them.
func (c *Controller) plan(v *longhorn.Volume) (Plan, error) {
	in, err := c.gather(v)
	if err != nil {
		return Plan{}, err
	}
	p := plan(in)
	if len(p.CreateReplicas) == 0 && p.BeginsOn == "" && !p.beginsExpansion(v) {
		return p, nil
	}
	c.taking.Lock()
	defer c.taking.Unlock()
	if in, err = c.gather(v); err != nil {
		return Plan{}, err
	}
	p = plan(in)
	c.placed.assume(p.CreateReplicas)
	if p.beginsExpansion(v) {
		c.placed.assumeSize(v, p.Status.Size)
	}
	if p.BeginsOn != "" {
		c.turns.take(v.Name, p.BeginsOn)
	}
	return p, nil
}
