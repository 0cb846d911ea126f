package forcedeletion

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// again is the time between two checks of the pods of a node that is down. Changes of these pods cause no event here.
const again = 15 * time.Second

// NodeStore holds the nodes of the whole cluster.
type NodeStore interface {
	datastore.WatchedReader[*longhorn.Node]
	datastore.Lister[*longhorn.Node]
	datastore.LiveReader[*longhorn.Node]
}

// Workloads finds pods. *datastore.Workloads implements it.
type Workloads interface {
	// VolumeOf returns the volume behind a claim; "" if the volume is not ours.
	VolumeOf(namespace, claim string) (string, error)
	// Pods must be read from the API server; an empty namespace stands for all.
	Pods(ctx context.Context, namespace, node string) ([]corev1.Pod, error)
	// DeletePod must delete only the pod with that UID.
	DeletePod(ctx context.Context, namespace, name string, uid kubetypes.UID, graceSeconds int64) error
}

// Deps are the dependencies of a Controller; its caches must be filled before Run.
type Deps struct {
	queue.Env

	Nodes     NodeStore
	Volumes   datastore.Reader[*longhorn.Volume]
	Settings  queue.Events
	Setting   settings.Values
	Workloads Workloads
	// KubeNodes and Leases read from the API server.
	KubeNodes datastore.LiveReader[*corev1.Node]
	Leases    datastore.LiveReader[*coordinationv1.Lease]
	// Answers reports whether a running machine has one of the addresses (host:port).
	Answers func(ctx context.Context, addresses []string) bool
}

// Controller deletes pods of nodes that are down. Create it with New, then call Run.
type Controller struct {
	deps  Deps
	queue *queue.Queue[string] // of nodes' names
	// beats is by node, while the node is down. Only sync uses it, and one sync runs at a time.
	beats map[string]beat
}

// New registers the controller's handlers. Nothing else happens before Run.
func New(deps Deps) (*Controller, error) {
	c := &Controller{deps: deps, beats: map[string]beat{}}
	c.queue = queue.New(queue.Options[string]{Name: "force-deletion", Env: deps.Env, Sync: c.sync})
	err := c.queue.Watch(
		queue.Watch{Events: deps.Nodes, Handler: queue.Changes(c.queue, whenNode)},
		queue.Watch{Events: deps.Settings, Handler: queue.Handler(c.queue, c.whenSetting)},
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// whenNode returns a node that is new, or has become ready or not ready. It ignores all other changes: nodes change all
// the time, above all in the free space of their disks.
func whenNode(was, is *longhorn.Node) []string {
	if is == nil || was != nil && types.IsNodeNotReady(was) == types.IsNodeNotReady(is) {
		return nil
	}
	return []string{is.Name}
}

// whenSetting returns the nodes for which the policy matters.
func (c *Controller) whenSetting(s *longhorn.Setting) []string {
	if s.Name != string(settings.NodeDownPodDeletionPolicy) {
		return nil
	}
	nodes, err := c.deps.Nodes.List(labels.Everything())
	if err != nil {
		c.deps.Log.WithError(err).Error("Cannot list the nodes after a change of the setting")
		return nil
	}
	var down []string
	for _, n := range nodes {
		if types.IsNodeNotReady(n) {
			down = append(down, n.Name)
		}
	}
	return down
}

func (c *Controller) sync(ctx context.Context, node string) (queue.Result, error) {
	n, err := c.deps.Nodes.GetRO(node)
	if err != nil && !apierrors.IsNotFound(err) {
		return queue.Result{}, err
	}
	policy := types.PodDeletionPolicy(c.deps.Setting.Text(settings.NodeDownPodDeletionPolicy))
	if err != nil || !types.IsNodeNotReady(n) || policy == types.PodDeletionNone {
		delete(c.beats, node)
		return queue.Result{}, nil
	}
	pods, shares, after, err := c.candidates(ctx, n, policy)
	if err != nil || len(pods) == 0 {
		return queue.Result{RequeueAfter: after}, err
	}
	for i := range pods {
		down, left, err := c.isDownNow(ctx, node, shares) // before each deletion: the node may come back in between
		if err != nil {
			return queue.Result{}, err
		}
		if !down {
			return queue.Result{RequeueAfter: left}, nil
		}
		if err := c.remove(ctx, node, &pods[i]); err != nil {
			return queue.Result{}, err
		}
	}
	return queue.Result{RequeueAfter: after}, nil
}

// user is a pod that may be deleted, and our volumes that it uses.
type user struct {
	corev1.Pod
	volumes []string
}

// candidates returns the pods of a node that may be deleted if the node is down, by namespace and name. after is the
// time until the next check. shares are the share managers' pods on the node, which answer if the node lives.
func (c *Controller) candidates(
	ctx context.Context, n *longhorn.Node, policy types.PodDeletionPolicy,
) (users []user, shares []*corev1.Pod, after time.Duration, err error) {
	pods, err := c.deps.Workloads.Pods(ctx, metav1.NamespaceAll, n.Name)
	if err != nil {
		return nil, nil, 0, err
	}
	after = again
	for _, pod := range pods {
		if pod.Namespace == n.Namespace && types.IsSharePod(&pod) {
			shares = append(shares, &pod)
		}
		may, left := mayDelete(&pod, policy, c.deps.Clock.Now())
		if left > 0 {
			after = min(after, left)
		}
		if !may || pod.Spec.NodeName != n.Name {
			continue
		}
		volumes, err := c.volumesOf(&pod)
		if err != nil {
			return nil, nil, 0, err
		}
		if len(volumes) > 0 {
			users = append(users, user{pod, volumes})
		}
	}
	return users, shares, after, nil
}

// volumesOf returns our volumes that a pod uses.
func (c *Controller) volumesOf(pod *corev1.Pod) ([]string, error) {
	var volumes []string
	for i := range pod.Spec.Volumes {
		claim := types.ClaimName(pod, &pod.Spec.Volumes[i])
		if claim == "" {
			continue
		}
		volume, err := c.deps.Workloads.VolumeOf(pod.Namespace, claim)
		if err != nil {
			return nil, err
		}
		if volume != "" && !slices.Contains(volumes, volume) {
			volumes = append(volumes, volume)
		}
	}
	return volumes, nil
}

// isDownNow asks all witnesses. after is the time until the next questions if the node may live.
func (c *Controller) isDownNow(ctx context.Context, node string, shares []*corev1.Pod) (down bool, after time.Duration, err error) {
	w := Witnesses{}
	if w.Node, err = c.deps.Nodes.Live(ctx, node); err != nil && !apierrors.IsNotFound(err) {
		return false, 0, fmt.Errorf("read node %s: %w", node, err)
	}
	if err != nil {
		return false, again, nil
	}
	w.KubeNode, err = c.deps.KubeNodes.Live(ctx, node)
	if apierrors.IsNotFound(err) {
		return false, again, nil
	}
	if err != nil {
		return false, 0, fmt.Errorf("read Kubernetes node %s: %w", node, err)
	}
	lease, err := c.deps.Leases.Live(ctx, types.NodeLeaseName(node))
	if apierrors.IsNotFound(err) {
		lease, err = nil, nil
	}
	if err != nil {
		return false, 0, fmt.Errorf("read the lease of node %s: %w", node, err)
	}
	after = again
	next, late, left := c.beats[node].late(lease, c.deps.Clock.Now())
	c.beats[node], w.LeaseLate = next, late
	if left > 0 {
		after = left
	}
	addresses := types.LifeAddresses(w.KubeNode, shares, nil)
	// The controller cannot ask a node that has no address, so the node may live.
	w.Answers = len(types.KubeletAddresses(w.KubeNode)) == 0 || c.deps.Answers(ctx, addresses)
	return isDown(w), after, nil
}

// remove deletes one pod. It may be repeated: it changes nothing if the pod is gone, or if another pod has its name.
func (c *Controller) remove(ctx context.Context, node string, u *user) error {
	err := c.deps.Workloads.DeletePod(ctx, u.Namespace, u.Name, u.UID, 0)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return err
	}
	queue.Log(ctx).WithField(logfields.Node, node).WithField("pod", u.Namespace+"/"+u.Name).WithField("volumes", u.volumes).
		Warn("Deleted a pod by force: its node is down")
	why := fmt.Sprintf("node %s is down, the pod has not stopped within its grace period, and setting %s includes pods of this kind", node, settings.NodeDownPodDeletionPolicy)
	owner := metav1.GetControllerOf(&u.Pod)
	c.deps.Recorder.Eventf(&corev1.ObjectReference{
		APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: u.Namespace, Name: owner.Name, UID: owner.UID,
	}, corev1.EventTypeWarning, types.EventPodForceDeleted, "deleted pod %s by force: %s", u.Name, why)
	for _, name := range u.volumes {
		if v, err := c.deps.Volumes.GetRO(name); err == nil { // otherwise there is no object for the Event
			c.deps.Recorder.Eventf(v, corev1.EventTypeWarning, types.EventPodForceDeleted, "deleted pod %s/%s by force: %s", u.Namespace, u.Name, why)
		}
	}
	return nil
}
