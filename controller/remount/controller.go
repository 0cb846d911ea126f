package remount

import (
	"context"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

const (
	// maxGraceSeconds is the greatest grace period of a pod, whatever the pod requests: its volume is dead.
	maxGraceSeconds = 30
	// eventRemount is the reason of the Events about remounting.
	eventRemount = "Remount"
)

// VolumeStore holds all volumes.
type VolumeStore interface {
	datastore.WatchedReader[*longhorn.Volume]
	datastore.Writer[*longhorn.Volume]
}

// Workloads finds pods. *datastore.Workloads implements it.
type Workloads interface {
	// Claims returns the bound PersistentVolumes of a volume.
	Claims(volume string) ([]*corev1.PersistentVolume, error)
	// Pods must be read from the API server.
	Pods(ctx context.Context, namespace, node string) ([]corev1.Pod, error)
	// AllPods must be read from the API server.
	AllPods(ctx context.Context, namespace string) ([]corev1.Pod, error)
	// DeletePod must delete only the pod with that UID.
	DeletePod(ctx context.Context, namespace, name string, uid kubetypes.UID, graceSeconds int64) error
}

// Deps are the dependencies of a Controller; its caches must be filled before Run.
type Deps struct {
	queue.Env

	Volumes   VolumeStore
	Shares    datastore.WatchedReader[*longhorn.ShareManager]
	Workloads Workloads
	Setting   settings.Values
}

// Controller restarts workloads. Create it with New, then call Run.
type Controller struct {
	deps  Deps
	queue *queue.Queue[string]
}

// New registers the controller's handlers. Nothing else happens before Run.
func New(deps Deps) (*Controller, error) {
	c := &Controller{deps: deps}
	c.queue = queue.New(queue.Options[string]{Name: "remount", Env: deps.Env, Sync: c.sync})
	err := c.queue.Watch(
		queue.Watch{Events: deps.Volumes, Handler: queue.Handler(c.queue, c.keysOf)},
		queue.Watch{Events: deps.Shares, Handler: queue.Handler(c.queue, c.keysOfShare)},
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// keysOf ignores the volumes without any request, which are nearly all.
func (c *Controller) keysOf(v *longhorn.Volume) []string {
	if v.Status.RemountRequestedAt == "" && v.Annotations[types.AnnotationRemountPodsOfNodes] == "" {
		return nil
	}
	return []string{v.Name}
}

func (c *Controller) keysOfShare(s *longhorn.ShareManager) []string {
	isOfNode := func(c longhorn.LostClient) bool { return c.RemountRequestedAt != "" }
	if s.Status.RemountRequestedAt == "" && !slices.ContainsFunc(s.Status.LostClients, isOfNode) {
		return nil
	}
	return []string{s.Name}
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	v, err := c.deps.Volumes.GetRO(name)
	if apierrors.IsNotFound(err) {
		return queue.Result{}, nil
	}
	if err != nil {
		return queue.Result{}, err
	}
	if c.deps.Volumes.IsStale(v) {
		return queue.Result{}, queue.ErrStale
	}
	share, err := c.deps.Shares.GetRO(name)
	if apierrors.IsNotFound(err) {
		share = nil
	} else if err != nil {
		return queue.Result{}, err
	}
	losses, after := lossesOf(v, share), time.Duration(0)
	for _, l := range losses {
		result, isWritten, err := c.handle(ctx, v, l, losses)
		if err != nil || isWritten { // the change of the volume triggers another sync
			return queue.Result{}, err
		}
		if result > 0 && (after == 0 || result < after) {
			after = result
		}
	}
	return queue.Result{RequeueAfter: after}, nil
}

// handle records the pods that a request concerns as soon as it sees the request. It restarts these pods once the
// volume is served. It returns when to sync again, and whether it wrote the volume.
func (c *Controller) handle(ctx context.Context, v *longhorn.Volume, l loss, all []loss) (after time.Duration, isWritten bool, err error) {
	r := recordOf(v, l.node)
	write := func(pods []kubetypes.UID) (time.Duration, bool, error) {
		u, err := recorded{l.request, pods}.annotated(v, l.node, all)
		if err == nil {
			_, err = c.deps.Volumes.Update(ctx, u)
		}
		return 0, true, err
	}
	switch {
	case !isAsking(v, l.request, l.written, c.deps.Clock.Now()), r.Request == l.request && len(r.Pods) == 0:
		return 0, false, nil
	case r.Request != l.request && isForgotten(v, l.request, c.deps.Clock.Now()):
		return write([]kubetypes.UID{})
	case r.Request != l.request:
		in, err := c.gather(ctx, v, l)
		if err != nil {
			return 0, false, err
		}
		return write(witnesses(in))
	}
	after, ok := due(v, l.request, l.written, c.deps.Clock.Now())
	if !ok {
		return after, false, nil
	}
	in, err := c.gather(ctx, v, l)
	if err != nil {
		return 0, false, err
	}
	in.Recorded = r.Pods
	if err := c.apply(ctx, v, plan(in)); err != nil {
		return 0, false, err
	}
	return write([]kubetypes.UID{})
}

func (c *Controller) gather(ctx context.Context, v *longhorn.Volume, l loss) (Input, error) {
	in := Input{Volume: v, Request: l.request, Node: l.node, Setting: c.deps.Setting}
	var err error
	if in.Claims, err = c.deps.Workloads.Claims(v.Name); err != nil {
		return in, err
	}
	read := map[string]bool{}
	for _, pv := range in.Claims {
		namespace := pv.Spec.ClaimRef.Namespace
		if read[namespace] {
			continue
		}
		read[namespace] = true
		pods, err := c.podsOf(ctx, v, namespace)
		if err != nil {
			return in, err
		}
		in.Pods = append(in.Pods, pods...)
	}
	return in, nil
}

// podsOf reads the pods of a namespace that may use a volume. For a shared volume these are the pods on any node.
func (c *Controller) podsOf(ctx context.Context, v *longhorn.Volume, namespace string) ([]corev1.Pod, error) {
	if types.IsShared(v) {
		return c.deps.Workloads.AllPods(ctx, namespace)
	}
	return c.deps.Workloads.Pods(ctx, namespace, v.Status.CurrentNodeID)
}

// grace is a pod's grace period in seconds: the period that the pod requests, within limits.
func grace(pod *corev1.Pod) int64 {
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		return min(*own, maxGraceSeconds)
	}
	return maxGraceSeconds
}

// apply deletes the pods. If it is interrupted, the next plan omits the pods that are gone or being deleted, so no pod
// is deleted twice. An Event follows each deletion.
func (c *Controller) apply(ctx context.Context, v *longhorn.Volume, p Plan) error {
	why := "the volume was attached again after the pod had mounted it"
	if types.IsShared(v) {
		why = "the pod may have had open files and locks on the shared volume, and they are lost"
	}
	for i := range p.Delete {
		pod := &p.Delete[i]
		err := c.deps.Workloads.DeletePod(ctx, pod.Namespace, pod.Name, pod.UID, grace(pod))
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue // gone, or another pod has its name already
		}
		if err != nil {
			return err
		}
		queue.Log(ctx).WithFields(logrus.Fields{logfields.Volume: v.Name, "pod": pod.Namespace + "/" + pod.Name}).
			Info("Deleted a pod so that its volume is mounted again")
		c.deps.Recorder.Eventf(v, corev1.EventTypeNormal, eventRemount,
			"deleted pod %s/%s: %s", pod.Namespace, pod.Name, why)
		c.deps.Recorder.Eventf(ownerOf(pod), corev1.EventTypeNormal, eventRemount,
			"deleted pod %s, which uses volume %s: %s", pod.Name, v.Name, why)
	}
	for i := range p.Keep {
		pod := &p.Keep[i].Pod
		c.deps.Recorder.Eventf(v, corev1.EventTypeWarning, eventRemount,
			"pod %s/%s must be restarted: %s. The manager does not delete the pod: %s", pod.Namespace, pod.Name, why, p.Keep[i].Why)
	}
	return nil
}

// ownerOf refers to the controller of a pod that has one.
func ownerOf(pod *corev1.Pod) *corev1.ObjectReference {
	owner := metav1.GetControllerOf(pod)
	return &corev1.ObjectReference{
		APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: pod.Namespace, Name: owner.Name, UID: owner.UID,
	}
}
