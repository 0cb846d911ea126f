package engine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// evictStray handles an engine that the instance manager may host and that has no object
// of this node, as far as the cache shows: a node that was away while its volume went
// elsewhere finds such an engine.
func (c *Controller) evictStray(ctx context.Context, name string) error {
	switch o := c.DataPlane.ObserveEngine(name); o.Phase {
	case types.PhaseUnknown, types.PhaseAbsent:
		return nil
	default:
		return c.evict(ctx, name, o.Session)
	}
}

// evict ends an engine by force, with its device, after a live read that shows that this
// node and that session are not, or no longer, those of the object. It does nothing
// while the API server does not answer: the engine has nothing acknowledged that its
// successor lacks, so it may wait.
func (c *Controller) evict(ctx context.Context, name, session string) error {
	live, err := c.Engines.Live(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("read the engine that is to be ended: %w", err)
	case live.Spec.NodeID == c.Node && live.Status.Session == session:
		return queue.ErrStale
	}
	queue.Log(ctx).WithField(logfields.Engine, name).Warn("Ending an engine that the cluster has moved on from")
	if err := c.DataPlane.StopEngine(ctx, name, session, true); err != nil {
		return fmt.Errorf("end the engine of an earlier session: %w", err)
	}
	return nil
}
