package attachment

import (
	"context"
	"fmt"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// Deps are what the controller needs.
type Deps struct {
	Store *datastore.Datastore
	Clock clock.WithTicker
	Log   *logrus.Entry
	// Metrics of the queue; nil: none.
	Metrics *queue.Metrics
}

// Controller attaches and detaches all volumes of the cluster. Make it with New, then Run it.
type Controller struct {
	store *datastore.Datastore
	clock clock.WithTicker
	queue *queue.Queue[string]
}

// New registers the controller's handlers; nothing happens before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{store: d.Store, clock: d.Clock}
	c.queue = queue.New(queue.Options[string]{Name: "attachment", Clock: d.Clock, Log: d.Log, Workers: 2, Sync: c.sync, Metrics: d.Metrics})
	// A volume and its attachment have the same name.
	byName := queue.Handler(c.queue, func(o metav1.Object) []string { return []string{o.GetName()} })
	if _, err := d.Store.Volumes.AddHandler(byName); err != nil {
		return nil, fmt.Errorf("watch volumes: %w", err)
	}
	if _, err := d.Store.VolumeAttachments.AddHandler(byName); err != nil {
		return nil, fmt.Errorf("watch volume attachments: %w", err)
	}
	return c, nil
}

// Run syncs until ctx ends, and returns when the last sync is done.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	va, err := c.store.VolumeAttachments.GetRO(name)
	if apierrors.IsNotFound(err) {
		return queue.Result{}, nil
	}
	if err != nil {
		return queue.Result{}, err
	}
	v, err := c.store.Volumes.GetRO(name)
	if apierrors.IsNotFound(err) {
		return queue.Result{}, nil
	}
	if err != nil {
		return queue.Result{}, err
	}
	if c.store.Volumes.IsStale(v) || c.store.VolumeAttachments.IsStale(va) {
		return queue.Result{}, queue.ErrStale
	}
	p := plan(Input{Volume: v, Attachment: va, Now: c.clock.Now()})
	if p.Volume != nil {
		queue.Log(ctx).WithField(logfields.Node, p.Volume.Spec.NodeID).Info("changing where the volume shall be attached")
		if _, err := c.store.Volumes.Update(ctx, p.Volume); err != nil {
			return queue.Result{}, fmt.Errorf("update volume %s: %w", name, err)
		}
	}
	if equality.Semantic.DeepEqual(va.Status, p.Status) {
		return queue.Result{}, nil
	}
	u := va.DeepCopy()
	u.Status = p.Status
	_, err = c.store.VolumeAttachments.UpdateStatus(ctx, u)
	return queue.Result{}, err
}
