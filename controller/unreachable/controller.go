package unreachable

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// NodeStore holds the nodes of the whole cluster.
type NodeStore interface {
	GetRO(name string) (*longhorn.Node, error)
	queue.Events
}

// ReplicaStore holds the replicas of the whole cluster.
type ReplicaStore interface {
	ByIndex(index, value string) ([]*longhorn.Replica, error)
	UpdateStatus(ctx context.Context, r *longhorn.Replica) (*longhorn.Replica, error)
	IsStaleIn(index, value string) bool
	queue.Events
}

// ManagerStore holds the instance managers of the whole cluster.
type ManagerStore interface {
	GetRO(name string) (*longhorn.InstanceManager, error)
	UpdateStatus(ctx context.Context, m *longhorn.InstanceManager) (*longhorn.InstanceManager, error)
	IsStale(m *longhorn.InstanceManager) bool
	queue.Events
}

// Deps are the dependencies of the controller; the stores are of the whole cluster.
type Deps struct {
	queue.Env

	Nodes    NodeStore
	Replicas ReplicaStore
	Managers ManagerStore
}

// Controller reports the state of instances on nodes that are down. Create it with New, then call Run.
type Controller struct {
	Deps
	queue *queue.Queue[string] // of nodes' names
}

// New registers the controller's handlers. Nothing else happens before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{Deps: d}
	// The name is a value of a label of the metrics, so it stays the same in all releases.
	c.queue = queue.New(queue.Options[string]{Name: "outage", Env: d.Env, Sync: c.sync})
	err := c.queue.Watch(
		queue.Watch{Events: d.Nodes, Handler: queue.Changes(c.queue, whenNode)},
		queue.Watch{Events: d.Replicas, Handler: queue.Changes(c.queue, whenReplica)},
		queue.Watch{Events: d.Managers, Handler: queue.Changes(c.queue, whenManager)},
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// whenNode returns a node that is new, or has become down, gone, or neither. Nodes change all the time, above all in
// the free space of their disks.
func whenNode(was, is *longhorn.Node) []string {
	if is == nil || was != nil && types.IsNodeDown(was) == types.IsNodeDown(is) && types.IsNodeGone(was) == types.IsNodeGone(is) {
		return nil
	}
	return []string{is.Name}
}

func whenReplica(was, is *longhorn.Replica) []string {
	if is == nil || was != nil && was.Status.CurrentState == is.Status.CurrentState && was.Spec.NodeID == is.Spec.NodeID {
		return nil
	}
	return []string{is.Spec.NodeID}
}

func whenManager(was, is *longhorn.InstanceManager) []string {
	if is == nil || was != nil && was.Status.CurrentState == is.Status.CurrentState {
		return nil
	}
	return []string{is.Spec.NodeID}
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	in := Input{Now: c.Clock.Now()}
	var err error
	if in.Node, err = c.Nodes.GetRO(name); err != nil {
		return queue.Result{}, queue.Gone(err)
	}
	if c.Replicas.IsStaleIn(datastore.IndexNode, name) {
		return queue.Result{}, queue.ErrStale
	}
	if in.Replicas, err = c.Replicas.ByIndex(datastore.IndexNode, name); err != nil {
		return queue.Result{}, err
	}
	switch m, err := c.Managers.GetRO(types.InstanceManagerName(name)); {
	case err == nil && c.Managers.IsStale(m):
		return queue.Result{}, queue.ErrStale
	case err == nil:
		in.Manager = m
	case !apierrors.IsNotFound(err):
		return queue.Result{}, err
	}
	return queue.Result{}, c.apply(ctx, name, plan(in))
}

// apply writes each status. If a write fails, the earlier ones are not repeated.
func (c *Controller) apply(ctx context.Context, node string, p Plan) error {
	log := queue.Log(ctx).WithField(logfields.Node, node)
	if m := p.Manager; m != nil {
		log.WithField(logfields.State, m.Status.CurrentState).Info("updating the state of the instance manager: its node went down or came back")
		if _, err := c.Managers.UpdateStatus(ctx, m); err != nil {
			return fmt.Errorf("update instance manager %s: %w", m.Name, err)
		}
	}
	for _, r := range p.Replicas {
		log.WithField(logfields.Replica, r.Name).WithField(logfields.State, r.Status.CurrentState).Info("updating the state of a replica: its node went down or came back")
		if _, err := c.Replicas.UpdateStatus(ctx, r); err != nil {
			return fmt.Errorf("update replica %s: %w", r.Name, err)
		}
	}
	return nil
}
