package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// scanInterval is how often the controller examines the disks without an event: mounts change and space fills without
// events. It writes nothing when nothing changed.
const scanInterval = 30 * time.Second

// NodeStore holds the Node object of this node.
type NodeStore interface {
	datastore.WatchedGetter[*longhorn.Node]
	datastore.LiveReader[*longhorn.Node]
	datastore.Creator[*longhorn.Node]
	datastore.Updater[*longhorn.Node]
	datastore.StatusWriter[*longhorn.Node]
}

// Deps are the dependencies of a Controller.
type Deps struct {
	queue.Env

	Node      string // this node's name
	Namespace string

	Nodes     NodeStore
	KubeNodes datastore.WatchedReader[*corev1.Node]       // of this node
	Replicas  datastore.WatchedIndexer[*longhorn.Replica] // of this node
	Settings  datastore.WatchedReader[*longhorn.Setting]
	Setting   settings.Values
	Disks     Disks
	Claims    ClaimStore

	// DefaultSettings reads the ConfigMap of settings before the node is registered. nil: there is no reader.
	DefaultSettings datastore.LiveReader[*corev1.ConfigMap]
	// WatchMounts calls changed after every change of the mounts that the daemon sees, until ctx is done, in the same
	// way as mountwatch.Watch. nil: only the clock starts scans.
	WatchMounts func(ctx context.Context, changed func()) error
	// Environment reads the node's mounts and kernel. nil: these are not read.
	Environment func() Environment
	// NFSClient requests an identifier for the node's NFS client, and returns the identifier in force; "": not known.
	// nil: the controller requests none.
	NFSClient func(wanted string) (string, error)
	// DataPlane is the state that the node's instance manager reports. nil: the controller does not ask.
	DataPlane func() DataPlane
}

// Controller registers this node and maintains its disks' status. It runs in every daemon, and handles only the
// daemon's own node.
type Controller struct {
	deps    Deps
	queue   *queue.Queue[string] // of one key, the node's name
	scanner *scanner
	claims  map[string]settled // by disk name; only sync uses it, and one sync runs at a time
	// Only sync uses lastDefault, like claims.
	lastDefault defaultAttempt
	// refusals stores the API server's reasons for refusing this node's object, under the node's name.
	refusals queue.Refusals[string]

	mu    sync.Mutex
	heard DataPlane // guarded by mu; its last report
}

// New creates a Controller. It does nothing before Run is called.
func New(deps Deps) (*Controller, error) {
	c := &Controller{deps: deps, claims: map[string]settled{}}
	c.scanner = newScanner(deps.Disks.Scan, deps.Clock, func() { c.queue.Add(deps.Node) })
	c.deps.Disks = patientDisks{
		Disks: deps.Disks, scanner: c.scanner,
		writes: &writes{clock: deps.Clock, late: c.scanner.late, paths: map[string]bool{}},
	}
	c.queue = queue.New(queue.Options[string]{Name: "node", Env: deps.Env, Sync: c.sync})
	err := c.queue.Watch(
		queue.Watch{Events: deps.Nodes, Handler: queue.Handler(c.queue, c.ifOwn)},
		queue.Watch{Events: deps.KubeNodes, Handler: queue.Handler(c.queue, c.ifOwnKubeNode)},
		queue.Watch{Events: deps.Replicas, Handler: whenReplica(func(d time.Duration) { c.queue.AddAfter(deps.Node, d) })},
		queue.Watch{Events: deps.Settings, Handler: queue.Handler(c.queue, func(*longhorn.Setting) []string { return []string{deps.Node} })},
	)
	if err != nil {
		return nil, err
	}
	c.queue.Add(deps.Node) // the object may not exist yet, so no event comes
	return c, nil
}

// NotifyDataPlane tells the controller that the instance manager's state changed.
func (c *Controller) NotifyDataPlane() {
	if c.hearsNews() {
		c.queue.Add(c.deps.Node)
	}
}

// hearsNews reports whether the report of the instance manager has changed. Most changes of its state concern neither
// its disks nor the node.
func (c *Controller) hearsNews() bool {
	now := c.deps.DataPlane()
	c.mu.Lock()
	defer c.mu.Unlock()
	same := now.equal(c.heard)
	c.heard = now
	return !same
}

func (c *Controller) ifOwn(n *longhorn.Node) []string {
	if n.Name == c.deps.Node {
		return []string{n.Name}
	}
	return nil
}

func (c *Controller) ifOwnKubeNode(n *corev1.Node) []string {
	if n.Name == c.deps.Node {
		return []string{n.Name}
	}
	return nil
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	log := queue.Log(ctx)
	node, err := c.deps.Nodes.Get(name)
	if apierrors.IsNotFound(err) {
		if _, err := c.deps.KubeNodes.GetRO(name); err != nil {
			return queue.Result{}, queue.Gone(err) // removed from the cluster; its event triggers another sync
		}
		return queue.Result{RequeueAfter: scanInterval}, c.register(ctx, log)
	}
	if err != nil {
		return queue.Result{}, err
	}
	if node.DeletionTimestamp != nil {
		return queue.Result{}, nil
	}
	if c.deps.Nodes.IsStale(node) {
		return queue.Result{}, queue.ErrStale
	}
	given, err := c.setDefaults(ctx, node, log)
	if err != nil || given.written {
		return queue.Result{RequeueAfter: scanInterval}, err
	}
	in, err := c.gather(node, log)
	if err != nil {
		return queue.Result{}, err
	}
	found := c.scan(node)
	in.Records = found.Records
	if names := plan(in, c.deps.Clock.Now()).CreateConfigs; len(names) > 0 {
		// The UUID file makes the disk ours. If the process dies here, the next scan accepts the file like any other.
		found = c.createConfigs(node, names, in.Records, log)
		in.Records = found.Records
	}
	claimErr := c.claimDisks(ctx, &in, found.Late, log)
	if isOvertaken(claimErr) {
		return queue.Result{}, claimErr
	}
	p := plan(in, c.deps.Clock.Now())
	news := c.recordDefaults(given, &p.Status)
	if err := c.apply(ctx, node, p); err != nil {
		return queue.Result{}, err
	}
	c.tellDefaults(given, node, news)
	return queue.Result{RequeueAfter: soonest(given.again, found.Again)}, claimErr
}

// isOvertaken reports whether another writer was faster, so that everything must be read again.
func isOvertaken(err error) bool {
	return errors.Is(err, queue.ErrStale) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// soonest is the least of the positive values.
func soonest(times ...time.Duration) time.Duration {
	var least time.Duration
	for _, t := range times {
		if t > 0 && (least == 0 || t < least) {
			least = t
		}
	}
	return least
}

func (c *Controller) gather(node *longhorn.Node, log *logrus.Entry) (Input, error) {
	kubeNode, err := c.deps.KubeNodes.GetRO(node.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return Input{}, err
	}
	replicas, err := c.deps.Replicas.ByIndex(datastore.IndexNode, node.Name)
	if err != nil {
		return Input{}, err
	}
	in := Input{
		Node:     node,
		KubeNode: kubeNode,
		Replicas: replicas,
		Settings: scheduler.SettingsOf(c.deps.Setting, &longhorn.VolumeSpec{}),

		CordonedTakesCopies: c.deps.Setting(settings.DisableSchedulingOnCordoned) == "false",
	}
	if c.deps.Environment != nil {
		e := c.deps.Environment()
		in.Environment = &e
	}
	if c.deps.NFSClient != nil {
		// The UID is unique: no later node with the same name has it, nor a renamed one.
		id, err := c.deps.NFSClient(string(node.UID))
		if err != nil {
			log.WithError(err).Debug("Could not determine the identifier of the node's NFS client")
		}
		in.NFSClientID = &id
	}
	if c.deps.DataPlane != nil {
		in.DataPlane = c.deps.DataPlane()
	}
	return in, nil
}

// apply writes the status if it changed, then records Events for the conditions that changed.
func (c *Controller) apply(ctx context.Context, node *longhorn.Node, p Plan) error {
	_, isWritten, err := datastore.WriteStatus(ctx, c.deps.Nodes, node, func(n *longhorn.Node) *longhorn.NodeStatus { return &n.Status }, p.Status)
	if isWritten {
		recordFlips(c.deps.Recorder, node, p.Flipped)
	}
	return err
}

// recordFlips sends an Event per condition.
func recordFlips(recorder record.EventRecorder, node *longhorn.Node, flipped []longhorn.Condition) {
	for _, c := range flipped {
		optional := c.Type == types.ConditionNFSClientInstalled || c.Type == types.ConditionKernelNBDClient
		if optional && c.Status != longhorn.ConditionTrue {
			// a node may lack it without a fault: only the condition says so
			continue
		}
		eventType := corev1.EventTypeWarning
		if c.Status == longhorn.ConditionTrue || c.Type == types.ConditionEmptied {
			eventType = corev1.EventTypeNormal
		}
		recorder.Event(node, eventType, types.EventReason(c), c.Message)
	}
}
