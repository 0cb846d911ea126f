package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/longhorn-lep/longhorn-manager/controller/nodestate"
	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// DepartingNodes holds the Node objects of the whole cluster.
type DepartingNodes interface {
	datastore.WatchedReader[*longhorn.Node]
	datastore.LiveReader[*longhorn.Node]
	datastore.Deleter
}

// DepartingManagers holds the instance managers of the whole cluster.
type DepartingManagers interface {
	datastore.WatchedReader[*longhorn.InstanceManager]
	datastore.Deleter
}

// DepartureDeps are the dependencies of a Departure; the stores are of the whole cluster.
type DepartureDeps struct {
	queue.Env

	Nodes            DepartingNodes
	KubeNodes        MonitoredKubeNodes
	InstanceManagers DepartingManagers
}

// Departure answers: which objects of a node are deleted after its Kubernetes node was removed? It deletes the Node,
// and then its InstanceManager. It runs in the leader, after the Monitor has detected the removal.
//
// It leaves replicas and engines unchanged: they stay for a return of the node, and their controllers handle them. The
// Node has no finalizer. A return of the node does not need the Node, because the identity of a disk and the data are
// on the disk.
type Departure struct {
	deps  DepartureDeps
	queue *queue.Queue[string] // of nodes' names
}

// NewDeparture creates a Departure. It does nothing before Run is called.
func NewDeparture(deps DepartureDeps) (*Departure, error) {
	d := &Departure{deps: deps}
	d.queue = queue.New(queue.Options[string]{Name: "node-departure", Env: deps.Env, Sync: d.sync})
	err := d.queue.Watch(
		queue.Watch{Events: deps.Nodes, Handler: queue.Handler(d.queue, queue.Name[*longhorn.Node])},
		// A Kubernetes node that exists requires nothing, so only its deletion is watched.
		queue.Watch{Events: deps.KubeNodes, Handler: onlyDeletions(queue.Handler(d.queue, queue.Name[*corev1.Node]))},
		queue.Watch{Events: deps.InstanceManagers, Handler: queue.Handler(d.queue, func(im *longhorn.InstanceManager) []string { return []string{im.Spec.NodeID} })},
	)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func onlyDeletions(h cache.ResourceEventHandler) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{DeleteFunc: h.OnDelete}
}

// Run works until ctx is done. The caches must be filled.
func (d *Departure) Run(ctx context.Context) error { return d.queue.Run(ctx) }

func (d *Departure) sync(ctx context.Context, name string) (queue.Result, error) {
	t, err := d.gather(name)
	if err != nil {
		return queue.Result{}, err
	}
	switch departing(t) {
	case removalNode:
		return queue.Result{}, d.removeNode(ctx, t.Node)
	case removalManager:
		return queue.Result{}, d.removeManager(ctx, name, t.Manager)
	}
	return queue.Result{}, nil
}

func (d *Departure) gather(name string) (t traces, err error) {
	if t.KubeNode, err = orNil(d.deps.KubeNodes.GetRO(name)); err != nil {
		return t, err
	}
	if t.Node, err = orNil(d.deps.Nodes.GetRO(name)); err != nil {
		return t, err
	}
	t.Manager, err = orNil(d.deps.InstanceManagers.GetRO(types.InstanceManagerName(name)))
	return t, err
}

// orNil returns nil, not an error, for a missing object.
func orNil[T any](obj *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return obj, err
}

// removeNode deletes only the Node that is known to be gone. The Kubernetes node must be missing in the API server too,
// and the Node there must be the same as the given one. A Node that has registered again in between has another UID. A
// Node that another writer has changed, such as the daemon or the Monitor of a node that is back, has another version.
func (d *Departure) removeNode(ctx context.Context, node *longhorn.Node) error {
	if err := nodestate.MustHaveLeft(ctx, d.deps.KubeNodes, node.Name); err != nil {
		return err
	}
	live, err := d.deps.Nodes.Live(ctx, node.Name)
	if err != nil {
		return queue.Gone(err)
	}
	if live.UID != node.UID || live.DeletionTimestamp != nil || !types.IsNodeGone(live) {
		return queue.ErrStale
	}
	p := datastore.Preconditions{UID: live.UID, ResourceVersion: live.ResourceVersion}
	if err := d.deps.Nodes.Delete(ctx, node.Name, p); err != nil {
		return err
	}
	queue.Log(ctx).Warn("Deleted the Longhorn node: its Kubernetes node was removed")
	d.deps.Recorder.Eventf(live, corev1.EventTypeWarning, types.EventNodeGone,
		"Kubernetes node %s was removed, so its Longhorn node was deleted; the replicas on its disks are kept, and are used again if the disks return", node.Name)
	return nil
}

// removeManager deletes the InstanceManager of a node that is neither in Kubernetes nor registered. The garbage
// collector deletes its pod.
func (d *Departure) removeManager(ctx context.Context, name string, manager *longhorn.InstanceManager) error {
	if err := nodestate.MustHaveLeft(ctx, d.deps.KubeNodes, name); err != nil {
		return err
	}
	switch _, err := d.deps.Nodes.Live(ctx, name); {
	case err == nil:
		return queue.ErrStale
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read node %s: %w", name, err)
	}
	p := datastore.Preconditions{UID: manager.UID, ResourceVersion: manager.ResourceVersion}
	if err := d.deps.InstanceManagers.Delete(ctx, manager.Name, p); err != nil {
		return err
	}
	queue.Log(ctx).Info("Deleted the instance manager: its node was removed")
	return nil
}
