package sharemanager

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// refusedSlicesDelay is how long the leader writes no EndpointSlice of a share after the API server has said that this
// account has no right to do so.
const refusedSlicesDelay = time.Minute

// conflictPatience is how long every write of a slice may fail with a conflict before the rest of the plan is applied
// without it.
//
// At first a conflict says that this leader's cache is late, or that another leader has taken over. In both cases
// nothing else may be done. The cache catches up sooner than this, and a leader that lost its lease has exited by then.
// So after this time, another client writes the slice again and again.
const conflictPatience = 3 * time.Second

// sliceTrouble stores, by share, the failures to write its EndpointSlice.
type sliceTrouble struct {
	mu sync.Mutex
	// refused says until when no slice is written: manifests of an earlier release do not let this account do so.
	refused   map[string]time.Time
	conflicts map[string]time.Time // since when every write has failed with one
}

func newSliceTrouble() *sliceTrouble {
	return &sliceTrouble{refused: map[string]time.Time{}, conflicts: map[string]time.Time{}}
}

func (s *sliceTrouble) isRefused(share string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.refused[share])
}

func (s *sliceTrouble) refuse(share string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[share] = now.Add(refusedSlicesDelay)
}

// mustWait records the result of a write, and reports whether everything else must wait for the next attempt.
func (s *sliceTrouble) mustWait(share string, err error, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !errors.Is(err, queue.ErrStale) && !apierrors.IsConflict(err) {
		delete(s.conflicts, share)
		return false
	}
	since, ok := s.conflicts[share]
	if !ok {
		since = now
		s.conflicts[share] = now
	}
	return now.Sub(since) < conflictPatience
}

func (s *sliceTrouble) forget(share string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.refused, share)
	delete(s.conflicts, share)
}

// lacksRight reports whether the API server refused a write because this account has no right to it. Admission webhooks
// and policies answer with the reason Forbidden as well, but with them the next write may succeed. Only the text shows
// the difference: the words of the API server's authorization are `RESOURCE "NAME" is forbidden: User "ACCOUNT" cannot
// update resource ...`.
func lacksRight(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), ` is forbidden: User "`)
}

// applySlice writes the slice of a plan. If that fails, a pod that the plan creates gets the labels that the Service
// selects, so that Kubernetes writes its address. For a leader that may not write slices, applySlice returns no error:
// such a leader works like a leader of an earlier release.
func (c *Controller) applySlice(ctx context.Context, in *Input, p *Plan) error {
	if !in.NoSlices {
		err := c.writeSlice(ctx, in, p)
		if err == nil {
			return nil
		}
		in.NoSlices = true
		if !lacksRight(err) {
			selectPod(in, p)
			return fmt.Errorf("write the EndpointSlice of the share: %w", err)
		}
		c.sliceTrouble.refuse(in.Share.Name, in.Now)
		queue.Log(ctx).WithError(err).WithField(logfields.Volume, in.Share.Name).Warn("The leader has no right to write the EndpointSlice of a share. The Service of the share selects the pod instead")
	}
	selectPod(in, p)
	return nil
}

// selectPod gives a pod that the plan creates the labels that the Service selects.
func selectPod(in *Input, p *Plan) {
	if p.CreatePod != nil {
		p.CreatePod = newPod(*in)
	}
}

// dropFormer deletes the slice before a pod is created that the Service selects. Otherwise the Service would lead to
// two pods: the new pod, and the former pod by its address in the slice. If the slice cannot be deleted either, the pod
// is created nevertheless. A Service that leads to both pods is better than a Service that does not lead to the new
// pod.
func (c *Controller) dropFormer(ctx context.Context, in Input) {
	if !in.NoSlices || addressIn(in.Slice) == "" {
		return
	}
	if err := c.deleteSlice(ctx, in.Slice); err != nil {
		queue.Log(ctx).WithError(err).WithField(logfields.Volume, in.Share.Name).Warn("Cannot delete the EndpointSlice of a share. The Service of the share may also lead to the former pod")
	}
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

// takeSlice plans and writes a slice that exists but that the cache does not show. Either the cache is not filled yet,
// or another client removed the label by which slices are watched.
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
