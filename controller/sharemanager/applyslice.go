package sharemanager

import (
	"context"
	"fmt"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// refusedSlicesDelay is for how long no EndpointSlice is written after the API server has refused one to this account.
const refusedSlicesDelay = time.Minute

// refusedSlices remembers that the account of this leader may not write EndpointSlices: manifests of an earlier release do
// not let it.
type refusedSlices struct {
	mu    sync.Mutex
	until time.Time
}

func (r *refusedSlices) isIn(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return now.Before(r.until)
}

func (r *refusedSlices) refused(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = now.Add(refusedSlicesDelay)
}

// applySlice writes the slice of a plan. Where that fails, a pod that the plan creates gets the labels that the Service selects,
// so that Kubernetes writes its address. A leader that may not write slices has no error: it works as one of an earlier release.
func (c *Controller) applySlice(ctx context.Context, in *Input, p *Plan) error {
	err := c.writeSlice(ctx, in, p)
	if err == nil {
		return nil
	}
	in.NoSlices = true
	if p.CreatePod != nil {
		p.CreatePod = newPod(*in)
	}
	if apierrors.IsForbidden(err) {
		c.refusedSlices.refused(in.Now)
		queue.Log(ctx).WithError(err).WithField(logfields.Volume, in.Share.Name).Warn("May not write the EndpointSlice of a share; its Service selects the pod")
		return nil
	}
	return fmt.Errorf("write the EndpointSlice of the share: %w", err)
}

func (c *Controller) writeSlice(ctx context.Context, in *Input, p *Plan) (err error) {
	before := addressIn(in.Slice)
	switch {
	case p.DropSlice:
		return c.deleteSlice(ctx, in.Slice)
	case p.Slice == nil:
		return nil
	case in.Slice == nil:
		if _, err = c.Slices.Create(ctx, p.Slice); apierrors.IsAlreadyExists(err) {
			return c.takeSlice(ctx, in, p)
		}
	default:
		_, err = c.Slices.Update(ctx, p.Slice)
	}
	if address := addressIn(p.Slice); err == nil && address != before {
		queue.Log(ctx).WithField(logfields.Volume, in.Share.Name).WithField(logfields.Address, address).Info("Changed the address that the Service of the share leads to")
	}
	return err
}

func (c *Controller) deleteSlice(ctx context.Context, s *discoveryv1.EndpointSlice) error {
	err := c.Slices.Delete(ctx, s.Name, datastore.Preconditions{UID: s.UID, ResourceVersion: s.ResourceVersion})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// takeSlice plans and writes a slice that is there and that the cache does not show: the cache is not filled yet, or someone
// took the label away by which slices are watched.
func (c *Controller) takeSlice(ctx context.Context, in *Input, p *Plan) (err error) {
	in.Slice, err = c.Slices.Live(ctx, p.Slice.Name)
	if apierrors.IsNotFound(err) {
		in.Slice = nil
		return queue.ErrStale
	}
	if err != nil {
		return err
	}
	if in.AddressTaken, err = c.isTaken(*in); err != nil {
		return err
	}
	p.lead(*in)
	return c.writeSlice(ctx, in, p)
}
