package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// retryExpand is the time between a failed expansion and the next attempt.
const retryExpand = 15 * time.Second

// expandPatience bounds the wait for an expansion. The expansion continues in the instance manager, and the state
// shows its result.
const expandPatience = 20 * time.Second

// showExpansion shows whether a running engine offers less than the size of the spec. The error of an attempt is
// cleared when the engine offers the size.
func showExpansion(in Input, s *longhorn.EngineStatus) {
	s.IsExpanding = s.CurrentSize > 0 && s.CurrentSize < in.Engine.Spec.VolumeSize
	if !s.IsExpanding {
		s.LastExpansionError, s.LastExpansionFailedAt = "", ""
	}
}

// planExpansion makes a running engine offer the size of the spec. It has priority over the next rebuild, so that
// consecutive rebuilds do not block it. While a rebuild runs, the engine refuses the expansion. A process that
// cannot expand gets no request.
func planExpansion(in Input, p *Plan) {
	o := in.Observed
	rebuilding := false
	for _, mode := range o.Modes {
		rebuilding = rebuilding || mode == longhorn.ReplicaModeWO
	}
	switch {
	case !p.Status.IsExpanding, rebuilding, p.Action == ActionRemove:
		return
	case !o.Grows, o.Endpoint != "" && !o.DevicesGrow:
		return
	}
	if left := types.Until(p.Status.LastExpansionFailedAt, retryExpand, in.Now); left > 0 {
		p.After = left
		return
	}
	p.Action, p.Replica = ActionExpand, ""
}

// expand asks the instance manager to expand the volume, and records an error in the status.
func (c *Controller) expand(ctx context.Context, e *longhorn.Engine) error {
	queue.Log(ctx).WithField("sizeBytes", int64(e.Spec.VolumeSize)).Info("expanding the volume")
	waiting, cancel := context.WithTimeout(ctx, expandPatience)
	defer cancel()
	err := c.DataPlane.ExpandEngine(waiting, e.Name, e.Status.Session, int64(e.Spec.VolumeSize))
	if err == nil {
		return nil // the state shows the size
	}
	if ctx.Err() != nil {
		return fmt.Errorf("expand the volume: %w", err)
	}
	status := e.Status.DeepCopy()
	status.LastExpansionError, status.LastExpansionFailedAt = err.Error(), types.Timestamp(c.Clock.Now())
	_, err = c.writeStatus(ctx, e, *status)
	c.queue.AddAfter(e.Name, retryExpand)
	return err
}
