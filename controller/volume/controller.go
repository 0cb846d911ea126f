package volume

import (
	"context"
	"fmt"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// Deps are what the controller needs.
type Deps struct {
	Store    *datastore.Datastore
	Recorder record.EventRecorder
	Clock    clock.WithTicker
	Log      *logrus.Entry
	// Metrics of the queue; nil: none.
	Metrics *queue.Metrics
	// Owner is the node of this daemon, for status.ownerID.
	Owner string
}

// Controller drives all volumes of the cluster. Make it with New, then Run it.
type Controller struct {
	store    *datastore.Datastore
	recorder record.EventRecorder
	clock    clock.WithTicker
	owner    string
	queue    *queue.Queue[string]
}

// New registers the controller's handlers; nothing happens before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{store: d.Store, recorder: d.Recorder, clock: d.Clock, owner: d.Owner}
	c.queue = queue.New(queue.Options[string]{Name: "volume", Clock: d.Clock, Log: d.Log, Workers: 4, Sync: c.sync, Metrics: d.Metrics})
	return c, c.watch()
}

// Run syncs until ctx ends, and returns when the last sync is done.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller) watch() error {
	own := queue.Handler(c.queue, func(o metav1.Object) []string { return []string{o.GetName()} })
	child := queue.Handler(c.queue, func(o metav1.Object) []string { return []string{o.GetLabels()[types.LabelVolume]} })
	room := queue.Handler(c.queue, func(metav1.Object) []string { return c.unscheduled() })
	for _, w := range []struct {
		add     func(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
		handler cache.ResourceEventHandler
	}{
		{c.store.Volumes.AddHandler, own},
		{c.store.VolumeAttachments.AddHandler, child},
		{c.store.Engines.AddHandler, child},
		{c.store.Replicas.AddHandler, child},
		{c.store.Nodes.AddHandler, room},
		{c.store.InstanceManagers.AddHandler, room},
		{c.store.Settings.AddHandler, room},
	} {
		if _, err := w.add(w.handler); err != nil {
			return fmt.Errorf("watch for volumes: %w", err)
		}
	}
	return nil
}

// unscheduled lists the volumes that wait for room, which a change of a node may have made.
func (c *Controller) unscheduled() []string {
	volumes, err := c.store.Volumes.List(labels.Everything())
	if err != nil {
		return nil
	}
	var names []string
	for _, v := range volumes {
		if !types.IsConditionTrue(v.Status.Conditions, types.ConditionScheduled) {
			names = append(names, v.Name)
		}
	}
	return names
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	v, err := c.store.Volumes.Get(name)
	if apierrors.IsNotFound(err) {
		return queue.Result{}, nil
	}
	if err != nil {
		return queue.Result{}, err
	}
	if c.store.Volumes.IsStale(v) {
		return queue.Result{}, queue.ErrStale
	}
	log := queue.Log(ctx).WithField(logfields.Volume, name)
	in, err := c.gather(v)
	if err != nil {
		return queue.Result{}, err
	}
	if v.DeletionTimestamp != nil {
		if !types.HasFinalizer(v) {
			return queue.Result{}, nil
		}
		return queue.Result{}, c.applyDeletion(ctx, log, v, planDeletion(in))
	}
	p := plan(in)
	return queue.Result{RequeueAfter: p.After}, c.apply(ctx, log, v, p)
}

// gather reads everything a plan rests on; children of an earlier volume of the same name are left out.
func (c *Controller) gather(v *longhorn.Volume) (Input, error) {
	in := Input{Volume: v, Owner: c.owner, Now: c.clock.Now()}
	engines, err := c.store.Engines.ByIndex(datastore.IndexVolume, v.Name)
	if err != nil {
		return in, err
	}
	for _, e := range engines {
		if ownedBy(e, v) {
			in.Engine = e
		}
	}
	all, err := c.store.Replicas.List(labels.Everything())
	if err != nil {
		return in, err
	}
	for _, r := range all {
		if r.Spec.VolumeName == v.Name && ownedBy(r, v) {
			in.Replicas = append(in.Replicas, r)
		}
	}
	if va, err := c.store.VolumeAttachments.GetRO(v.Name); err == nil && ownedBy(va, v) {
		in.Attachment = va
	}
	in.DefaultReplicaCount = int(types.SettingInt(types.SettingDefaultReplicaCount, c.store.Setting(types.SettingDefaultReplicaCount)))

	nodes, err := c.store.Nodes.List(labels.Everything())
	if err != nil {
		return in, err
	}
	managers, err := c.store.InstanceManagers.List(labels.Everything())
	if err != nil {
		return in, err
	}
	objects := scheduler.Objects{Nodes: nodes, InstanceManagers: managers, Replicas: all}
	in.Cluster = objects.Snapshot(v.Name, scheduler.SettingsOf(c.store.Setting, v.Spec.ReplicaSoftAntiAffinity))
	for range v.Spec.NumberOfReplicas {
		in.Names = append(in.Names, ReplicaNames{types.NewReplicaName(v.Name), types.NewDataDirectoryName(v.Name)})
	}
	return in, nil
}

// ownedBy tells whether an object belongs to this very volume, and not to an earlier one of its name.
func ownedBy(o metav1.Object, v *longhorn.Volume) bool {
	for _, ref := range o.GetOwnerReferences() {
		if ref.UID == v.UID {
			return true
		}
	}
	return false
}
