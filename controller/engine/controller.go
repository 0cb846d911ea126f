package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/engineteardown"
	"github.com/longhorn-lep/longhorn-manager/controller/line"
	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// Store lists the engines of this node, and reads and writes any engine.
type Store interface {
	datastore.WatchedReader[*longhorn.Engine]
	datastore.Lister[*longhorn.Engine]
	datastore.LiveReader[*longhorn.Engine]
	datastore.Updater[*longhorn.Engine]
	datastore.StatusWriter[*longhorn.Engine]
}

// Deps are the dependencies of the controller.
type Deps struct {
	queue.Env

	Engines  Store
	Replicas datastore.LiveReader[*longhorn.Replica] // of any node
	// VolumeKey reads the key of a volume's data plane; a missing key is an error.
	VolumeKey func(ctx context.Context, volume string) ([]byte, error)
	Setting   settings.Values
	DataPlane DataPlane
	// Node is this daemon's node: the controller runs its engines.
	Node string
}

// Controller runs the engines of one node. Create it with New, then call Run.
type Controller struct {
	Deps
	queue    *queue.Queue[string]
	refusals refusals
	attempts attempts
}

// New registers the controller's handlers. The controller does nothing before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{Deps: d}
	c.queue = queue.New(queue.Options[string]{Name: "engine", Env: d.Env, Workers: 4, Sync: c.sync})
	if err := c.queue.Watch(queue.Watch{Events: d.Engines, Handler: queue.Handler(c.queue, queue.Name[*longhorn.Engine])}); err != nil {
		return nil, err
	}
	return c, nil
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Controller) Run(ctx context.Context) error {
	defer c.attempts.calls.Wait()
	return c.queue.Run(ctx)
}

// Notify notifies the controller that the data plane's state of these engines changed.
func (c *Controller) Notify(names ...string) {
	for _, name := range names {
		c.queue.Add(name)
	}
}

// NotifyAll notifies the controller that the state of any engine, and the list of engines in the data plane, may
// have changed.
func (c *Controller) NotifyAll() {
	engines, err := c.Engines.List(labels.Everything())
	if err != nil {
		return
	}
	for _, e := range engines {
		if e.Spec.NodeID == c.Node {
			c.queue.Add(e.Name)
		}
	}
	hosted, _ := c.DataPlane.Engines()
	c.Notify(hosted...)
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	e, err := c.Engines.GetRO(name)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return queue.Result{}, err
	case err != nil || e.Spec.NodeID != c.Node:
		c.attempts.forget(name)
		return queue.Result{}, c.evictUnlisted(ctx, name)
	case c.Engines.IsStale(e):
		return queue.Result{}, queue.ErrStale
	case e.DeletionTimestamp != nil && !types.HasFinalizer(e):
		return queue.Result{}, nil
	}
	in := Input{
		Engine: e, Observed: c.DataPlane.ObserveEngine(name), Manager: types.InstanceManagerName(c.Node),
		NewSession: uuid.NewString(), Owner: c.Node, Now: c.Clock.Now(),
	}
	in.RefusedAt = c.refusals.last(name, in.Observed)
	in.Attempt, in.LinePassed = c.attempts.look(e, in.Observed)
	if in.Observed.Phase == types.PhaseKept {
		if in.Awaited, err = c.awaited(ctx, e); err != nil {
			return queue.Result{}, err
		}
	}
	p := plan(in)
	return queue.Result{RequeueAfter: p.After}, c.apply(ctx, in, p)
}

// apply writes the status and acts only after the API server has accepted it. It writes with the version that the
// plan is based on. That is the compare-and-swap by which it raises a generation and records an epoch. It may repeat
// every action.
func (c *Controller) apply(ctx context.Context, in Input, p Plan) error {
	e, err := c.writeStatus(ctx, in.Engine, p.Status)
	if err != nil {
		return err
	}
	log := queue.Log(ctx).WithField(logfields.Generation, e.Status.Generation)
	if p.Refused != nil {
		log.WithError(p.Refused).Warn("Refusing to record the epoch that the engine proposes")
	}
	switch p.Action {
	case ActionStart:
		log.Info("starting the engine")
		return c.start(ctx, in, e)
	case ActionRecord:
		log.WithField(logfields.Epoch, *e.Status.Epoch).Info("recorded the epoch")
		if err := c.DataPlane.RecordEpoch(ctx, e.Name, e.Status.Session, *e.Status.Epoch, line.Rules(e.Status.Line)); err != nil {
			return fmt.Errorf("pass the recorded epoch to the engine: %w", err)
		}
	case ActionStop:
		return c.stop(ctx, e)
	case ActionAbort:
		return c.abort(ctx, e)
	case ActionEvict:
		return c.evict(ctx, e.Name, in.Observed.Session)
	case ActionAdd:
		return c.addReplica(ctx, e, p.Replica)
	case ActionRemove:
		return c.removeReplica(ctx, e, p.Replica)
	case ActionExpand:
		return c.expand(ctx, e)
	case ActionSnapshot:
		c.snapshot(ctx, e, p.Point)
	case ActionSetLine:
		return c.setLine(ctx, e)
	case ActionDropFinalizer:
		if err := engineteardown.DropFinalizer(ctx, c.Engines, e); !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// start starts the engine, or shows why the instance manager refused it.
func (c *Controller) start(ctx context.Context, in Input, e *longhorn.Engine) error {
	spec, err := c.spec(ctx, e)
	if in.Observed.Phase == types.PhaseKept {
		spec.Predecessor = in.Observed.Session
	}
	if err == nil {
		err = c.DataPlane.StartEngine(ctx, spec)
	}
	if refusal := (*types.Refusal)(nil); errors.As(err, &refusal) {
		_, err := c.writeStatus(ctx, e, planRefused(in, e.Status, refusal))
		return err
	}
	if err != nil {
		return fmt.Errorf("start engine: %w", err)
	}
	return nil
}

// spec is the specification of the engine's start. The replicas' UIDs come from the API server: the engine must not
// use a replica of an earlier volume of this name.
//
// A replica without an object counts as one that does not answer: the rules of a start decide whether the others are
// enough.
func (c *Controller) spec(ctx context.Context, e *longhorn.Engine) (Spec, error) {
	s := Spec{
		Name: e.Name, Volume: e.Spec.VolumeName, Session: e.Status.Session, Generation: e.Status.Generation,
		SizeBytes: int64(e.Spec.VolumeSize), Epoch: e.Status.Epoch, Line: line.Rules(e.Status.Line),
		BlockDevice: !e.Spec.DisableFrontend && e.Spec.Frontend == longhorn.FrontendBlockDevice,
	}
	var err error
	if s.Secret, err = c.VolumeKey(ctx, e.Spec.VolumeName); err != nil {
		return s, err
	}
	for _, name := range slices.Sorted(maps.Keys(e.Spec.ReplicaAddressMap)) {
		m, err := c.member(ctx, e, name)
		switch {
		case apierrors.IsNotFound(err):
			queue.Log(ctx).WithField(logfields.Replica, name).Warn("Starting the engine without a replica: its object does not exist")
			continue
		case err != nil:
			return s, err
		}
		s.Members = append(s.Members, m)
	}
	if len(s.Members) == 0 {
		return s, fmt.Errorf("engine %s cannot start: none of its replicas %v exists", e.Name, slices.Sorted(maps.Keys(e.Spec.ReplicaAddressMap)))
	}
	return s, nil
}

func (c *Controller) member(ctx context.Context, e *longhorn.Engine, name string) (Member, error) {
	r, err := c.Replicas.Live(ctx, name)
	if err != nil {
		return Member{}, fmt.Errorf("read replica %s: %w", name, err)
	}
	m := Member{Name: name, UID: string(r.UID), Address: e.Spec.ReplicaAddressMap[name]}
	m.TLS = c.Setting.Bool(settings.DataPathEncryption) && !isOfEarlierRelease(r, m.Address)
	return m, nil
}

// abort stops an engine that has failed, together with its device.
func (c *Controller) abort(ctx context.Context, e *longhorn.Engine) error {
	queue.Log(ctx).Info("stopping a failed engine")
	if err := c.DataPlane.StopEngine(ctx, e.Name, e.Status.Session, true); err != nil {
		return fmt.Errorf("stop the failed engine: %w", err)
	}
	return nil
}

// stopPatience bounds the wait for an engine's stop. The stop continues in the instance manager, but it may have to
// wait for epochs, and this controller records them.
const stopPatience = 2 * time.Second

func (c *Controller) stop(ctx context.Context, e *longhorn.Engine) error {
	queue.Log(ctx).Info("stopping the engine")
	waiting, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	err := c.DataPlane.StopEngine(waiting, e.Name, e.Status.Session, false)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		// The instance manager reports when it has stopped. If it runs again before that was reported, nothing changes.
		c.queue.AddAfter(e.Name, retryStop)
		return nil
	}
	if inUse := (*InUse)(nil); errors.As(err, &inUse) {
		c.refusals.note(e.Name, e.Status.Session, c.Clock.Now())
		c.queue.AddAfter(e.Name, retryStop)
		status := e.Status.DeepCopy()
		status.Conditions, _ = types.SetCondition(status.Conditions, longhorn.Condition{
			Type: types.ConditionDeviceInUse, Status: longhorn.ConditionTrue, Reason: types.ConditionDeviceInUse,
			Message: inUse.Message + "; the volume will be detached when nothing uses the device",
		}, c.Clock.Now())
		_, err = c.writeStatus(ctx, e, *status)
		return err
	}
	if err != nil {
		return fmt.Errorf("stop engine: %w", err)
	}
	return nil
}

// addReplica starts a rebuild, and then records the attempt. A rebuild that fails at once must not start again until
// the spec requests it again. A crash in between costs one more attempt.
func (c *Controller) addReplica(ctx context.Context, e *longhorn.Engine, name string) error {
	m, err := c.member(ctx, e, name)
	if err != nil {
		return datastore.Needed(err)
	}
	bandwidth := c.Setting.Int(settings.RebuildingBandwidthMiBps) << 20
	queue.Log(ctx).WithField(logfields.Replica, name).Info("rebuilding a replica")
	if err := c.DataPlane.AddReplica(ctx, e.Name, e.Status.Session, m, bandwidth); err != nil {
		return fmt.Errorf("add replica %s: %w", name, err)
	}
	status := e.Status.DeepCopy()
	noteRebuild(status, name, m.Address)
	_, err = c.writeStatus(ctx, e, *status)
	return err
}

// noteRebuild records that a replica's rebuild was started. Its mode changes in the same write: an attempted replica
// that is still in mode ERR would be read as a rebuild that has failed.
func noteRebuild(s *longhorn.EngineStatus, name, address string) {
	put(&s.CurrentReplicaAddressMap, name, address)
	put(&s.ReplicaModeMap, name, longhorn.ReplicaModeWO)
	put(&s.RebuildStatus, name, longhorn.RebuildStatus{IsRebuilding: true, State: "in_progress"})
}

func put[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}

// removeReplica removes a replica from the engine after a live read which shows that the spec does not list the
// replica: an old cache must not expel a replica that just became a member.
func (c *Controller) removeReplica(ctx context.Context, e *longhorn.Engine, name string) error {
	live, err := c.Engines.Live(ctx, e.Name)
	if err != nil {
		return fmt.Errorf("read the engine before removing a replica: %w", err)
	}
	_, asked := live.Spec.ReplicaAddressMap[name]
	if asked || live.UID != e.UID || live.Status.Session != e.Status.Session || engineteardown.MustStop(live) {
		return queue.ErrStale
	}
	queue.Log(ctx).WithField(logfields.Replica, name).Info("removing a replica from the engine")
	if err := c.DataPlane.RemoveReplica(ctx, e.Name, e.Status.Session, name); err != nil {
		return fmt.Errorf("remove replica %s: %w", name, err)
	}
	return nil
}

func (c *Controller) writeStatus(ctx context.Context, e *longhorn.Engine, status longhorn.EngineStatus) (*longhorn.Engine, error) {
	stored, isWritten, err := datastore.WriteStatus(ctx, c.Engines, e, statusOf, status)
	if isWritten {
		c.tell(e, status)
	}
	return stored, err
}

func statusOf(e *longhorn.Engine) *longhorn.EngineStatus { return &e.Status }
