package volume

import (
	"context"
	"fmt"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// ShareStore holds all share managers.
type ShareStore interface {
	datastore.WatchedReader[*longhorn.ShareManager]
	datastore.LiveReader[*longhorn.ShareManager]
	datastore.Creator[*longhorn.ShareManager]
	datastore.Updater[*longhorn.ShareManager]
	datastore.Deleter
}

// shareStep is what to do with the share manager of a volume; a nil field requires no action.
type shareStep struct {
	create, update *longhorn.ShareManager
	remove         *longhorn.ShareManager
}

// share creates the share manager of a shared volume, and shows its state on the volume. When the volume stops being
// shared, share deletes the share manager. A volume changes its access mode only while it is detached, so nothing is
// served then.
func share(in Input, p *Plan) {
	p.Status.ShareState, p.Status.ShareEndpoint = "", ""
	s := in.Share
	switch {
	case !types.IsShared(in.Volume):
		if s != nil && s.DeletionTimestamp == nil {
			p.share.remove = s
		}
		return
	case s == nil:
		p.share.create = newShareManager(in.Volume, in.ShareImage)
		return
	case s.Spec.Image != in.ShareImage && s.DeletionTimestamp == nil:
		p.share.update = s.DeepCopy()
		p.share.update.Spec.Image = in.ShareImage
	}
	p.Status.ShareState, p.Status.ShareEndpoint = s.Status.State, s.Status.Endpoint
	if s.Status.RemountRequestedAt > p.Status.RemountRequestedAt { // RFC 3339 in UTC sorts by time
		p.Status.RemountRequestedAt = s.Status.RemountRequestedAt
	}
}

// newShareManager returns a new share manager. If the previous one was deleted while it served, an annotation tells
// the new one the endpoint of the previous one.
func newShareManager(v *longhorn.Volume, image string) *longhorn.ShareManager {
	s := &longhorn.ShareManager{
		ObjectMeta: children.Meta(v, v.Name, nil),
		Spec:       longhorn.ShareManagerSpec{Image: image},
	}
	if v.Status.ShareEndpoint != "" {
		s.Annotations = map[string]string{types.AnnotationShareEndpoint: v.Status.ShareEndpoint}
	}
	return s
}

func (c *Controller) applyShare(ctx context.Context, log *logrus.Entry, v *longhorn.Volume, s shareStep) error {
	if s.create != nil {
		log.Info("creating the share manager")
		if _, err := c.deps.Shares.Create(ctx, s.create); err != nil {
			return c.ifExists(ctx, v, fmt.Errorf("create the share manager: %w", err), liveFrom(c.deps.Shares, s.create.Name))
		}
	}
	if s.update != nil {
		if _, err := c.deps.Shares.Update(ctx, s.update); err != nil {
			return fmt.Errorf("update the share manager: %w", err)
		}
	}
	if s.remove == nil {
		return nil
	}
	log.Info("deleting the share manager: the volume is no longer shared")
	err := c.deps.Shares.Delete(ctx, s.remove.Name, datastore.Preconditions{UID: s.remove.UID})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the share manager: %w", err)
	}
	return nil
}
