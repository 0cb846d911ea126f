package node

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// scanInterval is how often disks are looked at without being asked to: mounts come
// and go, and space fills, without an event. Nothing is written when nothing changed.
const scanInterval = 30 * time.Second

// Events is the side of a store that tells of changes.
type Events interface {
	AddHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
}

// NodeStore holds the Node object of this node.
type NodeStore interface {
	Events
	Get(name string) (*longhorn.Node, error)
	Live(ctx context.Context, name string) (*longhorn.Node, error)
	Create(ctx context.Context, obj *longhorn.Node) (*longhorn.Node, error)
	UpdateStatus(ctx context.Context, obj *longhorn.Node) (*longhorn.Node, error)
	IsStale(obj *longhorn.Node) bool
}

// KubeNodeStore holds the Kubernetes node.
type KubeNodeStore interface {
	Events
	GetRO(name string) (*corev1.Node, error)
}

// ReplicaStore holds the replicas of this node.
type ReplicaStore interface {
	Events
	ByIndex(index, value string) ([]*longhorn.Replica, error)
}

// Deps are what a Controller works with.
type Deps struct {
	Node      string // this node's name
	Namespace string

	Nodes     NodeStore
	KubeNodes KubeNodeStore
	Replicas  ReplicaStore
	Settings  Events
	Setting   func(types.SettingName) string // a setting's value as it stands, or ""
	Disks     Disks

	Clock    clock.WithTicker
	Recorder record.EventRecorder
	Log      *logrus.Entry
	Metrics  *queue.Metrics
}

// Controller registers this node and keeps its disks' status. It runs in every
// daemon, for the daemon's own node alone.
type Controller struct {
	deps  Deps
	queue *queue.Queue[string] // of one key, the node's name
}

// New makes a Controller; it works when Run is called.
func New(deps Deps) (*Controller, error) {
	c := &Controller{deps: deps}
	c.queue = queue.New(queue.Options[string]{
		Name: "node", Clock: deps.Clock, Log: deps.Log, Metrics: deps.Metrics, Sync: c.sync,
	})
	handlers := []struct {
		events  Events
		handler cache.ResourceEventHandler
	}{
		{deps.Nodes, queue.Handler(c.queue, c.ifOwn)},
		{deps.KubeNodes, queue.Handler(c.queue, c.ifOwnKubeNode)},
		{deps.Replicas, queue.Handler(c.queue, func(*longhorn.Replica) []string { return []string{deps.Node} })},
		{deps.Settings, queue.Handler(c.queue, func(*longhorn.Setting) []string { return []string{deps.Node} })},
	}
	for _, h := range handlers {
		if _, err := h.events.AddHandler(h.handler); err != nil {
			return nil, fmt.Errorf("node controller: %w", err)
		}
	}
	c.queue.Add(deps.Node) // there may be no object yet to send an event
	return c, nil
}

// Run works until ctx ends. The caches must be filled.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

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
	in, err := c.gather(node)
	if err != nil {
		return queue.Result{}, err
	}
	p := plan(in, c.deps.Clock.Now())
	if len(p.CreateConfigs) > 0 {
		// The UUID becomes ours by being written to the disk; losing the process here
		// leaves a file that the next scan accepts like any other.
		in.Records = c.createConfigs(node, p.CreateConfigs, in.Records, log)
		p = plan(in, c.deps.Clock.Now())
	}
	return queue.Result{RequeueAfter: scanInterval}, c.apply(ctx, node, p)
}

func (c *Controller) gather(node *longhorn.Node) (Input, error) {
	kubeNode, err := c.deps.KubeNodes.GetRO(node.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return Input{}, err
	}
	replicas, err := c.deps.Replicas.ByIndex(datastore.IndexNode, node.Name)
	if err != nil {
		return Input{}, err
	}
	return Input{
		Node:     node,
		KubeNode: kubeNode,
		Records:  c.scan(node),
		Replicas: replicas,
		Settings: scheduler.SettingsOf(c.deps.Setting, ""),
	}, nil
}

// apply writes the status if it changed, then tells what flipped.
func (c *Controller) apply(ctx context.Context, node *longhorn.Node, p Plan) error {
	if equality.Semantic.DeepEqual(node.Status, p.Status) {
		return nil
	}
	node.Status = p.Status
	if _, err := c.deps.Nodes.UpdateStatus(ctx, node); err != nil {
		return err
	}
	recordFlips(c.deps.Recorder, node, p.Flipped)
	return nil
}

// recordFlips sends an Event per condition, with the condition's type as the reason.
func recordFlips(recorder record.EventRecorder, node *longhorn.Node, flipped []longhorn.Condition) {
	for _, c := range flipped {
		eventType := corev1.EventTypeWarning
		if c.Status == longhorn.ConditionTrue {
			eventType = corev1.EventTypeNormal
		}
		recorder.Event(node, eventType, c.Type, c.Message)
	}
}
