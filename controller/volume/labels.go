package volume

import (
	"context"
	"fmt"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// unlabelled are copies of children that had lost the label of the volume, with the label restored. Controllers find
// children by owner and spec. Users, and daemons of earlier releases, find them by the label. A nil or empty field
// requires no action.
type unlabelled struct {
	engine     *longhorn.Engine
	replicas   []*longhorn.Replica
	attachment *longhorn.VolumeAttachment
	share      *longhorn.ShareManager
}

// unlabelledOf returns the children of a volume that lack its label or have the label of another volume; nil: there
// are none.
func unlabelledOf(in Input) *unlabelled {
	var u unlabelled
	found := false
	lacks := func(o metav1.Object) bool {
		lost := o.GetLabels()[types.LabelVolume] != types.VolumeOf(o)
		found = found || lost
		return lost
	}
	if in.Engine != nil && lacks(in.Engine) {
		u.engine = labelled(in.Engine.DeepCopy())
	}
	for _, r := range in.Replicas {
		if lacks(r) {
			u.replicas = append(u.replicas, labelled(r.DeepCopy()))
		}
	}
	if in.Attachment != nil && lacks(in.Attachment) {
		u.attachment = labelled(in.Attachment.DeepCopy())
	}
	if in.Share != nil && lacks(in.Share) {
		u.share = labelled(in.Share.DeepCopy())
	}
	if !found {
		return nil
	}
	return &u
}

// labelled sets the label of the object's volume on the object, and returns the object.
func labelled[T metav1.Object](o T) T {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[types.LabelVolume] = types.VolumeOf(o)
	o.SetLabels(labels)
	return o
}

func (c *Controller) putBackLabels(ctx context.Context, log *logrus.Entry, u unlabelled) error {
	if u.engine != nil {
		log.WithField(logfields.Engine, u.engine.Name).Info("restoring the volume's label")
		if _, err := c.deps.Engines.Update(ctx, u.engine); err != nil {
			return queue.OfChild(fmt.Errorf("label engine %s: %w", u.engine.Name, err))
		}
	}
	for _, r := range u.replicas {
		log.WithField(logfields.Replica, r.Name).Info("restoring the volume's label")
		if _, err := c.deps.Replicas.Update(ctx, r); err != nil {
			return queue.OfChild(fmt.Errorf("label replica %s: %w", r.Name, err))
		}
	}
	if u.attachment != nil {
		if _, err := c.deps.Attachments.Update(ctx, u.attachment); err != nil {
			return queue.OfChild(fmt.Errorf("label the volume attachment: %w", err))
		}
	}
	if u.share != nil {
		if _, err := c.deps.Shares.Update(ctx, u.share); err != nil {
			return queue.OfChild(fmt.Errorf("label the share manager: %w", err))
		}
	}
	return nil
}
