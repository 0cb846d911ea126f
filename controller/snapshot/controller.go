package snapshot

import (
	"context"
	"crypto/rand"
	"math/big"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/line"
	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Store holds all Snapshots, with datastore.IndexVolume.
type Store interface {
	datastore.WatchedReader[*longhorn.Snapshot]
	datastore.Indexer[*longhorn.Snapshot]
	datastore.LiveReader[*longhorn.Snapshot]
	datastore.Creator[*longhorn.Snapshot]
	datastore.Updater[*longhorn.Snapshot]
	datastore.StatusWriter[*longhorn.Snapshot]
}

// EngineStore holds all engines, with datastore.IndexVolume.
type EngineStore interface {
	datastore.WatchedReader[*longhorn.Engine]
	datastore.LiveReader[*longhorn.Engine]
	datastore.StatusWriter[*longhorn.Engine]
}

// ReplicaStore holds all replicas, with datastore.IndexVolume.
type ReplicaStore interface {
	datastore.WatchedLister[*longhorn.Replica]
	datastore.Indexer[*longhorn.Replica]
	datastore.LiveLister[*longhorn.Replica]
}

// VolumeStore holds all volumes.
type VolumeStore interface {
	datastore.WatchedReader[*longhorn.Volume]
	datastore.LiveReader[*longhorn.Volume]
}

// AttachmentStore holds all volume attachments.
type AttachmentStore interface {
	datastore.WatchedReader[*longhorn.VolumeAttachment]
	datastore.Writer[*longhorn.VolumeAttachment]
}

// Deps are the dependencies of the controller. The stores are those for the whole cluster.
type Deps struct {
	queue.Env

	Snapshots        Store
	Volumes          VolumeStore
	Engines          EngineStore
	Replicas         ReplicaStore
	Attachments      AttachmentStore
	Nodes            datastore.Lister[*longhorn.Node]
	InstanceManagers datastore.Lister[*longhorn.InstanceManager]
	Setting          settings.Values
	// Owner is the node of this daemon, for status.ownerID.
	Owner string
	// Nonce returns a random number from 0 to line.NonceLimit, exclusive. nil: a source of the system.
	Nonce func() int64
}

// DepsOf returns the stores of a datastore for the whole cluster.
func DepsOf(d *datastore.Datastore) Deps {
	return Deps{
		Snapshots: d.Snapshots, Volumes: d.Volumes, Engines: d.Engines, Replicas: d.Replicas, Attachments: d.VolumeAttachments,
		Nodes: d.Nodes, InstanceManagers: d.InstanceManagers, Setting: d.Setting,
	}
}

// Controller works on the snapshots of all volumes. Create it with New, then call Run.
type Controller struct {
	deps  Deps
	queue *queue.Queue[string]
}

// New registers the controller's handlers. The controller does nothing before Run.
func New(d Deps) (*Controller, error) {
	if d.Nonce == nil {
		d.Nonce = randomNonce
	}
	c := &Controller{deps: d}
	c.queue = queue.New(queue.Options[string]{Name: "snapshot", Env: d.Env, Workers: 2, Sync: c.sync})
	err := c.queue.Watch(
		queue.Watch{Events: d.Snapshots, Handler: queue.Handler(c.queue, ofVolume[*longhorn.Snapshot])},
		queue.Watch{Events: d.Volumes, Handler: queue.Handler(c.queue, queue.Name[*longhorn.Volume])},
		queue.Watch{Events: d.Engines, Handler: queue.Handler(c.queue, ofVolume[*longhorn.Engine])},
		queue.Watch{Events: d.Replicas, Handler: queue.Handler(c.queue, ofVolume[*longhorn.Replica])},
		queue.Watch{Events: d.Attachments, Handler: queue.Handler(c.queue, queue.Name[*longhorn.VolumeAttachment])},
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func ofVolume[T metav1.Object](o T) []string { return []string{types.VolumeOf(o)} }

func randomNonce() int64 {
	n, err := rand.Int(rand.Reader, big.NewInt(line.NonceLimit))
	if err != nil {
		panic("BUG: the system's source of random numbers never fails: " + err.Error())
	}
	return n.Int64()
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// Sync syncs the snapshots of one volume, as the queue does. It is for tests of several controllers together.
func (c *Controller) Sync(ctx context.Context, volume string) (queue.Result, error) {
	return c.sync(ctx, volume)
}

func (c *Controller) sync(ctx context.Context, volume string) (queue.Result, error) {
	in, err := c.gather(volume)
	if err != nil {
		return queue.Result{}, err
	}
	if in.isIdle() {
		return queue.Result{}, nil
	}
	p := plan(in)
	return queue.Result{RequeueAfter: p.After}, c.apply(ctx, in, p)
}

// gather reads everything that a plan is based on, without the objects of an earlier volume of the same name.
func (c *Controller) gather(volume string) (Input, error) {
	in := Input{Name: volume, Now: c.deps.Clock.Now(), Owner: c.deps.Owner}
	var err error
	if in.Snapshots, err = c.deps.Snapshots.ByIndex(datastore.IndexVolume, volume); err != nil {
		return in, err
	}
	for _, s := range in.Snapshots {
		if c.deps.Snapshots.IsStale(s) {
			return in, queue.ErrStale
		}
	}
	if in.Volume, err = found(c.deps.Volumes.GetRO(volume)); err != nil || in.Volume == nil {
		return in, err
	}
	if in.Engine, err = found(c.deps.Engines.GetRO(types.EngineName(volume))); err != nil {
		return in, err
	}
	if in.Engine != nil && !in.owns(in.Engine) {
		in.Engine = nil
	}
	if in.Engine != nil && c.deps.Engines.IsStale(in.Engine) {
		return in, queue.ErrStale
	}
	if in.Attachment, err = found(c.deps.Attachments.GetRO(volume)); err != nil {
		return in, err
	}
	if in.Attachment != nil && c.deps.Attachments.IsStale(in.Attachment) {
		return in, queue.ErrStale
	}
	if in.isIdle() {
		return in, nil
	}
	return in, c.gatherCluster(&in)
}

// gatherCluster reads what only a volume with snapshots needs.
func (c *Controller) gatherCluster(in *Input) error {
	replicas, err := c.deps.Replicas.ByIndex(datastore.IndexVolume, in.Name)
	if err != nil {
		return err
	}
	for _, r := range replicas {
		if in.owns(r) {
			in.Replicas = append(in.Replicas, r)
		}
	}
	nodes, err := c.deps.Nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	managers, err := c.deps.InstanceManagers.List(labels.Everything())
	if err != nil {
		return err
	}
	in.Nodes = map[string]NodeFact{}
	for _, n := range nodes {
		in.Nodes[n.Name] = NodeFact{Ready: n.DeletionTimestamp == nil && types.IsConditionTrue(n.Status.Conditions, types.ConditionReady)}
	}
	for _, im := range managers {
		fact := in.Nodes[im.Spec.NodeID]
		fact.TakesSnapshots, fact.Version = types.TakesSnapshots(im), im.Status.Version
		in.Nodes[im.Spec.NodeID] = fact
	}
	in.MaxCount = int(c.deps.Setting.Int(settings.SnapshotMaxCount))
	if own := in.Volume.Spec.SnapshotMaxCount; own > 0 {
		in.MaxCount = min(in.MaxCount, own)
	}
	in.Nonce = c.deps.Nonce()
	return nil
}

// found turns the error "not found" into a nil object.
func found[T any](obj *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return obj, err
}
