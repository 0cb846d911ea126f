package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// Lister holds all objects of a kind.
type Lister[T any] interface {
	datastore.WatchedLister[T]
	datastore.LiveLister[T]
}

// ManagerStore holds all InstanceManagers.
type ManagerStore interface {
	Lister[*longhorn.InstanceManager]
	datastore.StatusUpdater[*longhorn.InstanceManager]
}

// AttachmentStore holds all VolumeAttachments.
type AttachmentStore interface {
	Lister[*longhorn.VolumeAttachment]
	datastore.Updater[*longhorn.VolumeAttachment]
}

// BudgetStore holds the PodDisruptionBudgets of the namespace.
type BudgetStore interface {
	Lister[*policyv1.PodDisruptionBudget]
	datastore.Creator[*policyv1.PodDisruptionBudget]
	datastore.Updater[*policyv1.PodDisruptionBudget]
	datastore.Deleter
}

// ReplicaStore holds all Replicas.
type ReplicaStore interface {
	Lister[*longhorn.Replica]
	datastore.Updater[*longhorn.Replica]
}

// Deps are the dependencies of a Controller; the stores are of the whole cluster.
type Deps struct {
	queue.Env

	Volumes     Lister[*longhorn.Volume]
	Attachments AttachmentStore
	Engines     Lister[*longhorn.Engine]
	Replicas    ReplicaStore
	Nodes       Lister[*longhorn.Node]
	KubeNodes   Lister[*corev1.Node]
	Managers    ManagerStore
	Budgets     BudgetStore
	Settings    queue.Events
	Setting     settings.Values
}

// Controller maintains the budgets of all instance managers. It runs in the leader.
type Controller struct {
	deps Deps
	// queue has one key: whether a copy is the last depends on all nodes.
	queue *queue.Queue[string]
	// refusals stores the API server's reasons for refusing budgets, by the budget's name.
	refusals queue.Refusals[string]
}

const everything = "all"

// New creates a Controller. It does nothing before Run is called.
func New(deps Deps) (*Controller, error) {
	c := &Controller{deps: deps}
	c.queue = queue.New(queue.Options[string]{Name: "drain", Env: deps.Env, Sync: c.sync})
	always := queue.Handler(c.queue, func(metav1.Object) []string { return []string{everything} })
	err := c.queue.Watch(
		queue.Watch{Events: deps.Volumes, Handler: always},
		queue.Watch{Events: deps.Attachments, Handler: always},
		queue.Watch{Events: deps.Engines, Handler: always},
		queue.Watch{Events: deps.Replicas, Handler: always},
		queue.Watch{Events: deps.Nodes, Handler: always},
		queue.Watch{Events: deps.KubeNodes, Handler: always},
		queue.Watch{Events: deps.Managers, Handler: always},
		queue.Watch{Events: deps.Budgets, Handler: always},
		queue.Watch{Events: deps.Settings, Handler: always},
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Run works until ctx is done. The caches must be filled.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller) sync(ctx context.Context, _ string) (queue.Result, error) {
	in, err := c.gather(cached{})
	if err != nil {
		return queue.Result{}, err
	}
	return queue.Result{}, c.apply(ctx, in, plan(in))
}

// cached and live are the two ways to read all objects of a kind.
type (
	cached struct{}
	live   struct{ ctx context.Context }
)

func list[T any](how any, from Lister[T], into *[]T) (err error) {
	if l, ok := how.(live); ok {
		*into, err = from.ListLive(l.ctx, metav1.ListOptions{})
		return err
	}
	*into, err = from.List(labels.Everything())
	return err
}

func (c *Controller) gather(how any) (Input, error) {
	in := Input{Policy: settings.DrainPolicy(c.deps.Setting.Text(settings.NodeDrainPolicy)), Now: c.deps.Clock.Now()}
	for _, read := range []func() error{
		func() error { return list(how, c.deps.Volumes, &in.Volumes) },
		func() error { return list(how, c.deps.Engines, &in.Engines) },
		func() error { return list[*longhorn.Replica](how, c.deps.Replicas, &in.Replicas) },
		func() error { return list(how, c.deps.Nodes, &in.Nodes) },
		func() error { return list(how, c.deps.KubeNodes, &in.KubeNodes) },
		func() error { return list[*longhorn.InstanceManager](how, c.deps.Managers, &in.Managers) },
		func() error { return list[*policyv1.PodDisruptionBudget](how, c.deps.Budgets, &in.Budgets) },
	} {
		if err := read(); err != nil {
			return in, err
		}
	}
	return in, nil
}

// apply creates budgets first and deletes them last: protection of data must not wait for any other action. If a write
// fails, the writes of other objects still happen; the next pass tries the failed one again. But if a budget could not
// be created, no budget is deleted: one copy may be evicted because another one stays.
//
// A write that the cache does not show yet is repeated. It fails with a conflict or because the object exists, and the
// queue treats this as a stale cache.
func (c *Controller) apply(ctx context.Context, in Input, p Plan) error {
	kept := c.keep(ctx, in, p)
	failures := []error{kept, c.mark(ctx, p.Marks), c.detach(ctx, in)}
	statuses := p.Statuses
	if kept == nil {
		kept = c.release(ctx, p.Delete)
		failures = append(failures, kept)
	}
	if kept != nil { // a budget may still exist
		statuses = slices.DeleteFunc(statuses, func(m *longhorn.InstanceManager) bool {
			return types.IsConditionTrue(m.Status.Conditions, types.ConditionDrainable)
		})
	}
	return errors.Join(append(failures, c.tell(ctx, statuses))...)
}

func (c *Controller) keep(ctx context.Context, in Input, p Plan) error {
	var failures []error
	for _, b := range p.Create {
		_, err := c.deps.Budgets.Create(ctx, b)
		if err = c.tried(in, b, err); err != nil {
			failures = append(failures, fmt.Errorf("create disruption budget %s: %w", b.Name, err))
			continue
		}
		queue.Log(ctx).WithField(logfields.Key, b.Name).Info("Created a disruption budget")
	}
	for _, b := range p.Update {
		_, err := c.deps.Budgets.Update(ctx, b)
		if err = c.tried(in, b, err); err != nil {
			failures = append(failures, fmt.Errorf("update disruption budget %s: %w", b.Name, err))
		}
	}
	return errors.Join(failures...)
}

// tried marks a refusal of a budget, and records its Event for the instance manager once: without the budget, a drain
// of the node is not blocked.
func (c *Controller) tried(in Input, b *policyv1.PodDisruptionBudget, err error) error {
	err = queue.OfChild(err)
	i := slices.IndexFunc(in.Managers, func(m *longhorn.InstanceManager) bool { return metav1.IsControlledBy(b, m) })
	if i >= 0 && c.refusals.Tried(b.Name, err, c.deps.Clock.Now()) {
		c.deps.Recorder.Event(in.Managers[i], corev1.EventTypeWarning, types.ReasonChildRefused, queue.ChildRefusal(err))
	}
	return err
}

func (c *Controller) mark(ctx context.Context, replicas []*longhorn.Replica) error {
	var failures []error
	for _, r := range replicas {
		if _, err := c.deps.Replicas.Update(ctx, r); err != nil {
			failures = append(failures, fmt.Errorf("annotate replica %s: %w", r.Name, err))
		}
	}
	return errors.Join(failures...)
}

func (c *Controller) tell(ctx context.Context, managers []*longhorn.InstanceManager) error {
	var failures []error
	for _, m := range managers {
		if _, err := c.deps.Managers.UpdateStatus(ctx, m); err != nil {
			failures = append(failures, fmt.Errorf("update the status of instance manager %s: %w", m.Name, err))
			continue
		}
		if condition := types.FindCondition(m.Status.Conditions, types.ConditionDrainable); condition.Status != longhorn.ConditionUnknown {
			c.deps.Recorder.Event(m, corev1.EventTypeNormal, types.EventReason(condition), condition.Message)
		}
	}
	return errors.Join(failures...)
}

// release deletes budgets, after a live read that also finds that they are not needed. The node may be gone for good
// once its pod was evicted. The live read may find a budget that must first be created or corrected. For example, the
// cache does not show an engine yet, or a user deleted the budget. In that case release deletes nothing, because a node
// may be released only if the budgets of others exist.
func (c *Controller) release(ctx context.Context, budgets []*policyv1.PodDisruptionBudget) error {
	if len(budgets) == 0 {
		return nil
	}
	in, err := c.gather(live{ctx})
	if err != nil {
		return fmt.Errorf("check whether a disruption budget is still needed: %w", err)
	}
	now := plan(in)
	if len(now.Create)+len(now.Update) > 0 {
		return queue.ErrStale
	}
	var failures []error
	for _, b := range budgets {
		if !now.deletes(b.Name) {
			failures = append(failures, queue.ErrStale)
			continue
		}
		err := c.deps.Budgets.Delete(ctx, b.Name, datastore.Preconditions{UID: b.UID, ResourceVersion: b.ResourceVersion})
		if err != nil && !apierrors.IsNotFound(err) {
			failures = append(failures, fmt.Errorf("delete disruption budget %s: %w", b.Name, err))
			continue
		}
		queue.Log(ctx).WithField(logfields.Key, b.Name).Info("Deleted a disruption budget")
	}
	return errors.Join(failures...)
}

// detach removes the tickets of users for nodes that are cordoned, if the setting says so.
func (c *Controller) detach(ctx context.Context, in Input) error {
	if c.deps.Setting(settings.DetachManuallyAttached) != "true" {
		return nil
	}
	attachments, err := c.deps.Attachments.List(labels.Everything())
	if err != nil {
		return err
	}
	var failures []error
	for _, va := range planDetach(attachments, clusterOf(in)) {
		if _, err := c.deps.Attachments.Update(ctx, va); err != nil {
			failures = append(failures, fmt.Errorf("detach volume %s from a cordoned node: %w", va.Spec.Volume, err))
			continue
		}
		c.deps.Recorder.Eventf(va, corev1.EventTypeNormal, types.EventDetachCordoned,
			"volume %s, which a user attached manually, is being detached: its node is cordoned", va.Spec.Volume)
	}
	return errors.Join(failures...)
}
