package volume

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// apply carries out a plan. It may repeat every step after a crash: it does not create objects that exist, and
// updates carry the version that the plan is based on.
func (c *Controller) apply(ctx context.Context, log *logrus.Entry, v *longhorn.Volume, p Plan) error {
	if p.Volume != nil {
		_, err := c.deps.Volumes.Update(ctx, p.Volume)
		return err
	}
	if p.Labels != nil {
		return c.putBackLabels(ctx, log, *p.Labels)
	}
	if err := c.makeChildren(ctx, log, v, p); err != nil {
		return queue.OfChild(err)
	}
	if err := c.applyShare(ctx, log, v, p.share); err != nil {
		return queue.OfChild(err)
	}
	for _, r := range p.UpdateReplicas {
		log.WithField(logfields.Replica, r.Name).WithField(logfields.State, r.Spec.DesireState).Info("updating the spec of a replica")
		if _, err := c.deps.Replicas.Update(ctx, r); err != nil {
			return queue.OfChild(fmt.Errorf("update replica %s: %w", r.Name, err))
		}
	}
	if e := p.UpdateEngine; e != nil {
		log.WithField(logfields.Node, e.Spec.NodeID).WithField(logfields.State, e.Spec.DesireState).Info("updating the spec of the engine")
		if _, err := c.deps.Engines.Update(ctx, e); err != nil {
			return queue.OfChild(fmt.Errorf("update engine %s: %w", e.Name, err))
		}
	}
	if p.writesChildren() || !p.AwaitsTurn {
		c.childrenTaken(v.Name, &p.Status)
	}
	if err := c.writeStatus(ctx, v, p.Status); err != nil {
		return err
	}
	for _, e := range p.Events {
		c.deps.Recorder.Event(v, e.Type, e.Reason, e.Message)
	}
	if p.Surplus != nil {
		return c.giveUp(ctx, log, v, *p.Surplus)
	}
	return nil
}

// giveUp deletes a replica only if the API server also shows that the volume is served without it, by the members
// that the plan is based on.
func (c *Controller) giveUp(ctx context.Context, log *logrus.Entry, v *longhorn.Volume, s copies.Surplus) error {
	r := s.Replica
	live, err := c.deps.Volumes.Live(ctx, v.Name)
	if err != nil {
		return fmt.Errorf("read the volume: %w", datastore.Needed(err))
	}
	if live.UID != v.UID || live.DeletionTimestamp != nil || !equality.Semantic.DeepEqual(live.Spec, v.Spec) {
		return queue.ErrStale
	}
	e, err := c.deps.Engines.Live(ctx, s.Engine.Name)
	if err != nil {
		return fmt.Errorf("read the engine: %w", datastore.Needed(err))
	}
	if !sameMembers(s.Engine, e) || slices.Contains(e.Status.Epoch.Members, r.Name) || e.Spec.ReplicaAddressMap[r.Name] != "" {
		return queue.ErrStale
	}
	log.WithField(logfields.Replica, r.Name).WithField(logfields.Node, r.Spec.NodeID).WithField(logfields.Reason, s.Why).Info("deleting a replica that is no longer needed")
	err = c.deps.Replicas.Delete(ctx, r.Name, datastore.Preconditions{UID: r.UID, ResourceVersion: r.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete replica %s: %w", r.Name, err)
	}
	c.deps.Recorder.Eventf(v, corev1.EventTypeNormal, types.EventDelete, "replica %s on node %s is deleted: %s", r.Name, r.Spec.NodeID, s.Why.Explain())
	return nil
}

// sameMembers reports whether the live engine is in the same run, and has the same members, as the planned one.
func sameMembers(planned, live *longhorn.Engine) bool {
	return live.UID == planned.UID && live.Spec.DesireState == longhorn.DesireStateRunning &&
		live.Status.CurrentState == longhorn.InstanceStateRunning && live.Status.Session == planned.Status.Session &&
		live.Status.Epoch != nil && equality.Semantic.DeepEqual(live.Status.Epoch, planned.Status.Epoch) &&
		equality.Semantic.DeepEqual(live.Status.ReplicaModeMap, planned.Status.ReplicaModeMap)
}

func (c *Controller) makeChildren(ctx context.Context, log *logrus.Entry, v *longhorn.Volume, p Plan) error {
	if err := c.makeOthers(ctx, log, v, p); err != nil {
		for _, r := range p.CreateReplicas {
			c.placed.release(r.Name) // its creation was not tried
		}
		return err
	}
	return c.makeReplicas(ctx, log, v, p.CreateReplicas)
}

// makeOthers creates the objects that must exist before the replicas.
func (c *Controller) makeOthers(ctx context.Context, log *logrus.Entry, v *longhorn.Volume, p Plan) error {
	if p.CreateAttachment != nil {
		if _, err := c.deps.Attachments.Create(ctx, p.CreateAttachment); err != nil {
			return c.ifExists(ctx, v, fmt.Errorf("create the volume attachment: %w", err), liveFrom(c.deps.Attachments, p.CreateAttachment.Name))
		}
	}
	if p.EnsureSecret {
		if err := c.ensureSecret(ctx, v); err != nil {
			return err
		}
	}
	if p.CreateEngine != nil {
		log.Info("creating the engine")
		if _, err := c.deps.Engines.Create(ctx, p.CreateEngine); err != nil {
			return c.ifExists(ctx, v, fmt.Errorf("create the engine: %w", err), liveFrom(c.deps.Engines, p.CreateEngine.Name))
		}
	}
	return nil
}

// makeReplicas creates replicas only if the API server has no replica that the cache lacks. Their names are random,
// so nothing else would prevent a second set.
func (c *Controller) makeReplicas(ctx context.Context, log *logrus.Entry, v *longhorn.Volume, replicas []*longhorn.Replica) error {
	if len(replicas) == 0 {
		return nil
	}
	created := 0
	defer func() {
		for _, r := range replicas[created:] {
			c.placed.release(r.Name)
		}
	}()
	selector := metav1.ListOptions{LabelSelector: types.LabelVolume + "=" + v.Name}
	live, err := c.deps.Replicas.ListLive(ctx, selector)
	if err != nil {
		return fmt.Errorf("list the volume's replicas: %w", err)
	}
	cached, err := c.deps.Replicas.ByIndex(datastore.IndexVolume, v.Name)
	if err != nil {
		return err
	}
	if !showsAll(cached, live, v.Name) {
		return queue.ErrStale
	}
	c.placed.releaseOthers(v.Name, replicas)
	for _, r := range replicas {
		log.WithField(logfields.Replica, r.Name).WithField(logfields.Node, r.Spec.NodeID).WithField(logfields.Disk, r.Spec.DiskPath).Info("creating a replica")
		if _, err := c.deps.Replicas.Create(ctx, r); err != nil {
			if !isRefusal(err) {
				created++ // it may exist: keep its room reserved
			}
			return fmt.Errorf("create replica %s: %w", r.Name, err)
		}
		created++
	}
	return nil
}

// showsAll reports whether the cache shows the same replicas as a live list by label. Replicas that have lost the
// label, until it is restored, are only in the cache.
func showsAll(cached, live []*longhorn.Replica, volume string) bool {
	uids := map[kubetypes.UID]bool{}
	for _, r := range cached {
		if r.Labels[types.LabelVolume] == volume {
			uids[r.UID] = true
		}
	}
	for _, r := range live {
		if types.VolumeOf(r) != volume {
			continue
		}
		if !uids[r.UID] {
			return false
		}
		delete(uids, r.UID)
	}
	return len(uids) == 0
}

// isRefusal reports whether the API server answered that it did not carry out the request.
func isRefusal(err error) bool {
	reason := apierrors.ReasonForError(err)
	return reason != metav1.StatusReasonUnknown && reason != metav1.StatusReasonTimeout &&
		reason != metav1.StatusReasonServerTimeout && reason != metav1.StatusReasonInternalError
}

// ensureSecret creates the key by which engines and replicas of this volume authenticate to each other. It never
// replaces the key: a running engine uses the old one.
func (c *Controller) ensureSecret(ctx context.Context, v *longhorn.Volume) error {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails: crypto/rand stops the process instead
	secret := &corev1.Secret{
		ObjectMeta: children.Meta(v, types.VolumeSecretName(v.Name), nil),
		Data:       map[string][]byte{types.VolumeSecretKey: key},
	}
	_, err := c.deps.Secrets.Create(ctx, secret)
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the data plane's key: %w", err)
	}
	existing, failed := c.deps.Secrets.Live(ctx, secret.Name)
	if failed != nil {
		return fmt.Errorf("read the data plane's key: %w", datastore.Needed(failed))
	}
	if ownedBy(existing, v) {
		return nil
	}
	return c.obstructs(v, existing, err)
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

func (c *Controller) writeStatus(ctx context.Context, v *longhorn.Volume, status longhorn.VolumeStatus) error {
	_, _, err := datastore.WriteStatus(ctx, c.deps.Volumes, v, func(v *longhorn.Volume) *longhorn.VolumeStatus { return &v.Status }, status)
	return err
}
