// Package csidriver maintains spec.storageCapacity of the driver's CSIDriver according to the setting
// csi-storage-capacity-tracking. The field tells Kubernetes whether to schedule pods by the free space for their
// volumes, and the CSI controller whether to publish that space. The package runs on the leader.
//
// It owns only that field; the manifests create the object. It must not know how the capacity is determined.
package csidriver

import (
	"context"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// again is how soon to read the CSIDriver again while the setting is on. The CSIDriver is not watched, and may have
// been created again.
const again = 5 * time.Minute

// Store reads and writes CSIDrivers.
type Store interface {
	datastore.LiveReader[*storagev1.CSIDriver]
	datastore.Updater[*storagev1.CSIDriver]
}

// Deps are the dependencies of a Controller.
type Deps struct {
	queue.Env

	Drivers  Store
	Settings queue.Events
	Setting  settings.Values
}

// Controller maintains the CSIDriver. Create it with New, then call Run.
type Controller struct {
	deps  Deps
	queue *queue.Queue[string] // of one key, the driver's name
}

// New registers the handlers. Nothing else happens before Run.
func New(deps Deps) (*Controller, error) {
	c := &Controller{deps: deps}
	c.queue = queue.New(queue.Options[string]{Name: "csi-driver", Env: deps.Env, Sync: c.sync})
	err := c.queue.Watch(queue.Watch{Events: deps.Settings, Handler: queue.Handler(c.queue, func(s *longhorn.Setting) []string {
		if s.Name != string(settings.CSIStorageCapacityTracking) {
			return nil
		}
		return []string{types.DriverName}
	})})
	if err != nil {
		return nil, err
	}
	c.queue.Add(types.DriverName)
	return c, nil
}

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	wanted := c.deps.Setting.Bool(settings.CSIStorageCapacityTracking)
	var r queue.Result
	if wanted {
		r.RequeueAfter = again
	}
	driver, err := c.deps.Drivers.Live(ctx, name)
	if apierrors.IsNotFound(err) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if is := driver.Spec.StorageCapacity != nil && *driver.Spec.StorageCapacity; is == wanted {
		return r, nil
	}
	driver.Spec.StorageCapacity = &wanted
	if _, err := c.deps.Drivers.Update(ctx, driver); err != nil {
		return r, fmt.Errorf("set storageCapacity of CSIDriver %s: %w", name, err)
	}
	queue.Log(ctx).WithField("value", wanted).Info("Changed storageCapacity of the CSIDriver")
	return r, nil
}
