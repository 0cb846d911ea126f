package replica

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/controller/replicateardown"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// Store lists the replicas of this node, and reads and writes any replica.
type Store interface {
	datastore.WatchedReader[*longhorn.Replica]
	datastore.Lister[*longhorn.Replica]
	datastore.LiveReader[*longhorn.Replica]
	datastore.LiveLister[*longhorn.Replica]
	datastore.Updater[*longhorn.Replica]
	datastore.StatusWriter[*longhorn.Replica]
}

// NodeStore watches this node, and reads any node.
type NodeStore interface {
	datastore.WatchedReader[*longhorn.Node]
	datastore.LiveReader[*longhorn.Node]
}

// Deps are the dependencies of the controller.
type Deps struct {
	queue.Env

	Replicas         Store
	Nodes            NodeStore
	InstanceManagers datastore.WatchedReader[*longhorn.InstanceManager] // of this node
	// Volumes and Engines are read to decide whether a deleted replica is the last copy.
	Volumes replicateardown.VolumeStore
	Engines replicateardown.EngineStore
	// VolumeKey reads the key of a volume's data plane; a missing key is an error.
	VolumeKey func(ctx context.Context, volume string) ([]byte, error)
	// ReservePercent is the part of a disk, in percent, that snapshots and merges leave free; nil: 0.
	ReservePercent func() int64
	DataPlane      DataPlane
	// Node is this daemon's node: the controller runs its replicas.
	Node string
}

// Controller runs the replicas of one node. Create it with New, then call Run.
type Controller struct {
	Deps
	queue    *queue.Queue[string]
	attempts attempts // to create or open replicas
	growths  attempts // to grow replicas
	turns    *turns
}

// workers is the number of workers. It is larger than the number that the disks which may hang at a time can block,
// at callsPerDisk each.
const workers = 8

// New registers the controller's handlers. The controller does nothing before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{Deps: d}
	c.queue = queue.New(queue.Options[string]{Name: "replica", Env: d.Env, Workers: workers, Sync: c.sync})
	c.turns = newTurns(c.queue.Add)
	// A change of a disk or of this node's instance manager may concern any replica.
	all := queue.Handler(c.queue, func(metav1.Object) []string { return c.names() })
	err := c.queue.Watch(
		queue.Watch{Events: d.Replicas, Handler: queue.Handler(c.queue, queue.Name[*longhorn.Replica])},
		queue.Watch{Events: d.Nodes, Handler: all},
		queue.Watch{Events: d.InstanceManagers, Handler: all},
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// Notify notifies the controller that the data plane's state of these replicas changed.
func (c *Controller) Notify(names ...string) {
	for _, name := range names {
		c.queue.Add(name)
	}
}

// NotifyAll notifies the controller that the state of any replica, and the list of replicas in the data plane, may
// have changed.
func (c *Controller) NotifyAll() {
	hosted, _ := c.DataPlane.Replicas()
	c.Notify(append(c.names(), hosted...)...)
}

func (c *Controller) names() []string {
	replicas, err := c.Replicas.List(labels.Everything())
	if err != nil {
		return nil
	}
	var names []string
	for _, r := range replicas {
		if r.Spec.NodeID == c.Node {
			names = append(names, r.Name)
		}
	}
	return names
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	r, err := c.Replicas.GetRO(name)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return queue.Result{}, err
	case err != nil || r.Spec.NodeID != c.Node:
		c.attempts.forget(name)
		c.growths.forget(name)
		return queue.Result{}, c.stopUnlisted(ctx, name)
	case c.Replicas.IsStale(r):
		return queue.Result{}, queue.ErrStale
	case r.DeletionTimestamp != nil && !types.HasFinalizer(r):
		return queue.Result{}, nil
	}
	in, err := c.gather(ctx, r)
	if err != nil {
		return queue.Result{}, err
	}
	p := plan(in)
	if p.Action.asksDisk() {
		done, ok := c.turns.take(r.Spec.DiskID, name)
		if !ok {
			return queue.Result{}, nil
		}
		defer done()
	}
	return queue.Result{RequeueAfter: p.After}, c.apply(ctx, in, p)
}

func (c *Controller) gather(ctx context.Context, r *longhorn.Replica) (Input, error) {
	in := Input{Replica: r, Observed: c.DataPlane.ObserveReplica(r.Name), Owner: c.Node, Now: c.Clock.Now()}
	if in.Observed.Phase == types.PhaseRunning {
		c.attempts.forget(r.Name)
	}
	in.Tried, in.Grown = c.attempts.of(r.Name), c.growths.of(r.Name)
	if im, err := c.InstanceManagers.GetRO(types.InstanceManagerName(c.Node)); err == nil {
		in.Manager = im
	}
	n, err := c.Nodes.GetRO(c.Node)
	if err != nil && !apierrors.IsNotFound(err) {
		return in, err
	}
	if in.Silent = types.IsNodeGone(n); n != nil {
		in.Disk = diskOf(n, r.Spec.DiskID)
	}
	if r.DeletionTimestamp != nil {
		if in.Kept, err = c.isLastCopy(ctx, r); err != nil {
			return in, fmt.Errorf("check whether it is the last copy: %w", err)
		}
	}
	return in, nil
}

// diskOf finds a disk by its UUID: a path is not a disk.
func diskOf(n *longhorn.Node, uuid string) Disk {
	name := types.DiskOf(n, uuid)
	if name == "" {
		return Disk{}
	}
	ready := types.FindCondition(n.Status.DiskStatus[name].Conditions, types.ConditionReady)
	return Disk{
		Known: true, Ready: ready.Status == longhorn.ConditionTrue, Path: n.Spec.Disks[name].Path, Message: ready.Message,
		SizeBytes: n.Status.DiskStatus[name].StorageMaximum,
	}
}

// apply writes the status, then acts. The data plane's answer arrives as a new state and causes a new sync. apply
// may repeat every action.
func (c *Controller) apply(ctx context.Context, in Input, p Plan) error {
	r, err := c.writeStatus(ctx, in.Replica, p.Status)
	if err != nil {
		return err
	}
	log := queue.Log(ctx).WithField(logfields.Path, c.directory(in))
	switch p.Action {
	case ActionCreate:
		log.Info("creating the replica's directory")
		return c.create(ctx, in, r)
	case ActionStart:
		spec, err := c.spec(ctx, in)
		if err != nil {
			return c.refused(ctx, in, r, err)
		}
		if err := c.DataPlane.StartReplica(ctx, spec); err != nil {
			return c.refused(ctx, in, r, fmt.Errorf("start replica: %w", err))
		}
		c.attempts.note(r.Name, in.Now, nil)
	case ActionGrow:
		return c.grow(ctx, in)
	case ActionStop:
		fence := int64(0)
		if in.Observed.Phase != types.PhaseError && r.Spec.FenceGeneration > r.Status.Generation {
			fence = r.Spec.FenceGeneration
		}
		log.WithField(logfields.Generation, fence).Info("stopping the replica")
		return c.stop(ctx, r, fence)
	case ActionRemove:
		return c.remove(ctx, in)
	case ActionDropFinalizer:
		return replicateardown.DropFinalizer(ctx, c.Replicas, r)
	}
	return nil
}

// create creates the directory only if the API server also has no record of it: an old cache must not cause an empty
// directory in place of a lost one.
func (c *Controller) create(ctx context.Context, in Input, r *longhorn.Replica) error {
	live, err := c.Replicas.Live(ctx, r.Name)
	if err != nil {
		return err
	}
	if live.UID != r.UID || live.DeletionTimestamp != nil || live.Status.DirectoryCreated || live.Spec.NodeID != c.Node {
		return queue.ErrStale
	}
	spec, err := c.spec(ctx, in)
	if err != nil {
		return c.refused(ctx, in, live, err)
	}
	if err := c.DataPlane.CreateReplica(ctx, spec); err != nil {
		return c.refused(ctx, in, live, fmt.Errorf("create the directory: %w", err))
	}
	c.attempts.forget(r.Name) // the next sync opens it without delay
	live.Status.DirectoryCreated = true
	if _, err := c.Replicas.UpdateStatus(ctx, live); err != nil {
		return fmt.Errorf("record that the directory was created: %w", err)
	}
	return nil
}

func (c *Controller) spec(ctx context.Context, in Input) (Spec, error) {
	s := c.specWithoutSecret(in)
	var err error
	s.Secret, err = c.VolumeKey(ctx, in.Replica.Spec.VolumeName)
	return s, err
}

func (c *Controller) specWithoutSecret(in Input) Spec {
	r, reserve := in.Replica, int64(0)
	if c.ReservePercent != nil {
		reserve = in.Disk.SizeBytes / 100 * c.ReservePercent()
	}
	return Spec{
		Name: r.Name, Volume: r.Spec.VolumeName, UID: string(r.UID),
		Directory: c.directory(in), DiskPath: in.Disk.Path, DiskUUID: r.Spec.DiskID, SizeBytes: wantedSize(in), ReserveBytes: reserve,
	}
}

// directory is the replica's directory below the current mount point of the disk, which may have changed.
func (c *Controller) directory(in Input) string {
	return types.ReplicaDataPath(in.Disk.Path, in.Replica.Spec.DataDirectoryName)
}

// refused shows why a replica could not be created or opened, if err is a refusal. It returns any other error, so
// that the queue retries soon.
func (c *Controller) refused(ctx context.Context, in Input, r *longhorn.Replica, err error) error {
	refusal := (*types.Refusal)(nil)
	if !errors.As(err, &refusal) {
		return err
	}
	c.attempts.note(r.Name, in.Now, refusal)
	_, err = c.writeStatus(ctx, r, planRefused(in, r.Status, refusal).Status)
	return err
}

// stop closes the replica and records the fence that it then holds. After a crash in between, it opens and fences
// the replica a second time. A replica that could not be opened has no engine and cannot be fenced: stop closes it
// without a fence. stop does the same with a replica that must be removed and cannot be fenced, for example on a
// disk that is full to the last block. The attempt has disconnected the engine, and no data remains that a fence
// would protect.
func (c *Controller) stop(ctx context.Context, r *longhorn.Replica, fence int64) error {
	err := c.DataPlane.StopReplica(ctx, r.Name, fence)
	if err != nil && fence > 0 && r.DeletionTimestamp != nil {
		queue.Log(ctx).WithError(err).Warn("Cannot fence a replica before its removal; closing it without a fence")
		err, fence = c.DataPlane.StopReplica(ctx, r.Name, 0), 0
	}
	if err != nil {
		return fmt.Errorf("stop replica: %w", err)
	}
	if fence == 0 {
		return nil
	}
	u := r.DeepCopy()
	u.Status.Generation = fence
	_, err = c.Replicas.UpdateStatus(ctx, u)
	return err
}

func (c *Controller) writeStatus(ctx context.Context, r *longhorn.Replica, status longhorn.ReplicaStatus) (*longhorn.Replica, error) {
	stored, isWritten, err := datastore.WriteStatus(ctx, c.Replicas, r, statusOf, status)
	if isWritten {
		tell(c, r, status)
		replicateardown.RecordKept(c.Recorder, r, status)
	}
	return stored, err
}

func statusOf(r *longhorn.Replica) *longhorn.ReplicaStatus { return &r.Status }

// tell records the Events about changes of the status.
func tell(c *Controller, r *longhorn.Replica, next longhorn.ReplicaStatus) {
	was, is := types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation), types.FindCondition(next.Conditions, types.ConditionInstanceCreation)
	switch {
	case is.Reason == types.ReasonDiskNotResponding && is.Status == longhorn.ConditionTrue && was.Reason != is.Reason:
		c.Recorder.Eventf(r, corev1.EventTypeWarning, is.Reason, "replica %s hangs: %s", r.Name, is.Message)
		return
	case r.Status.CurrentState == next.CurrentState:
		return
	}
	switch next.CurrentState {
	case longhorn.InstanceStateRunning:
		c.Recorder.Eventf(r, corev1.EventTypeNormal, types.EventStart, "replica %s runs on node %s", r.Name, c.Node)
	case longhorn.InstanceStateStopped:
		if r.Status.CurrentState != "" {
			c.Recorder.Eventf(r, corev1.EventTypeNormal, types.EventStop, "replica %s stopped on node %s", r.Name, c.Node)
		}
	case longhorn.InstanceStateError:
		if isLost(is.Reason) {
			c.Recorder.Eventf(r, corev1.EventTypeWarning, is.Reason, "replica %s stopped serving: %s", r.Name, is.Message)
			return
		}
		c.Recorder.Eventf(r, corev1.EventTypeWarning, types.EventFailedStarting, "%s: %s", is.Reason, is.Message)
	}
}
