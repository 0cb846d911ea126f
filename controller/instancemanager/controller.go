package instancemanager

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// ManagerStore holds the InstanceManager of this node.
type ManagerStore interface {
	datastore.WatchedGetter[*longhorn.InstanceManager]
	datastore.StaleIndexChecker
	datastore.Creator[*longhorn.InstanceManager]
	datastore.Updater[*longhorn.InstanceManager]
	datastore.StatusWriter[*longhorn.InstanceManager]
}

// PodStore holds at least this node's instance manager pod.
type PodStore interface {
	datastore.WatchedReader[*corev1.Pod]
	datastore.StaleIndexChecker
	datastore.Creator[*corev1.Pod]
	datastore.Deleter
}

// DataPlane is the part of this node's instance manager that this controller needs. Implementations must call Notify
// when its answer changes.
type DataPlane interface {
	// Snapshot is the last state that the process reported; false while it does not answer.
	Snapshot() (Snapshot, bool)
}

// PodOptions are options of new pods.
type PodOptions struct {
	// Image is the requested image of the data plane.
	Image string
	// ServiceAccount may be empty: the namespace's default. Its token is not mounted.
	ServiceAccount string
	PullSecrets    []corev1.LocalObjectReference
	// Devices is the kind of new block devices, as the data plane's program names it; empty: its default.
	Devices string
}

// Deps are the dependencies of a Controller.
type Deps struct {
	queue.Env

	Node string // this node's name
	Pod  PodOptions

	Nodes            datastore.WatchedReader[*longhorn.Node] // of this node: without one there is no instance manager
	InstanceManagers ManagerStore
	Pods             PodStore
	Engines          datastore.WatchedIndexer[*longhorn.Engine]  // of this node
	Replicas         datastore.WatchedIndexer[*longhorn.Replica] // of this node
	DataPlane        DataPlane

	// Setting and KubeNodes determine the settings of new pods; Settings sends the events of changes.
	Setting   settings.Values
	Settings  queue.Events
	KubeNodes datastore.Reader[*corev1.Node] // of this node
}

// Controller keeps this node's data plane running. It runs in every daemon, only for the daemon's own node.
type Controller struct {
	deps  Deps
	name  string               // of the InstanceManager and of its pod
	queue *queue.Queue[string] // of one key, which is name
	// refused are values of settings with which a pod could not be created or could not run. Only sync uses it, and
	// one sync runs at a time.
	refused settings.PodSettings
	// refusals holds the API server's refusals of the pod or the InstanceManager, under name.
	refusals queue.Refusals[string]
}

// New creates a Controller. It works when Run is called.
func New(deps Deps) (*Controller, error) {
	c := &Controller{deps: deps, name: types.InstanceManagerName(deps.Node)}
	c.queue = queue.New(queue.Options[string]{Name: "instance-manager", Env: deps.Env, Sync: c.sync})
	own := queue.Handler(c.queue, func(o metav1.Object) []string {
		if o.GetName() == c.name {
			return []string{c.name}
		}
		return nil
	})
	always := queue.Handler(c.queue, func(metav1.Object) []string { return []string{c.name} })
	err := c.queue.Watch(
		queue.Watch{Events: deps.Nodes, Handler: always},
		queue.Watch{Events: deps.InstanceManagers, Handler: own},
		queue.Watch{Events: deps.Pods, Handler: own},
		queue.Watch{Events: deps.Engines, Handler: always},
		queue.Watch{Events: deps.Replicas, Handler: always},
		queue.Watch{Events: deps.Settings, Handler: queue.Handler(c.queue, func(s *longhorn.Setting) []string {
			if !settings.IsPodSetting(settings.Name(s.Name)) {
				return nil
			}
			return []string{c.name}
		})},
	)
	if err != nil {
		return nil, err
	}
	c.queue.Add(c.name)
	return c, nil
}

// Run works until ctx is done. The caches must be filled.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// Notify notifies the controller that the data plane's answer changed.
func (c *Controller) Notify() { c.queue.Add(c.name) }

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	node, err := c.deps.Nodes.GetRO(c.deps.Node)
	if err != nil {
		return queue.Result{}, queue.Gone(err) // not registered yet; its event causes another sync
	}
	if node.DeletionTimestamp != nil {
		return queue.Result{}, nil
	}
	// The cache may not show this controller's last creations and deletions yet. The controller must not repeat them.
	if c.deps.InstanceManagers.IsStaleIn(datastore.IndexNode, c.deps.Node) ||
		c.deps.Pods.IsStaleIn(datastore.IndexNode, c.deps.Node) {
		return queue.Result{}, queue.ErrStale
	}
	manager, err := c.deps.InstanceManagers.Get(name)
	if apierrors.IsNotFound(err) {
		return queue.Result{}, c.createManager(ctx, node)
	}
	if err != nil {
		return queue.Result{}, err
	}
	if manager.DeletionTimestamp != nil {
		return queue.Result{}, nil
	}
	if manager.Spec.Image != c.deps.Pod.Image || len(manager.OwnerReferences) > 0 {
		manager.Spec.Image = c.deps.Pod.Image
		manager.OwnerReferences = nil // of an earlier version
		_, err := c.deps.InstanceManagers.Update(ctx, manager)
		return queue.Result{}, err
	}
	in, err := c.gather(node, manager)
	if err != nil {
		return queue.Result{}, err
	}
	p := plan(in, c.deps.Clock.Now())
	return queue.Result{RequeueAfter: p.After}, c.apply(ctx, in, p)
}

func (c *Controller) gather(node *longhorn.Node, manager *longhorn.InstanceManager) (Input, error) {
	in := Input{Node: c.deps.Node, Manager: manager, Image: c.deps.Pod.Image, Refused: c.refusals.Words(c.name)}
	var err error
	if in.Settings, in.Allocatable, err = c.settings(node.Spec.InstanceManagerCPURequest); err != nil {
		return in, err
	}
	pod, err := c.deps.Pods.GetRO(c.name)
	switch {
	case err == nil:
		in.Pod = pod
	case !apierrors.IsNotFound(err):
		return in, err
	}
	if s, ok := c.deps.DataPlane.Snapshot(); ok {
		in.Process = &s
	}
	in.Needed, err = c.isNeeded()
	return in, err
}

// settings returns the settings in force, with the node's own CPU request, in thousandths, and without values that
// were refused before: a data plane without a guarantee is better than none. It also returns the allocatable
// resources of the node. While they are not known, no CPU can be guaranteed.
func (c *Controller) settings(cpuOfNode int) (s settings.PodSettings, allocatable corev1.ResourceList, err error) {
	wanted := settings.PodSettingsOf(c.deps.Setting, settings.PriorityClass, settings.GuaranteedInstanceManagerCPU).WithCPU(cpuOfNode)
	s = wanted
	for name, value := range c.refused {
		if wanted[name] == value {
			s = s.Without(name)
		}
	}
	node, err := c.deps.KubeNodes.GetRO(c.deps.Node)
	if apierrors.IsNotFound(err) {
		return s.Without(settings.GuaranteedInstanceManagerCPU), nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return s, node.Status.Allocatable, nil
}

// refuse remembers that a setting's value cannot be applied, until the value changes or the daemon restarts.
func (c *Controller) refuse(name settings.Name, value string) {
	if c.refused == nil {
		c.refused = settings.PodSettings{}
	}
	c.refused[name] = value
}

// isNeeded reports whether an engine or replica of this node runs or must run.
func (c *Controller) isNeeded() (bool, error) {
	engines, err := c.deps.Engines.ByIndex(datastore.IndexNode, c.deps.Node)
	if err != nil {
		return false, err
	}
	for _, e := range engines {
		if runs(e.Spec.DesireState, e.Status.CurrentState) {
			return true, nil
		}
	}
	replicas, err := c.deps.Replicas.ByIndex(datastore.IndexNode, c.deps.Node)
	if err != nil {
		return false, err
	}
	for _, r := range replicas {
		if runs(r.Spec.DesireState, r.Status.CurrentState) {
			return true, nil
		}
	}
	return false, nil
}

func runs(wanted longhorn.DesireState, current longhorn.InstanceState) bool {
	switch current {
	case longhorn.InstanceStateRunning, longhorn.InstanceStateStarting, longhorn.InstanceStateStopping:
		return true
	}
	return wanted == longhorn.DesireStateRunning
}
