package sharemanager

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// ShareStore holds all ShareManagers.
type ShareStore interface {
	datastore.WatchedLister[*longhorn.ShareManager]
	datastore.Getter[*longhorn.ShareManager]
	datastore.StatusWriter[*longhorn.ShareManager]
}

// AttachmentStore holds all VolumeAttachments.
type AttachmentStore interface {
	datastore.WatchedGetter[*longhorn.VolumeAttachment]
	datastore.Writer[*longhorn.VolumeAttachment]
}

// PodStore holds at least the pods of share managers.
type PodStore interface {
	datastore.WatchedReader[*corev1.Pod]
	datastore.Lister[*corev1.Pod]
	datastore.Indexer[*corev1.Pod]
	// Live must show any pod.
	datastore.LiveReader[*corev1.Pod]
	datastore.Creator[*corev1.Pod]
	datastore.Deleter
	datastore.GraceDeleter
}

// ServiceStore holds the Services of share managers.
type ServiceStore interface {
	datastore.WatchedReader[*corev1.Service]
	// Live must show any Service.
	datastore.LiveReader[*corev1.Service]
	datastore.Creator[*corev1.Service]
}

// SliceStore holds the EndpointSlices that leaders write. Its cache may be empty: nothing waits until it is filled.
type SliceStore interface {
	datastore.WatchedReader[*discoveryv1.EndpointSlice]
	// Live must show any EndpointSlice.
	datastore.LiveReader[*discoveryv1.EndpointSlice]
	datastore.Creator[*discoveryv1.EndpointSlice]
	// Update must fail with a conflict if the stored version is not the version of s.
	datastore.Writer[*discoveryv1.EndpointSlice]
	datastore.Deleter
}

// ConfigMapStore holds the ConfigMap types.ShareClientsConfigMap, if it exists.
type ConfigMapStore interface {
	datastore.WatchedReader[*corev1.ConfigMap]
	datastore.Creator[*corev1.ConfigMap]
	datastore.Writer[*corev1.ConfigMap]
}

// Reader reads the objects of a kind, and reports changes.
type Reader[T any] interface {
	datastore.WatchedReader[T]
	datastore.Lister[T]
}

// ClassStore reads StorageClasses. Its cache may be empty: nothing waits until it is filled.
type ClassStore interface {
	datastore.Reader[*storagev1.StorageClass]
	datastore.LiveReader[*storagev1.StorageClass]
}

// Silences reports which shares answer none of the leader's questions. The leader asks them all the time.
type Silences interface {
	// SilentSince returns since when the share at this health address has not answered. Zero: it answers, or this is
	// not known.
	SilentSince(address string) time.Time
	// OnSilence registers f, which is called with the volume of a share that has been silent for a while. OnSilence is
	// called before Run. f returns at once.
	OnSilence(f func(volume string))
}

// Claims finds the bound PersistentVolumes of a volume.
type Claims interface {
	Claims(volume string) ([]*corev1.PersistentVolume, error)
}

// Deps are the dependencies of the controller; the stores are of the whole cluster.
type Deps struct {
	queue.Env

	Shares      ShareStore
	Volumes     Reader[*longhorn.Volume]
	Attachments AttachmentStore
	Nodes       Reader[*longhorn.Node]
	KubeNodes   Reader[*corev1.Node]
	Pods        PodStore
	Services    ServiceStore
	Slices      SliceStore
	ConfigMap   ConfigMapStore
	Engines     datastore.Indexer[*longhorn.Engine]
	Replicas    datastore.Indexer[*longhorn.Replica]
	Claims      Claims
	Classes     ClassStore
	// Ask asks a share's process at host:port whether it found the recovery data of the previous process. It must
	// return within a few seconds. An error means that nothing is known yet.
	Ask func(ctx context.Context, address string) (types.ShareRecovery, error)
	// Silences are the findings of the leader's questions. *liveness.Detector implements it.
	Silences Silences
	// Serving asks a share's process at host:port whether it serves. An error means that no answer came before ctx was
	// done.
	Serving func(ctx context.Context, address string) (bool, error)
	// Managers and Answers show whether the leader reaches pods on a node at all. Answers reports whether any of these
	// addresses (host:port) answers.
	Managers datastore.Indexer[*longhorn.InstanceManager]
	Answers  func(ctx context.Context, addresses []string) bool
	// Owner is the node of this daemon, for status.ownerID.
	Owner string
	// Setting returns the values of settings with which pods are created.
	Setting settings.Values
}

// Controller serves all shared volumes. Create it with New, then call Run.
type Controller struct {
	Deps
	queue *queue.Queue[string] // of volumes' names
	times podTimes
	// unmade stores why the API server refused pods.
	unmade unmade
	// refusals stores the API server's reasons for Services that it refuses, by the share's name.
	refusals queue.Refusals[string]
	asked    asked
	// sliceTrouble stores failures to write EndpointSlices.
	sliceTrouble *sliceTrouble
}

// New registers the controller's handlers. Nothing else happens before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{Deps: d, sliceTrouble: newSliceTrouble()}
	c.queue = queue.New(queue.Options[string]{Name: "share-manager", Env: d.Env, Workers: 4, Sync: c.sync})
	named := func(o metav1.Object) []string { return []string{o.GetName()} }
	labelled := queue.Handler(c.queue, func(o metav1.Object) []string {
		if volume := o.GetLabels()[types.LabelShareManager]; volume != "" {
			return []string{volume}
		}
		return nil
	})
	err := c.queue.Watch(
		queue.Watch{Events: d.Shares, Handler: queue.Handler(c.queue, named)},
		queue.Watch{Events: d.Volumes, Handler: queue.Handler(c.queue, named)},
		queue.Watch{Events: d.Attachments, Handler: queue.Handler(c.queue, named)},
		queue.Watch{Events: d.Pods, Handler: labelled},
		queue.Watch{Events: d.Services, Handler: labelled},
		queue.Watch{Events: d.Slices, Handler: labelled},
		queue.Watch{Events: d.Nodes, Handler: queue.Changes(c.queue, c.whenNode)},
		queue.Watch{Events: d.ConfigMap, Handler: queue.Changes(c.queue, c.whenClients)},
	)
	if err != nil {
		return nil, err
	}
	d.Silences.OnSilence(c.queue.Add)
	return c, nil
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// whenNode returns the shares that a change of a node concerns:
//
//   - the shares on that node
//   - the shares that had the node's client in a list
//   - the shares with a pod that has no node, if the node has become usable for the pod
//
// Most changes of nodes do not matter here: their free disk space changes all the time.
func (c *Controller) whenNode(was, is *longhorn.Node) []string {
	node := is
	if is == nil {
		node = was
	} else if was != nil && types.IsNodeDown(was) == types.IsNodeDown(is) && daemonAway(was).IsZero() == daemonAway(is).IsZero() {
		return nil
	}
	pods, err := c.Pods.ByIndex(datastore.IndexNode, node.Name)
	if err != nil {
		return nil
	}
	var volumes []string
	for _, p := range pods {
		if volume := p.Labels[types.LabelShareManager]; volume != "" {
			volumes = append(volumes, volume)
		}
	}
	volumes = append(volumes, c.sharesThat(func(s *longhorn.ShareManager) bool {
		return slices.ContainsFunc(s.Status.LostClients, func(c longhorn.LostClient) bool { return c.Node == node.Name })
	})...)
	if is == nil || !daemonAway(is).IsZero() {
		return volumes
	}
	return append(volumes, c.sharesThat(func(s *longhorn.ShareManager) bool {
		return s.Status.State == longhorn.ShareManagerStateStarting && s.Status.CurrentNode == ""
	})...)
}

// whenClients returns all shares when it changes whether clients are limited. The pods themselves read the list of
// clients.
func (c *Controller) whenClients(was, is *corev1.ConfigMap) []string {
	if was != nil && is != nil && openness(was.Data) == openness(is.Data) && was.Data[types.ShareClientsMessageKey] == is.Data[types.ShareClientsMessageKey] {
		return nil
	}
	return c.sharesThat(func(*longhorn.ShareManager) bool { return true })
}

func (c *Controller) sharesThat(are func(*longhorn.ShareManager) bool) (volumes []string) {
	shares, err := c.Shares.List(labels.Everything())
	if err != nil {
		return nil
	}
	for _, s := range shares {
		if are(s) {
			volumes = append(volumes, s.Name)
		}
	}
	return volumes
}

// Sync syncs one volume, as the queue does. It exists for tests of several controllers together.
func (c *Controller) Sync(ctx context.Context, name string) (queue.Result, error) {
	return c.sync(ctx, name)
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	share, err := c.Shares.Get(name)
	if apierrors.IsNotFound(err) {
		return c.letGo(ctx, name)
	}
	if err != nil {
		return queue.Result{}, err
	}
	if share.DeletionTimestamp != nil {
		return queue.Result{}, nil // the garbage collector deletes its pod and its Service
	}
	if c.Shares.IsStale(share) {
		return queue.Result{}, queue.ErrStale
	}
	in, err := c.gather(ctx, share)
	if err != nil {
		return queue.Result{}, err
	}
	c.examine(ctx, &in)
	next := c.ask(ctx, &in)
	p := plan(in)
	switch hidden, err := c.reveal(ctx, &in, p); {
	case err != nil:
		return queue.Result{}, err
	case hidden:
		p = plan(in)
		p.wakeAfter(hiddenDelay)
	}
	if in.NoSlices {
		p.wakeAfter(refusedSlicesDelay)
	}
	if next > 0 {
		p.wakeAfter(next)
	}
	return queue.Result{RequeueAfter: p.After}, c.apply(ctx, in, p)
}

// hiddenDelay is the time until the next check of an object that no cache shows: no event comes when it is deleted.
const hiddenDelay = 30 * time.Second

// reveal checks whether an object already exists that the caches do not show. This is the Service or the pod that the
// plan creates, or a pod for which the volume must stay attached. The caches show only objects with a share's labels.
// The hidden object may belong to another owner and have the same name, or it may be the share's own after its labels
// were removed. The plan must know about it.
func (c *Controller) reveal(ctx context.Context, in *Input, p Plan) (hidden bool, err error) {
	isHidden := func(o metav1.Object) bool { return o.GetLabels()[types.LabelShareManager] == "" }
	if p.CreateService != nil {
		service, err := orNone(c.Services.Live(ctx, p.CreateService.Name))
		if err != nil {
			return false, err
		}
		if service != nil && isHidden(service) {
			in.Service, hidden = service, true
		}
	}
	isReleased := in.Pod == nil && p.Attachment != nil
	if p.CreatePod != nil || isReleased {
		pod, err := orNone(c.Pods.Live(ctx, types.ShareManagerPodName(in.Share.Name)))
		switch {
		case err != nil:
			return false, err
		case pod != nil && isHidden(pod):
			in.Pod, hidden = pod, true
		case pod != nil && isReleased:
			return false, queue.ErrStale
		}
	}
	return hidden, nil
}

// letGo removes the ticket of a share that was deleted before it released the volume. This happens when the access mode
// was changed while the volume was not attached to the pod's node yet. Otherwise the volume would stay attached without
// a user. As long as the pod exists, it may have the device.
func (c *Controller) letGo(ctx context.Context, name string) (queue.Result, error) {
	va, err := orNone(c.Attachments.Get(name))
	without := withTicket(va, name, "")
	c.times.since(name, nil, c.Clock.Now())
	c.unmade.tried(name, nil, c.Clock.Now())
	c.refusals.Forget(name)
	c.sliceTrouble.forget(name)
	c.asked.forget(name)
	if err != nil || without == nil {
		return queue.Result{}, err
	}
	if v, err := orNone(c.Volumes.GetRO(name)); err != nil || v == nil || types.IsShared(v) {
		return queue.Result{}, err
	}
	if pod, err := orNone(c.Pods.Live(ctx, types.ShareManagerPodName(name))); err != nil || pod != nil {
		return queue.Result{RequeueAfter: hiddenDelay}, err
	}
	if c.Attachments.IsStale(va) {
		return queue.Result{}, queue.ErrStale
	}
	if _, err := c.Attachments.Update(ctx, without); err != nil {
		return queue.Result{}, fmt.Errorf("remove the attachment ticket of a deleted share: %w", err)
	}
	queue.Log(ctx).WithField(logfields.Volume, name).Info("Removed the attachment ticket of a deleted share")
	return queue.Result{}, nil
}

// ask asks the pod for its findings, until it has answered once. After that it asks now and then for later findings. It
// returns when to ask again. 0: the plan says when, or never.
func (c *Controller) ask(ctx context.Context, in *Input) (next time.Duration) {
	if !in.isServing() {
		return 0
	}
	if in.wasAsked() {
		if left := c.asked.left(in.Share.Name, in.Pod.UID, in.Now); left > 0 {
			return left
		}
		defer func() { next = c.asked.again(in.Share.Name, in.Recovery != nil, in.Now) }()
	}
	said, err := c.Ask(ctx, net.JoinHostPort(in.Pod.Status.PodIP, fmt.Sprint(types.ShareHealthPort)))
	if err != nil {
		queue.Log(ctx).WithError(err).WithField(logfields.Volume, in.Share.Name).Debug("The share's pod did not report whether the recovery data is complete")
		return 0
	}
	in.Recovery = &said
	return 0
}
