package volume

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// Controller drives all volumes of the cluster. Create it with New, then call Run.
type Controller struct {
	deps   Deps
	queue  *queue.Queue[string]
	placed *reservations
	turns  turns
	// refusals holds the API server's refusals to write children of volumes, by the volume's name.
	refusals queue.Refusals[string]
	// taking serializes the decisions that use room or turns. A holder reads the free room and turns, decides, and
	// reserves them.
	taking sync.Mutex
}

// New registers the controller's handlers. The controller does nothing before Run.
func New(d Deps) (*Controller, error) {
	c := &Controller{deps: d, placed: newReservations(d.Clock)}
	c.queue = queue.New(queue.Options[string]{Name: "volume", Env: d.Env, Workers: 4, Sync: c.sync})
	return c, c.watch()
}

// Run syncs until ctx is done, and returns after the last sync.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// Sync syncs one volume, as the queue does. It is for tests of several controllers at once.
func (c *Controller) Sync(ctx context.Context, name string) (queue.Result, error) {
	return c.sync(ctx, name)
}

func (c *Controller) sync(ctx context.Context, name string) (queue.Result, error) {
	v, err := c.deps.Volumes.Get(name)
	if apierrors.IsNotFound(err) {
		c.turns.forget(name)
		c.refusals.Forget(name)
		return queue.Result{}, nil
	}
	if err != nil {
		return queue.Result{}, err
	}
	if c.deps.Volumes.IsStale(v) {
		return queue.Result{}, queue.ErrStale
	}
	log := queue.Log(ctx).WithField(logfields.Volume, name)
	if v.DeletionTimestamp != nil {
		in, err := c.gather(v)
		if err != nil || !types.HasFinalizer(v) {
			return queue.Result{}, err
		}
		d := planDeletion(in)
		return queue.Result{RequeueAfter: d.After}, c.showRefusal(ctx, v, c.applyDeletion(ctx, log, v, d))
	}
	p, err := c.plan(v)
	if err != nil {
		return queue.Result{}, err
	}
	err = c.apply(ctx, log, v, p)
	c.turns.wrote(name)
	return queue.Result{RequeueAfter: p.After}, c.showRefusal(ctx, v, err)
}

// plan decides the next actions for the volume. A plan may place replicas, grow them, or start a rebuild. Then plan
// decides a second time while it holds taking. It reserves the room and the turn before another volume's plan reads
// them.
func (c *Controller) plan(v *longhorn.Volume) (Plan, error) {
	in, err := c.gather(v)
	if err != nil {
		return Plan{}, err
	}
	p := plan(in)
	if len(p.CreateReplicas) == 0 && p.BeginsOn == "" && !p.beginsExpansion(v) {
		return p, nil
	}
	c.taking.Lock()
	defer c.taking.Unlock()
	if in, err = c.gather(v); err != nil {
		return Plan{}, err
	}
	p = plan(in)
	c.placed.assume(p.CreateReplicas)
	if p.beginsExpansion(v) {
		c.placed.assumeSize(v, p.Status.Size)
	}
	if p.BeginsOn != "" {
		c.turns.take(v.Name, p.BeginsOn)
	}
	return p, nil
}

// apply carries out a plan. It may repeat every step after a crash: it does not create objects that exist, and
// updates carry the version that the plan is based on.
func (c *Controller) apply(ctx context.Context, log *logrus.Entry, v *longhorn.Volume, p Plan) error {
	if p.Volume != nil {
		_, err := c.deps.Volumes.Update(ctx, p.Volume)
		return err
	}
	if p.Labels != nil {
		return c.putBackLabels(ctx, log, *p.Labels)
	}
	if err := c.makeChildren(ctx, log, v, p); err != nil {
		return queue.OfChild(err)
	}
	if err := c.applyShare(ctx, log, v, p.share); err != nil {
		return queue.OfChild(err)
	}
	for _, r := range p.UpdateReplicas {
		log.WithField(logfields.Replica, r.Name).WithField(logfields.State, r.Spec.DesireState).Info("updating the spec of a replica")
		if _, err := c.deps.Replicas.Update(ctx, r); err != nil {
			return queue.OfChild(fmt.Errorf("update replica %s: %w", r.Name, err))
		}
	}
	if e := p.UpdateEngine; e != nil {
		log.WithField(logfields.Node, e.Spec.NodeID).WithField(logfields.State, e.Spec.DesireState).Info("updating the spec of the engine")
		if _, err := c.deps.Engines.Update(ctx, e); err != nil {
			return queue.OfChild(fmt.Errorf("update engine %s: %w", e.Name, err))
		}
	}
	if p.writesChildren() || !p.AwaitsTurn {
		c.childrenTaken(v.Name, &p.Status)
	}
	if err := c.writeStatus(ctx, v, p.Status); err != nil {
		return err
	}
	for _, e := range p.Events {
		c.deps.Recorder.Event(v, e.Type, e.Reason, e.Message)
	}
	if p.Surplus != nil {
		return c.giveUp(ctx, log, v, *p.Surplus)
	}
	return nil
}

func (c *Controller) makeChildren(ctx context.Context, log *logrus.Entry, v *longhorn.Volume, p Plan) error {
	if err := c.makeOthers(ctx, log, v, p); err != nil {
		for _, r := range p.CreateReplicas {
			c.placed.release(r.Name) // its creation was not tried
		}
		return err
	}
	return c.makeReplicas(ctx, log, v, p.CreateReplicas)
}

// makeOthers creates the objects that must exist before the replicas.
func (c *Controller) makeOthers(ctx context.Context, log *logrus.Entry, v *longhorn.Volume, p Plan) error {
	if p.CreateAttachment != nil {
		if _, err := c.deps.Attachments.Create(ctx, p.CreateAttachment); err != nil {
			return c.ifExists(ctx, v, fmt.Errorf("create the volume attachment: %w", err), liveFrom(c.deps.Attachments, p.CreateAttachment.Name))
		}
	}
	if p.EnsureSecret {
		if err := c.ensureSecret(ctx, v); err != nil {
			return err
		}
	}
	if p.CreateEngine != nil {
		log.Info("creating the engine")
		if _, err := c.deps.Engines.Create(ctx, p.CreateEngine); err != nil {
			return c.ifExists(ctx, v, fmt.Errorf("create the engine: %w", err), liveFrom(c.deps.Engines, p.CreateEngine.Name))
		}
	}
	return nil
}

// ensureSecret creates the key by which engines and replicas of this volume authenticate to each other. It never
// replaces the key: a running engine uses the old one.
func (c *Controller) ensureSecret(ctx context.Context, v *longhorn.Volume) error {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails: crypto/rand stops the process instead
	secret := &corev1.Secret{
		ObjectMeta: children.Meta(v, types.VolumeSecretName(v.Name), nil),
		Data:       map[string][]byte{types.VolumeSecretKey: key},
	}
	_, err := c.deps.Secrets.Create(ctx, secret)
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the data plane's key: %w", err)
	}
	existing, failed := c.deps.Secrets.Live(ctx, secret.Name)
	if failed != nil {
		return fmt.Errorf("read the data plane's key: %w", datastore.Needed(failed))
	}
	if ownedBy(existing, v) {
		return nil
	}
	return c.obstructs(v, existing, err)
}

// makeReplicas creates replicas only if the API server has no replica that the cache lacks. Their names are random,
// so nothing else would prevent a second set.
func (c *Controller) makeReplicas(ctx context.Context, log *logrus.Entry, v *longhorn.Volume, replicas []*longhorn.Replica) error {
	if len(replicas) == 0 {
		return nil
	}
	created := 0
	defer func() {
		for _, r := range replicas[created:] {
			c.placed.release(r.Name)
		}
	}()
	selector := metav1.ListOptions{LabelSelector: types.LabelVolume + "=" + v.Name}
	live, err := c.deps.Replicas.ListLive(ctx, selector)
	if err != nil {
		return fmt.Errorf("list the volume's replicas: %w", err)
	}
	cached, err := c.deps.Replicas.ByIndex(datastore.IndexVolume, v.Name)
	if err != nil {
		return err
	}
	if !showsAll(cached, live, v.Name) {
		return queue.ErrStale
	}
	c.placed.releaseOthers(v.Name, replicas)
	for _, r := range replicas {
		log.WithField(logfields.Replica, r.Name).WithField(logfields.Node, r.Spec.NodeID).WithField(logfields.Disk, r.Spec.DiskPath).Info("creating a replica")
		if _, err := c.deps.Replicas.Create(ctx, r); err != nil {
			if !isRefusal(err) {
				created++ // it may exist: keep its room reserved
			}
			return fmt.Errorf("create replica %s: %w", r.Name, err)
		}
		created++
	}
	return nil
}

// showsAll reports whether the cache shows the same replicas as a live list by label. Replicas that have lost the
// label, until it is restored, are only in the cache.
func showsAll(cached, live []*longhorn.Replica, volume string) bool {
	uids := map[kubetypes.UID]bool{}
	for _, r := range cached {
		if r.Labels[types.LabelVolume] == volume {
			uids[r.UID] = true
		}
	}
	for _, r := range live {
		if types.VolumeOf(r) != volume {
			continue
		}
		if !uids[r.UID] {
			return false
		}
		delete(uids, r.UID)
	}
	return len(uids) == 0
}

// isRefusal reports whether the API server answered that it did not carry out the request.
func isRefusal(err error) bool {
	reason := apierrors.ReasonForError(err)
	return reason != metav1.StatusReasonUnknown && reason != metav1.StatusReasonTimeout &&
		reason != metav1.StatusReasonServerTimeout && reason != metav1.StatusReasonInternalError
}

func (c *Controller) writeStatus(ctx context.Context, v *longhorn.Volume, status longhorn.VolumeStatus) error {
	_, _, err := datastore.WriteStatus(ctx, c.deps.Volumes, v, func(v *longhorn.Volume) *longhorn.VolumeStatus { return &v.Status }, status)
	return err
}
