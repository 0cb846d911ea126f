package upgrade

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/repeat"
)

// EngineStore holds the engines of this node, and reads any.
type EngineStore interface {
	datastore.Indexer[*longhorn.Engine]
	datastore.LiveReader[*longhorn.Engine]
}

// LeaseStore holds the Lease of the node that has its turn.
type LeaseStore interface {
	datastore.LiveReader[*coordinationv1.Lease]
	datastore.Creator[*coordinationv1.Lease]
	datastore.Updater[*coordinationv1.Lease]
}

// DataPlane is this node's instance manager. Implementations must call Notify when Snapshot changes.
type DataPlane interface {
	// Process is the process's report about itself; false while it does not answer.
	Process() (Snapshot, bool)
	// Replace starts another process, with this daemon's program, in place of the one that serves. It returns nil when
	// the new one serves. If the old program serves again, it returns the reason. ErrBusy: nothing was started, because
	// a replacement that an earlier daemon started is still under way.
	Replace(ctx context.Context) error
}

// ErrBusy says that a replacement could not be started yet.
var ErrBusy = errors.New("another replacement is in progress")

// Deps are the dependencies of a Controller.
type Deps struct {
	queue.Env

	Node    string
	Version string // of this daemon, and so the requested one

	Engines          EngineStore
	Replicas         datastore.Indexer[*longhorn.Replica] // of this node
	Volumes          datastore.LiveReader[*longhorn.Volume]
	InstanceManagers datastore.LiveReader[*longhorn.InstanceManager] // of this node, the object of the Events
	Leases           LeaseStore
	DataPlane        DataPlane
}

// Controller replaces the data plane of its node when its version differs from the daemon's.
type Controller struct {
	deps Deps
	// queue has one key, the node. So the fields below need no lock.
	queue *queue.Queue[string]

	failures failures
	replaced time.Time // when this daemon last replaced the process
	// unseen is by volume: epochs in force at the replacement that list a replica here, see unnoticed.
	unseen map[string]longhorn.Epoch
	asked  bool // whether the Lease has been read; since then holds says whether this node has it
	holds  bool
	told   repeat.Filter // the last message about the reason for waiting
	// refusals stores the API server's reasons for refusing the Lease, under the node's name.
	refusals queue.Refusals[string]
}

const (
	// again is how soon to check states without events again, while a replacement is due.
	again = 10 * time.Second
	// replaceTimeout limits a replacement, including a return to the old program.
	replaceTimeout = 3 * time.Minute
	// settle is how long the Lease is at least held after a replacement. Engines elsewhere must first notice that their
	// replicas here were gone, and their daemons must record that.
	settle = 30 * time.Second
)

// New creates a Controller. It does nothing before Run is called.
func New(deps Deps) *Controller {
	c := &Controller{deps: deps}
	c.queue = queue.New(queue.Options[string]{Name: "upgrade", Env: deps.Env, Sync: c.sync})
	return c
}

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// Notify informs the controller that the data plane's answer changed.
func (c *Controller) Notify() { c.queue.Add(c.deps.Node) }

func (c *Controller) sync(ctx context.Context, _ string) (queue.Result, error) {
	s, ok := c.deps.DataPlane.Process()
	if !ok {
		return queue.Result{}, nil
	}
	switch now := c.deps.Clock.Now(); needs(s, c.deps.Version, c.failures, now) {
	case needPatience:
		r, err := c.giveBack(ctx)
		if r.RequeueAfter == 0 {
			r.RequeueAfter = c.failures.left(now)
		}
		return r, err
	case needNothing:
		return c.giveBack(ctx)
	}
	blockers, err := c.await(ctx)
	if err != nil {
		return queue.Result{}, err
	}
	if len(blockers) > 0 {
		c.tell(ctx, "the data plane stays at version "+s.Version+" for now: "+strings.Join(blockers, "; "))
		return queue.Result{RequeueAfter: again}, nil
	}
	return queue.Result{RequeueAfter: again}, c.replace(ctx, s)
}

// await takes the turn for this node if it can, and returns the obstacles. It reads the Lease before the volumes: all
// nodes except one wait for the Lease, and some of them have many volumes.
func (c *Controller) await(ctx context.Context) ([]string, error) {
	l, err := c.deps.Leases.Live(ctx, types.UpgradeLeaseName)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, err
	case err == nil && !isFree(l, c.deps.Node, c.deps.Clock.Now()):
		return []string{"another node is being upgraded"}, nil
	}
	if blockers, err := c.blockers(ctx); err != nil || len(blockers) > 0 {
		return blockers, err
	}
	return c.takeTurn(ctx)
}

func (c *Controller) replace(ctx context.Context, s Snapshot) error {
	log := queue.Log(ctx).WithField("from", s.Version).WithField("to", c.deps.Version)
	log.Info("Replacing the data plane's process")
	c.told.Note("")
	limited, cancel := context.WithTimeout(ctx, replaceTimeout)
	defer cancel()
	unseen, err := c.epochsElsewhere(ctx)
	if err != nil {
		return err
	}
	err = c.deps.DataPlane.Replace(limited)
	if errors.Is(err, ErrBusy) {
		log.Info("The data plane's process is already being replaced")
		return nil
	}
	if err != nil {
		c.failures = failures{count: c.failures.count + 1, last: c.deps.Clock.Now()}
		log.WithError(err).Warn("The data plane's process was not replaced")
		c.event(ctx, corev1.EventTypeWarning, types.EventUpgradeFailed, fmt.Sprintf("the data plane stays at version %s: the upgrade to version %s failed: %v", s.Version, c.deps.Version, err))
		return nil
	}
	c.failures, c.replaced, c.unseen = failures{}, c.deps.Clock.Now(), unseen
	c.event(ctx, corev1.EventTypeNormal, types.EventUpgraded, fmt.Sprintf("the data plane was upgraded to version %s from version %s; the new process has taken over the devices in use", c.deps.Version, s.Version))
	return nil
}

// blockers say why the process may not be replaced now.
func (c *Controller) blockers(ctx context.Context) ([]string, error) {
	engines, err := c.deps.Engines.ByIndex(datastore.IndexNode, c.deps.Node)
	if err != nil {
		return nil, err
	}
	replicas, err := c.deps.Replicas.ByIndex(datastore.IndexNode, c.deps.Node)
	if err != nil {
		return nil, err
	}
	copies := map[string][]string{}
	for _, e := range engines {
		copies[e.Spec.VolumeName] = nil
	}
	for _, r := range replicas {
		copies[r.Spec.VolumeName] = append(copies[r.Spec.VolumeName], r.Name)
	}
	var blockers []string
	for volume, names := range copies {
		why, err := c.blocker(ctx, volume, names)
		if err != nil {
			return nil, err
		}
		if why != "" {
			blockers = append(blockers, why)
		}
	}
	slices.Sort(blockers)
	return blockers, nil
}

func (c *Controller) blocker(ctx context.Context, volume string, copies []string) (string, error) {
	v, err := c.deps.Volumes.Live(ctx, volume)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	e, err := c.deps.Engines.Live(ctx, types.EngineName(volume))
	if err != nil && !apierrors.IsNotFound(err) {
		return "", err
	}
	if err != nil {
		e = nil
	}
	return use{Volume: v, Engine: e, Copies: copies}.blocker(c.deps.Node), nil
}

// tell records an Event with the reason why the upgrade waits, once.
func (c *Controller) tell(ctx context.Context, what string) {
	if !c.told.Note(what) {
		return
	}
	queue.Log(ctx).Info(what)
	c.event(ctx, corev1.EventTypeNormal, types.EventUpgradeWaits, what)
}

func (c *Controller) event(ctx context.Context, kind, reason, message string) {
	m, err := c.deps.InstanceManagers.Live(ctx, types.InstanceManagerName(c.deps.Node))
	if err != nil {
		queue.Log(ctx).WithError(err).Warn("Cannot record an Event")
		return
	}
	c.deps.Recorder.Event(m, kind, reason, message)
}
