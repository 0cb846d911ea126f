package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// MonitoredNodes holds the Node objects of the whole cluster.
type MonitoredNodes interface {
	datastore.WatchedLister[*longhorn.Node]
	datastore.Getter[*longhorn.Node]
	datastore.StatusWriter[*longhorn.Node]
}

// MonitoredKubeNodes holds all Kubernetes nodes.
type MonitoredKubeNodes interface {
	datastore.WatchedReader[*corev1.Node]
	datastore.LiveReader[*corev1.Node]
}

// Liveness says which nodes that serve shares are down. *liveness.Detector implements it.
type Liveness interface {
	// Silence is the verdict on a node; nil: the node is not known to be down. Until isKnown is true, the verdict of an
	// earlier leader is valid.
	Silence(node string) (s *longhorn.NodeSilence, isKnown bool)
	// OnChange registers f, which is called with each node when its verdict changes.
	OnChange(f func(node string))
}

// MonitorDeps are the dependencies of a Monitor; the stores are of the whole cluster.
type MonitorDeps struct {
	queue.Env

	Nodes     MonitoredNodes
	KubeNodes MonitoredKubeNodes
	Pods      datastore.WatchedIndexer[*corev1.Pod] // at least the daemon's pods
	// Engines and Replicas show why a node must not be deleted; nil: the condition Removable is not written.
	Engines  datastore.Lister[*longhorn.Engine]
	Replicas datastore.Lister[*longhorn.Replica]
	Liveness Liveness
	// Answers reports whether any of these addresses (host:port) answers. A refusal counts as an answer.
	Answers func(ctx context.Context, addresses []string) bool
}

// Monitor maintains the conditions Ready, Removable and NFSClientIDUnique of every node, and the conditions of the
// disks of a node that is away. It runs in the leader.
type Monitor struct {
	deps  MonitorDeps
	queue *queue.Queue[string] // of nodes' names
}

// NewMonitor creates a Monitor. It does nothing before Run is called.
func NewMonitor(deps MonitorDeps) (*Monitor, error) {
	m := &Monitor{deps: deps}
	// A node that does not answer occupies a worker for a second.
	m.queue = queue.New(queue.Options[string]{Name: "node-monitor", Env: deps.Env, Workers: 4, Sync: m.sync})
	deps.Liveness.OnChange(m.queue.Add)
	err := m.queue.Watch(
		queue.Watch{Events: deps.Nodes, Handler: queue.Handler(m.queue, queue.Name[*longhorn.Node])},
		queue.Watch{Events: deps.Nodes, Handler: queue.Changes(m.queue, m.sharersOfClientID)},
		queue.Watch{Events: deps.KubeNodes, Handler: queue.Handler(m.queue, queue.Name[*corev1.Node])},
		queue.Watch{Events: deps.Pods, Handler: queue.Handler(m.queue, nodeOfDaemon)},
	)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Run works until ctx is done. The caches must be filled.
func (m *Monitor) Run(ctx context.Context) error { return m.queue.Run(ctx) }

// nodeOfDaemon is the node of one of the daemon's pods. For other pods it returns nothing.
func nodeOfDaemon(pod *corev1.Pod) []string {
	if pod.Labels[types.LabelApp] != types.AppManager || pod.Spec.NodeName == "" {
		return nil
	}
	return []string{pod.Spec.NodeName}
}

func (m *Monitor) sync(ctx context.Context, name string) (queue.Result, error) {
	node, err := m.deps.Nodes.Get(name)
	if err != nil {
		return queue.Result{}, queue.Gone(err) // not registered, nothing to report
	}
	if node.DeletionTimestamp != nil {
		return queue.Result{}, nil
	}
	if m.deps.Nodes.IsStale(node) {
		return queue.Result{}, queue.ErrStale
	}
	in, err := m.gather(ctx, name)
	if err != nil {
		return queue.Result{}, err
	}
	in.Silent, in.Silence = m.silence(node)
	var ask time.Duration
	in.Serves, ask = m.serves(ctx, in)
	now := m.deps.Clock.Now()
	condition, again := readiness(in, now)
	result := queue.Result{RequeueAfter: soonest(ask, again)}

	nodes, err := m.deps.Nodes.List(labels.Everything())
	if err != nil {
		return queue.Result{}, err
	}
	before := node.Status.DeepCopy()
	node.Status.Conditions, _ = types.SetCondition(before.Conditions, condition, now)
	node.Status.Conditions = clientIDUnique(node, nodes, now)
	node.Status.Silence = nil
	if condition.Reason == types.ReasonNodeNotAnswering || condition.Reason == types.ReasonKubernetesNodeNotReady {
		node.Status.Silence = in.Silence
	}
	flipped := types.FlippedConditions(before.Conditions, node.Status.Conditions)
	away, again := nodeAway(types.FindCondition(node.Status.Conditions, types.ConditionReady), now)
	result.RequeueAfter = soonest(result.RequeueAfter, again)
	if away {
		var disks []longhorn.Condition
		node.Status.DiskStatus, disks = markAway(name, before.DiskStatus, now)
		flipped = append(flipped, disks...)
	}
	if m.deps.Engines != nil && m.deps.Replicas != nil {
		removal, err := m.gatherRemoval(node, in.Shares)
		if err != nil {
			return queue.Result{}, err
		}
		node.Status.Conditions, again = removable(removal, now)
		result.RequeueAfter = soonest(result.RequeueAfter, again)
	}
	if equality.Semantic.DeepEqual(*before, node.Status) {
		return result, nil
	}
	if _, err := m.deps.Nodes.UpdateStatus(ctx, node); err != nil {
		return queue.Result{}, err
	}
	recordFlips(m.deps.Recorder, node, flipped)
	return result, nil
}

func (m *Monitor) gather(ctx context.Context, name string) (readyInput, error) {
	in := readyInput{Node: name}
	kubeNode, err := m.deps.KubeNodes.GetRO(name)
	if apierrors.IsNotFound(err) {
		// Other controllers act in place of a node that is gone, and cannot undo that. So check this live.
		kubeNode, err = m.deps.KubeNodes.Live(ctx, name)
	}
	switch {
	case apierrors.IsNotFound(err):
		kubeNode = nil
	case err != nil:
		return in, err
	}
	in.KubeNode = kubeNode

	pods, err := m.deps.Pods.ByIndex(datastore.IndexNode, name)
	if err != nil {
		return in, err
	}
	for _, pod := range pods {
		if len(nodeOfDaemon(pod)) > 0 {
			in.Daemons = append(in.Daemons, pod)
		}
		if types.IsSharePod(pod) {
			in.Shares = append(in.Shares, pod)
		}
	}
	return in, nil
}
