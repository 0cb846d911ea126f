package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// grow shows the size of an open replica, and grows the replica if it is smaller than the size in the spec. It asks
// only a process that can grow replicas, and retries retryOpen after the last attempt.
//
//	size         process   last attempt       action
//	spec's size  -         -                  the condition Expanded is set to True, if it exists
//	less         cannot    -                  none; the volume controller says why
//	less         can       none, or long ago  grow request
//	less         can       just now           wait; its error is shown
func grow(in Input, p *Plan) {
	o, want := in.Observed, in.Replica.Spec.VolumeSize
	if o.SizeBytes > 0 {
		p.Status.CurrentSize = longhorn.Bytes(o.SizeBytes)
	}
	switch {
	case o.SizeBytes == 0:
		return
	case o.SizeBytes >= int64(want):
		if types.FindCondition(p.Status.Conditions, types.ConditionExpanded).Status == longhorn.ConditionFalse {
			setExpanded(in, p, longhorn.ConditionTrue, "", "")
		}
		return
	case !o.Grows:
		return
	}
	if why := growFailure(in); why != "" {
		setExpanded(in, p, longhorn.ConditionFalse, types.ReasonReplicaNotGrown, fmt.Sprintf("it has %d bytes and cannot grow to %d: %s", o.SizeBytes, want, why))
	}
	if left := in.Grown.at.Add(retryOpen).Sub(in.Now); !in.Grown.at.IsZero() && left > 0 {
		p.After = sooner(p.After, left)
		return
	}
	p.Action, p.After = ActionGrow, sooner(p.After, retryOpen)
}

// growFailure is the reason why the replica has not grown, as far as is known.
func growFailure(in Input) string {
	if in.Observed.GrowError == "" && in.Grown.refusal != nil {
		return in.Grown.refusal.Message
	}
	return in.Observed.GrowError
}

func setExpanded(in Input, p *Plan, status longhorn.ConditionStatus, reason, message string) {
	p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, longhorn.Condition{
		Type: types.ConditionExpanded, Status: status, Reason: reason, Message: message,
	}, in.Now)
}

// wantedSize is the size for a replica's start: the size in the spec, unless the process cannot grow the replica.
func wantedSize(in Input) int64 {
	if has := in.Replica.Status.CurrentSize; has > 0 && !in.Observed.Grows {
		return int64(has)
	}
	return int64(in.Replica.Spec.VolumeSize)
}

// grow asks the data plane to grow an open replica. The replica's state shows the size, or the error. A refusal of
// the call is remembered, and the next sync shows it.
func (c *Controller) grow(ctx context.Context, in Input) error {
	name, refusal := in.Replica.Name, (*types.Refusal)(nil)
	c.growths.note(name, in.Now, nil)
	spec, err := c.spec(ctx, in)
	if err == nil {
		queue.Log(ctx).WithField("sizeBytes", spec.SizeBytes).Info("Growing the replica")
		err = c.DataPlane.StartReplica(ctx, spec)
	}
	if errors.As(err, &refusal) {
		c.growths.note(name, in.Now, refusal)
		c.queue.Add(name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("grow replica: %w", err)
	}
	return nil
}

// sooner is the shorter of two waiting times; 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
