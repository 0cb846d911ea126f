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

// refusedSlicesDelay is for how long no EndpointSlice of a share is written after the API server has said that this account has no right to.
const refusedSlicesDelay = time.Minute

// conflictPatience is for how long each write of a slice may end in a conflict before the rest of the plan is applied without it. At first a conflict
// says that this leader's cache is late, or that another leader has taken over: then nothing else may be done. The former is over sooner, and a
// leader that lost its lease has ended by then. After that, another client writes the slice again and again.
const conflictPatience = 3 * time.Second

// sliceTrouble remembers by share what became of its EndpointSlice.
type sliceTrouble struct {
	mu        sync.Mutex
	refused   map[string]time.Time // until when none is written: manifests of an earlier release do not let this account do so
	conflicts map[string]time.Time // since when each write has ended in one
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

// mustWait takes in how a write ended, and tells whether all else must wait for the next try.
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

// lacksRight tells whether the API server refused a write because this account has no right to it. Admission webhooks and policies answer with
// the reason Forbidden as well, but the next write may pass. Only the text shows the difference: the words of the API server's authorization
// are `RESOURCE "NAME" is forbidden: User "ACCOUNT" cannot update resource ...`.
func lacksRight(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), ` is forbidden: User "`)
}

// applySlice writes the slice of a plan. Where that fails, a pod that the plan creates gets the labels that the Service selects,
// so that Kubernetes writes its address. A leader that may not write slices has no error: it works as one of an earlier release.
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
		queue.Log(ctx).WithError(err).WithField(logfields.Volume, in.Share.Name).Warn("May not write the EndpointSlice of a share; its Service selects the pod")
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

// dropFormer deletes the slice before a pod is created that the Service selects. With the former pod's address in it, the Service would lead to two
// pods. If the slice cannot be deleted either, the pod is created all the same: a Service that also leads to it is better than one that
// does not.
func (c *Controller) dropFormer(ctx context.Context, in Input) {
	if !in.NoSlices || addressIn(in.Slice) == "" {
		return
	}
	if err := c.deleteSlice(ctx, in.Slice); err != nil {
		queue.Log(ctx).WithError(err).WithField(logfields.Volume, in.Share.Name).Warn("Cannot delete the EndpointSlice of a share; its Service may lead to the former pod as well")
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
