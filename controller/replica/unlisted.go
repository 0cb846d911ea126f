package replica

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// stopUnlisted closes a replica that the instance manager may run although there is no object for it on this node.
// Before, a live read must show the same. The replica's data stays.
func (c *Controller) stopUnlisted(ctx context.Context, name string) error {
	switch c.DataPlane.ObserveReplica(name).Phase {
	case types.PhaseUnknown, types.PhaseAbsent:
		return nil
	}
	done, ok := c.turns.take("", name) // its disk is unknown here
	if !ok {
		return nil
	}
	defer done()
	live, err := c.Replicas.Live(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("read the replica before closing it: %w", err)
	case live.Spec.NodeID == c.Node:
		return queue.ErrStale
	}
	queue.Log(ctx).WithField(logfields.Replica, name).Warn("Closing a replica that does not belong to this node")
	if err := c.DataPlane.StopReplica(ctx, name, 0); err != nil {
		return fmt.Errorf("stop a replica that does not belong to this node: %w", err)
	}
	return nil
}
