package snapshot

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// apply carries out a plan. It may repeat every step after a crash. The write of the line is the compare-and-swap: it
// has the version of the Engine that the plan is based on. Statuses and finalizers follow it, and show only what the
// plan had read.
func (c *Controller) apply(ctx context.Context, in Input, p Plan) error {
	for _, s := range p.Adopt {
		if _, err := c.deps.Snapshots.Update(ctx, s); err != nil {
			return fmt.Errorf("prepare snapshot %s: %w", s.Name, err)
		}
	}
	if in.Engine != nil && len(p.Adopt) == 0 {
		if err := c.writeLine(ctx, in, p); err != nil {
			return err
		}
	}
	if p.Attachment != nil {
		if _, err := c.deps.Attachments.Update(ctx, p.Attachment); err != nil {
			return fmt.Errorf("update the tickets of volume %s: %w", in.Name, err)
		}
	}
	for _, s := range p.Statuses {
		if err := c.writeStatus(ctx, s); err != nil {
			return err
		}
	}
	for _, s := range p.Create {
		if err := c.create(ctx, in, s); err != nil {
			return err
		}
	}
	for _, s := range p.Release {
		if err := c.release(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// writeLine writes the line and the overview of the snapshots. Before a deleted point leaves the line, it reads the
// replicas from the API server: the cache may lack one that has just appeared.
func (c *Controller) writeLine(ctx context.Context, in Input, p Plan) error {
	if len(p.Forgets) > 0 {
		live, err := c.deps.Replicas.ListLive(ctx, metav1.ListOptions{LabelSelector: types.LabelVolume + "=" + in.Name})
		if err != nil {
			return fmt.Errorf("list the replicas before a snapshot is forgotten: %w", err)
		}
		var replicas []*longhorn.Replica
		for _, r := range live {
			if types.VolumeOf(r) == in.Name && in.owns(r) {
				replicas = append(replicas, r)
			}
		}
		for _, point := range p.Forgets {
			if !isGone(point, in.Engine, replicas) {
				return queue.ErrStale
			}
		}
	}
	next := *in.Engine.Status.DeepCopy()
	next.Line, next.Snapshots = p.Line, p.Infos
	_, _, err := datastore.WriteStatus(ctx, c.deps.Engines, in.Engine, func(e *longhorn.Engine) *longhorn.EngineStatus { return &e.Status }, next)
	if err != nil {
		return fmt.Errorf("write the record of snapshots of volume %s: %w", in.Name, err)
	}
	return nil
}

func (c *Controller) writeStatus(ctx context.Context, s Status) error {
	_, isWritten, err := datastore.WriteStatus(ctx, c.deps.Snapshots, s.Snapshot, func(s *longhorn.Snapshot) *longhorn.SnapshotStatus { return &s.Status }, s.Next)
	if err != nil || !isWritten {
		return err
	}
	for _, e := range s.Events {
		c.deps.Recorder.Event(s.Snapshot, e.Type, e.Reason, e.Message)
	}
	return nil
}

// create creates the object of a snapshot that has none. If an object of that name exists, either the cache lacks it,
// or it is about another volume: the name of a Snapshot is unique in the namespace.
func (c *Controller) create(ctx context.Context, in Input, s *longhorn.Snapshot) error {
	_, err := c.deps.Snapshots.Create(ctx, s)
	if err == nil {
		queue.Log(ctx).WithField(logfields.Snapshot, s.Name).Info("created the object of a snapshot that had none")
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the object of snapshot %s: %w", s.Name, err)
	}
	live, failed := c.deps.Snapshots.Live(ctx, s.Name)
	if failed != nil {
		return fmt.Errorf("read snapshot %s: %w", s.Name, failed)
	}
	if live.Spec.Volume == s.Spec.Volume && isOf(in.Volume, live) {
		return queue.ErrStale
	}
	c.deps.Recorder.Eventf(in.Volume, corev1.EventTypeWarning, types.EventFailed,
		"snapshot %s of this volume has no object, because a Snapshot of volume %s has its name", s.Name, live.Spec.Volume)
	return nil
}

// release removes the finalizer of a Snapshot in deletion, if the API server agrees that nothing is left to do.
func (c *Controller) release(ctx context.Context, s *longhorn.Snapshot) error {
	live, err := c.deps.Snapshots.Live(ctx, s.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read snapshot %s: %w", s.Name, err)
	case live.UID != s.UID:
		return queue.ErrStale
	}
	v, err := found(c.deps.Volumes.Live(ctx, live.Spec.Volume))
	if err != nil {
		return fmt.Errorf("read the volume of snapshot %s: %w", s.Name, err)
	}
	e, err := found(c.deps.Engines.Live(ctx, types.EngineName(live.Spec.Volume)))
	if err != nil {
		return fmt.Errorf("read the engine of snapshot %s: %w", s.Name, err)
	}
	if !mayRelease(v, e, live) {
		return queue.ErrStale
	}
	types.RemoveFinalizer(live)
	if _, err := c.deps.Snapshots.Update(ctx, live); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove the finalizer of snapshot %s: %w", s.Name, err)
	}
	if s.Status.CreationTime != "" {
		c.deps.Recorder.Event(s, corev1.EventTypeNormal, types.EventDelete, "snapshot is marked as removed")
	}
	return nil
}
