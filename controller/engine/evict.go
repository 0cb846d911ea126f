package engine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// evictUnlisted handles an engine that the instance manager may run although the cache shows no object for it on this
// node. Such an engine exists on a node that was away while its volume moved elsewhere.
func (c *Controller) evictUnlisted(ctx context.Context, name string) error {
	switch o := c.DataPlane.ObserveEngine(name); o.Phase {
	case types.PhaseUnknown, types.PhaseAbsent:
		return nil
	default:
		return c.evict(ctx, name, o.Session)
	}
}

// evict stops an engine by force, with its device. Before, a live read must show that the object does not have this
// node and session, or no longer has them. evict does nothing while the API server does not answer. The engine may
// wait, because it has acknowledged nothing that its successor lacks.
func (c *Controller) evict(ctx context.Context, name, session string) error {
	live, err := c.Engines.Live(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("read the engine before stopping it: %w", err)
	case live.Spec.NodeID == c.Node && live.Status.Session == session:
		return queue.ErrStale
	}
	queue.Log(ctx).WithField(logfields.Engine, name).Warn("Stopping an engine of an earlier session by force")
	if err := c.DataPlane.StopEngine(ctx, name, session, true); err != nil {
		return fmt.Errorf("stop the engine of an earlier session: %w", err)
	}
	return nil
}
