package upgrade

import (
	"context"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// takeTurn takes the Lease, and then checks the volumes again: the previous node may have just released it. It returns
// the obstacles.
func (c *Controller) takeTurn(ctx context.Context) ([]string, error) {
	holder, err := c.take(ctx)
	err = queue.OfChild(err)
	if c.refusals.Tried(c.deps.Node, err, c.deps.Clock.Now()) {
		c.event(ctx, corev1.EventTypeWarning, types.ReasonChildRefused, queue.ChildRefusal(err))
	}
	if err != nil {
		return nil, err
	}
	if holder != c.deps.Node {
		return []string{"another node is being upgraded"}, nil
	}
	blockers, err := c.blockers(ctx)
	if err == nil && len(blockers) > 0 {
		_, err = c.release(ctx) // another node may be ready for its turn
	}
	return blockers, err
}

// take takes the Lease, or renews it, and returns its holder.
func (c *Controller) take(ctx context.Context) (string, error) {
	now := metav1.NewMicroTime(c.deps.Clock.Now())
	l, err := c.deps.Leases.Live(ctx, types.UpgradeLeaseName)
	switch {
	case apierrors.IsNotFound(err):
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: types.UpgradeLeaseName}}
		l.Spec.HolderIdentity, l.Spec.RenewTime = &c.deps.Node, &now
		_, err = c.deps.Leases.Create(ctx, l)
	case err != nil:
		return "", err
	case !isFree(l, c.deps.Node, now.Time):
		return *l.Spec.HolderIdentity, nil
	default:
		l = l.DeepCopy()
		l.Spec.HolderIdentity, l.Spec.RenewTime = &c.deps.Node, &now
		_, err = c.deps.Leases.Update(ctx, l)
	}
	if err != nil {
		return "", err
	}
	c.asked, c.holds = true, true
	return c.deps.Node, nil
}

// giveBack releases the Lease if this node has it, once the node's volumes are healthy again.
func (c *Controller) giveBack(ctx context.Context) (queue.Result, error) {
	if c.asked && !c.holds {
		return queue.Result{}, nil
	}
	l, err := c.deps.Leases.Live(ctx, types.UpgradeLeaseName)
	if err != nil && !apierrors.IsNotFound(err) {
		return queue.Result{}, err
	}
	if err != nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != c.deps.Node {
		c.asked, c.holds = true, false
		return queue.Result{}, nil
	}
	if left := c.replaced.Add(settle).Sub(c.deps.Clock.Now()); left > 0 {
		return queue.Result{RequeueAfter: left}, nil
	}
	blockers, err := c.blockers(ctx)
	if err != nil {
		return queue.Result{}, err
	}
	unnoticed, err := c.unnoticed(ctx)
	if err != nil {
		return queue.Result{}, err
	}
	if len(blockers)+unnoticed > 0 && l.Spec.RenewTime != nil && c.deps.Clock.Now().Before(l.Spec.RenewTime.Add(leaseTime)) {
		return queue.Result{RequeueAfter: again}, nil
	}
	return c.release(ctx)
}

// release releases the Lease, if this node still has it.
func (c *Controller) release(ctx context.Context) (queue.Result, error) {
	l, err := c.deps.Leases.Live(ctx, types.UpgradeLeaseName)
	if err != nil && !apierrors.IsNotFound(err) {
		return queue.Result{}, err
	}
	if err == nil && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == c.deps.Node {
		l = l.DeepCopy()
		l.Spec.HolderIdentity, l.Spec.RenewTime = nil, nil
		if _, err := c.deps.Leases.Update(ctx, l); err != nil {
			return queue.Result{}, err
		}
	}
	c.asked, c.holds = true, false
	return queue.Result{}, nil
}

// epochsElsewhere are the epochs in force, by volume, that list a replica on this node and belong to an engine
// elsewhere.
func (c *Controller) epochsElsewhere(ctx context.Context) (map[string]longhorn.Epoch, error) {
	replicas, err := c.deps.Replicas.ByIndex(datastore.IndexNode, c.deps.Node)
	if err != nil {
		return nil, err
	}
	epochs := map[string]longhorn.Epoch{}
	for _, r := range replicas {
		e, err := c.deps.Engines.Live(ctx, types.EngineName(r.Spec.VolumeName))
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if lists(e, r.Name) && e.Spec.NodeID != c.deps.Node {
			epochs[r.Spec.VolumeName] = *e.Status.Epoch
		}
	}
	return epochs, nil
}

// unnoticed counts the volumes with an engine elsewhere that has not yet reported that its replica here went away.
// Their status still looks healthy. An engine notices at once, but its daemon, which records that, may be away at that
// moment.
func (c *Controller) unnoticed(ctx context.Context) (int, error) {
	for volume, before := range c.unseen {
		e, err := c.deps.Engines.Live(ctx, types.EngineName(volume))
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
		if err != nil || e.Status.CurrentState != longhorn.InstanceStateRunning || e.Status.Epoch == nil ||
			e.Status.Epoch.Generation != before.Generation || e.Status.Epoch.Counter != before.Counter {
			delete(c.unseen, volume)
		}
	}
	return len(c.unseen), nil
}

// lists reports whether a running engine has a replica in its epoch.
func lists(e *longhorn.Engine, replica string) bool {
	return e.Status.CurrentState == longhorn.InstanceStateRunning && e.Status.Epoch != nil && slices.Contains(e.Status.Epoch.Members, replica)
}
