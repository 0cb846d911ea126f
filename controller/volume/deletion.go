package volume

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// Deletion is what to do for a volume that is being deleted, in the order of its fields.
type Deletion struct {
	UpdateReplicas []*longhorn.Replica
	UpdateEngine   *longhorn.Engine
	DeleteEngine   *longhorn.Engine
	DeleteReplicas []*longhorn.Replica
	// DropFinalizer: nothing can write to the volume. Each replica is gone, or is deleted and waits for something that
	// may be unavailable for a long time.
	DropFinalizer bool
	Status        longhorn.VolumeStatus
	// After is the time until the next sync although nothing changes; 0: none is needed.
	After time.Duration
}

// removalWait is how long a volume waits for a deleted replica. A disk that is not ready, or a daemon that does not
// run, may block the removal of the replica for days. The client that deleted the volume must not wait that long: the
// replica stays deleting without the volume.
const removalWait = time.Minute

// planDeletion stops the engine, deletes it, and deletes the replicas only when the engine is gone: while an engine
// may still write, its replicas must stay. The volume is removed after its replicas, so that their space is free when
// the volume is gone:
//
//	deleted replica                        the volume
//	on a node that is up                   waits for it, removalWait at most
//	on a node that is down or gone         does not wait: the replica stays deleting until the node returns
//	on a node that is back without disk    does not wait
//	with data that cannot be removed       does not wait: the replica's status says why
func planDeletion(in Input) Deletion {
	d := Deletion{Status: *in.Volume.Status.DeepCopy()}
	d.Status.OwnerID = in.Owner
	d.Status.State = longhorn.VolumeStateDeleting
	mirrorInUse(in, &d.Status)
	if e := in.Engine; e != nil {
		switch {
		case !atRest(e):
			if isWanted(e) {
				d.UpdateEngine = e.DeepCopy()
				d.UpdateEngine.Spec.DesireState = longhorn.DesireStateStopped
			}
		case e.Spec.NodeID != "":
			d.UpdateReplicas = behindFence(in)
			d.UpdateEngine = e.DeepCopy()
			setEngineNode(d.UpdateEngine, "")
		case e.DeletionTimestamp == nil:
			d.DeleteEngine = e
		}
		return d
	}
	for _, r := range in.Replicas {
		if r.DeletionTimestamp == nil {
			d.DeleteReplicas = append(d.DeleteReplicas, r)
		}
	}
	d.DropFinalizer = !slices.ContainsFunc(in.Replicas, func(r *longhorn.Replica) bool { return isGoing(in, r) })
	if !d.DropFinalizer {
		d.After = removalWait
	}
	return d
}

// isGoing reports whether a replica will be removed soon, as far as is known.
func isGoing(in Input, r *longhorn.Replica) bool {
	node, known := in.Nodes[r.Spec.NodeID]
	switch {
	case r.DeletionTimestamp == nil:
		return true
	case !known, node.Down, node.Gone, in.LacksDisk[r.Name], in.Now.Sub(r.DeletionTimestamp.Time) >= removalWait:
		return false
	}
	return !types.IsConditionTrue(r.Status.Conditions, types.ConditionRemovalRefused)
}

// behindFence makes the replicas refuse an engine that may still run on a node that does not answer. Otherwise the
// replicas could not be closed when their data must be removed.
func behindFence(in Input) []*longhorn.Replica {
	var fenced []*longhorn.Replica
	fence := fenceOf(in.Engine)
	for _, r := range in.Replicas {
		if r.DeletionTimestamp == nil && r.Spec.FenceGeneration < fence {
			u := r.DeepCopy()
			u.Spec.DesireState, u.Spec.FenceGeneration = longhorn.DesireStateStopped, fence
			fenced = append(fenced, u)
		}
	}
	return fenced
}

func (c *Controller) applyDeletion(ctx context.Context, log *logrus.Entry, v *longhorn.Volume, d Deletion) error {
	if err := c.writeStatus(ctx, v, d.Status); err != nil {
		return err
	}
	for _, r := range d.UpdateReplicas {
		if _, err := c.deps.Replicas.Update(ctx, r); err != nil {
			return fmt.Errorf("update replica %s: %w", r.Name, err)
		}
	}
	if e := d.UpdateEngine; e != nil {
		if _, err := c.deps.Engines.Update(ctx, e); err != nil {
			return fmt.Errorf("update engine %s: %w", e.Name, err)
		}
	}
	if e := d.DeleteEngine; e != nil {
		log.Info("deleting the engine")
		p := datastore.Preconditions{UID: e.UID, ResourceVersion: e.ResourceVersion}
		if err := c.deps.Engines.Delete(ctx, e.Name, p); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete engine %s: %w", e.Name, err)
		}
	}
	if len(d.DeleteReplicas) == 0 && !d.DropFinalizer {
		return nil
	}
	if gone, err := c.nothingWrites(ctx, v); err != nil || !gone {
		return err
	}
	for _, r := range d.DeleteReplicas {
		log.WithField(logfields.Replica, r.Name).Info("deleting a replica")
		if err := c.deps.Replicas.Delete(ctx, r.Name, datastore.Preconditions{UID: r.UID}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete replica %s: %w", r.Name, err)
		}
	}
	if !d.DropFinalizer {
		return nil
	}
	return c.dropFinalizer(ctx, log, v)
}

// nothingWrites asks the API server, not the cache, whether the volume is being deleted and its engine is gone.
func (c *Controller) nothingWrites(ctx context.Context, v *longhorn.Volume) (bool, error) {
	live, err := c.deps.Volumes.Live(ctx, v.Name)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the volume: %w", err)
	case live.UID != v.UID || live.DeletionTimestamp == nil:
		return false, queue.ErrStale
	}
	e, err := c.deps.Engines.Live(ctx, types.EngineName(v.Name))
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read the engine: %w", err)
	}
	if !ownedBy(e, v) {
		return true, nil
	}
	return false, c.obstructs(v, e, fmt.Errorf("delete the engine: engine %s still exists", e.Name))
}

func (c *Controller) dropFinalizer(ctx context.Context, log *logrus.Entry, v *longhorn.Volume) error {
	live, err := c.deps.Volumes.Live(ctx, v.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the volume: %w", err)
	}
	if live.UID != v.UID || live.DeletionTimestamp == nil {
		return queue.ErrStale
	}
	log.Info("removing the volume's finalizer; the nodes remove its replicas")
	types.RemoveFinalizer(live)
	_, err = c.deps.Volumes.Update(ctx, live)
	return err
}
