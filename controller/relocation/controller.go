package relocation

import (
	"context"
	"fmt"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// ReplicaStore holds all replicas.
type ReplicaStore interface {
	datastore.WatchedIndexer[*longhorn.Replica]
	datastore.StaleIndexChecker
	datastore.Updater[*longhorn.Replica]
}

// Deps are the dependencies of a Controller; the stores are of the whole cluster.
type Deps struct {
	queue.Env

	Replicas ReplicaStore
	Nodes    datastore.WatchedLister[*longhorn.Node]
	Engines  datastore.WatchedIndexer[*longhorn.Engine]
}

// Controller updates replicas after their disks have moved. Create it with New, then call Run.
type Controller struct {
	deps  Deps
	queue *queue.Queue[string] // of disks' UUIDs
}

// New registers the controller's handlers. Nothing else happens before Run.
func New(deps Deps) (*Controller, error) {
	c := &Controller{deps: deps}
	c.queue = queue.New(queue.Options[string]{Name: "relocation", Env: deps.Env, Sync: c.sync})
	err := c.queue.Watch(
		queue.Watch{Events: deps.Nodes, Handler: queue.Handler(c.queue, disksOf)},
		queue.Watch{Events: deps.Replicas, Handler: queue.Handler(c.queue, func(r *longhorn.Replica) []string { return []string{r.Spec.DiskID} })},
		queue.Watch{Events: deps.Engines, Handler: queue.Handler(c.queue, c.waitingFor)},
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func disksOf(n *longhorn.Node) []string {
	uuids := make([]string, 0, len(n.Status.DiskStatus))
	for _, status := range n.Status.DiskStatus {
		uuids = append(uuids, status.DiskUUID)
	}
	return uuids
}

// waitingFor returns the disks of replicas that perhaps only their engine keeps from moving.
func (c *Controller) waitingFor(e *longhorn.Engine) []string {
	replicas, err := c.deps.Replicas.ByIndex(datastore.IndexVolume, e.Spec.VolumeName)
	if err != nil {
		return nil
	}
	var uuids []string
	for _, r := range replicas {
		if isNodeGone(r) {
			uuids = append(uuids, r.Spec.DiskID)
		}
	}
	return uuids
}

func (c *Controller) sync(ctx context.Context, uuid string) (queue.Result, error) {
	if c.deps.Replicas.IsStaleIn(datastore.IndexDisk, uuid) {
		return queue.Result{}, queue.ErrStale
	}
	in, err := c.gather(uuid)
	if err != nil {
		return queue.Result{}, err
	}
	for _, m := range plan(in) {
		if err := c.move(ctx, m); err != nil {
			return queue.Result{}, err
		}
	}
	return queue.Result{}, nil
}

func (c *Controller) gather(uuid string) (Input, error) {
	var in Input
	replicas, err := c.deps.Replicas.ByIndex(datastore.IndexDisk, uuid)
	if err != nil || len(replicas) == 0 {
		return in, err
	}
	nodes, err := c.deps.Nodes.List(labels.Everything())
	if err != nil {
		return in, err
	}
	in.Places = placesOf(nodes, uuid)
	for _, r := range replicas {
		engines, err := c.deps.Engines.ByIndex(datastore.IndexVolume, r.Spec.VolumeName)
		if err != nil {
			return in, err
		}
		served := false
		for _, e := range engines {
			served = served || isInUse(e, r.Name)
		}
		in.Copies = append(in.Copies, Copy{Replica: r, Served: served})
	}
	return in, nil
}

// move writes the replica, based on the version that the plan read. If a daemon has changed it since to start it, or a
// user has deleted it, the write fails with a conflict.
func (c *Controller) move(ctx context.Context, m Move) error {
	r := m.Replica
	if _, err := c.deps.Replicas.Update(ctx, r); err != nil {
		return fmt.Errorf("move replica %s: %w", r.Name, err)
	}
	queue.Log(ctx).WithFields(logrus.Fields{
		logfields.Replica: r.Name, logfields.Node: r.Spec.NodeID, logfields.Path: r.Spec.DiskPath,
	}).Info("Moved a replica to the place where its disk was found")
	c.deps.Recorder.Eventf(r, corev1.EventTypeNormal, types.EventReplicaMoved,
		"replica %s is now on node %s in %s, because its disk %s was found there; it was on node %s in %s",
		r.Name, r.Spec.NodeID, r.Spec.DiskPath, r.Spec.DiskID, m.From.Node, m.From.Path)
	return nil
}
