package storageclass

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/repeat"
)

// ConfigMapStore holds the ConfigMap longhorn-storageclass, if it exists. Its template is read live.
type ConfigMapStore interface {
	datastore.WatchedReader[*corev1.ConfigMap]
	datastore.LiveReader[*corev1.ConfigMap]
	datastore.Creator[*corev1.ConfigMap]
	datastore.Updater[*corev1.ConfigMap]
}

// ClassStore holds all StorageClasses.
type ClassStore interface {
	datastore.WatchedGetter[*storagev1.StorageClass]
	datastore.LiveReader[*storagev1.StorageClass]
	datastore.Creator[*storagev1.StorageClass]
	datastore.DryRunCreator[*storagev1.StorageClass]
	datastore.Writer[*storagev1.StorageClass]
	datastore.Deleter
}

// Deps are the dependencies of a Controller.
type Deps struct {
	queue.Env

	ConfigMap ConfigMapStore
	Classes   ClassStore
}

// Controller manages the StorageClass. It runs in the leader.
type Controller struct {
	deps  Deps
	queue *queue.Queue[string] // of one key, the ConfigMap's name
	// told is the last problem that an Event reported. Only sync uses it, and one sync runs at a time.
	told repeat.Filter
}

// New creates a Controller. It works when Run is called.
func New(deps Deps) (*Controller, error) {
	c := &Controller{deps: deps}
	c.queue = queue.New(queue.Options[string]{Name: "storageclass", Env: deps.Env, Sync: c.sync})
	only := []string{types.StorageClassConfigMap}
	err := c.queue.Watch(
		queue.Watch{Events: deps.ConfigMap, Handler: queue.Handler(c.queue, func(*corev1.ConfigMap) []string { return only })},
		queue.Watch{Events: deps.Classes, Handler: queue.Handler(c.queue, func(*storagev1.StorageClass) []string { return only })},
	)
	if err != nil {
		return nil, err
	}
	c.queue.Add(types.StorageClassConfigMap) // a missing ConfigMap sends no event
	return c, nil
}

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	cm, err := c.config(ctx, name)
	if cm == nil { // without it, no StorageClass is managed
		return queue.Result{RequeueAfter: templateAwaited}, err
	}
	return queue.Result{RequeueAfter: templateInterval}, errors.Join(err, c.follow(ctx, cm))
}

// follow makes the StorageClass match the ConfigMap.
func (c *Controller) follow(ctx context.Context, cm *corev1.ConfigMap) error {
	text := cm.Data[types.StorageClassKey]
	wanted, err := parse(text)
	if err != nil {
		c.tell(cm, fmt.Sprintf("key %s: %v", types.StorageClassKey, err))
		return nil
	}
	present, err := c.deps.Classes.Get(wanted.Name)
	if apierrors.IsNotFound(err) {
		present, err = nil, nil
	}
	if err != nil {
		return err
	}
	if present != nil && c.deps.Classes.IsStale(present) {
		return queue.ErrStale
	}
	p := plan(text, wanted, present)
	err = c.apply(ctx, cm, p, func() (*storagev1.StorageClass, error) { return c.replace(ctx, text, wanted) })
	if words := queue.ChildRefusal(queue.OfChild(err)); words != "" {
		c.tell(cm, fmt.Sprintf("key %s: the API server refuses the StorageClass: %s", types.StorageClassKey, words))
		if apierrors.IsInvalid(err) {
			return nil // no retry until the text changes
		}
		return err // retry: a policy or a webhook may change
	}
	if err == nil {
		c.tell(cm, p.Problem)
	}
	return err
}

// apply carries the plan out and records an Event about it.
func (c *Controller) apply(ctx context.Context, cm *corev1.ConfigMap, p Plan, replace func() (*storagev1.StorageClass, error)) error {
	var err error
	var stored *storagev1.StorageClass
	did := "Created"
	switch {
	case p.Create != nil:
		stored, err = c.deps.Classes.Create(ctx, p.Create)
	case p.Update != nil:
		did = "Updated"
		stored, err = c.deps.Classes.Update(ctx, p.Update)
	case p.Replace != nil:
		did = "Recreated"
		stored, err = replace()
	default:
		return nil
	}
	if err != nil {
		return err
	}
	queue.Log(ctx).WithField("storageClass", stored.Name).Info(did + " the StorageClass")
	c.deps.Recorder.Eventf(cm, corev1.EventTypeNormal, types.EventStorageClassUpdated, "%s StorageClass %s from the ConfigMap", did, stored.Name)
	return nil
}

// replace deletes the StorageClass and creates it again. Before that, it makes two checks at the API server. A live
// read shows whether the object is still the one of the plan, and belongs to this installation. A dry run shows
// whether the API server would accept the new object. Otherwise the old object would be deleted for nothing. After a
// crash in between, the StorageClass is missing, and the next sync creates it. Then the metadata that others had
// added to the old object is lost.
func (c *Controller) replace(ctx context.Context, text string, wanted *storagev1.StorageClass) (*storagev1.StorageClass, error) {
	live, err := c.deps.Classes.Live(ctx, wanted.Name)
	if err != nil {
		return nil, stale(err)
	}
	next := plan(text, wanted, live).Replace
	if next == nil {
		return nil, queue.ErrStale
	}
	if err := c.deps.Classes.CreateDryRun(ctx, next); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	err = c.deps.Classes.Delete(ctx, live.Name, datastore.Preconditions{UID: live.UID, ResourceVersion: live.ResourceVersion})
	if err != nil {
		return nil, stale(err)
	}
	return c.deps.Classes.Create(ctx, next)
}

// stale returns queue.ErrStale for an object that the cache showed and that does not exist, so that the queue
// retries.
func stale(err error) error {
	if apierrors.IsNotFound(err) {
		return queue.ErrStale
	}
	return err
}

// tell records a problem as an Event of the ConfigMap, once until it changes.
func (c *Controller) tell(cm *corev1.ConfigMap, problem string) {
	if c.told.Note(problem) {
		c.deps.Recorder.Event(cm, corev1.EventTypeWarning, types.EventStorageClassInvalid, problem)
	}
}
