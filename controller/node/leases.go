package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

const (
	// leasesInterval is how often the leader checks the Leases of disks.
	leasesInterval = time.Hour
	// leaseKept is how long the Lease of a missing disk stays. The Lease distinguishes the disk from an old copy of it,
	// so it stays while a disk is being moved.
	leaseKept = 24 * time.Hour
)

// LeaseStore holds the Leases of the whole namespace.
type LeaseStore interface {
	datastore.LiveLister[*coordinationv1.Lease]
	datastore.Updater[*coordinationv1.Lease]
	datastore.Deleter
}

// LeasesDeps are the dependencies of a Leases; the stores are of the whole cluster.
type LeasesDeps struct {
	queue.Env

	Leases   LeaseStore
	Nodes    datastore.LiveLister[*longhorn.Node]
	Replicas datastore.LiveLister[*longhorn.Replica]
}

// Leases deletes the Leases of disks that are gone for good. It runs in the leader.
type Leases struct {
	deps  LeasesDeps
	queue *queue.Queue[string] // of one key
}

// NewLeases creates a Leases. It does nothing before Run is called.
func NewLeases(deps LeasesDeps) *Leases {
	l := &Leases{deps: deps}
	l.queue = queue.New(queue.Options[string]{Name: "disk-leases", Env: deps.Env, Sync: l.sync})
	l.queue.Add("all")
	return l
}

// Run works until ctx is done.
func (l *Leases) Run(ctx context.Context) error { return l.queue.Run(ctx) }

// sync reads the Leases before it reads the nodes and replicas by which it judges them. In between, a node may create a
// claim, or find that it holds a marked Lease. Then that node has written the Lease, so sync can no longer delete the
// version that it read.
func (l *Leases) sync(ctx context.Context, _ string) (queue.Result, error) {
	again := queue.Result{RequeueAfter: leasesInterval}
	leases, err := l.deps.Leases.ListLive(ctx, metav1.ListOptions{})
	if err != nil {
		return again, err
	}
	nodes, err := l.deps.Nodes.ListLive(ctx, metav1.ListOptions{})
	if err != nil {
		return again, err
	}
	replicas, err := l.deps.Replicas.ListLive(ctx, metav1.ListOptions{})
	if err != nil {
		return again, err
	}
	var failures []error
	for _, lease := range leases {
		if uuid, ok := types.DiskOfLease(lease.Name); ok {
			err := l.treat(ctx, lease, isDiskGone(lease, uuid, nodes, replicas))
			failures = append(failures, ignoreChanged(err))
		}
	}
	return again, errors.Join(failures...)
}

// ignoreChanged drops the errors that say that the Lease has changed or is gone. The next pass checks it again.
func ignoreChanged(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// treat records since when the disk is gone, and deletes the Lease leaseKept later.
func (l *Leases) treat(ctx context.Context, lease *coordinationv1.Lease, gone bool) error {
	now := l.deps.Clock.Now()
	switch lapse(lease, gone, now) {
	case leaseMark:
		u := lease.DeepCopy()
		metav1.SetMetaDataAnnotation(&u.ObjectMeta, types.AnnotationDiskGoneSince, types.Timestamp(now))
		_, err := l.deps.Leases.Update(ctx, u)
		return err
	case leaseUnmark:
		u := lease.DeepCopy()
		delete(u.Annotations, types.AnnotationDiskGoneSince)
		_, err := l.deps.Leases.Update(ctx, u)
		return err
	case leaseDelete:
		p := datastore.Preconditions{UID: lease.UID, ResourceVersion: lease.ResourceVersion}
		if err := l.deps.Leases.Delete(ctx, lease.Name, p); err != nil {
			return fmt.Errorf("delete the Lease of a disk that no longer exists: %w", err)
		}
		queue.Log(ctx).WithField(logfields.UUID, strings.TrimPrefix(lease.Name, "disk-")).Info("Deleted the Lease of a disk that no longer exists")
	}
	return nil
}

type leaseAction int

const (
	leaseKeep leaseAction = iota
	leaseMark
	leaseUnmark
	leaseDelete
)

// lapse decides about one Lease.
//
//	disk    marked                action
//	exists  no                    keep
//	exists  yes                   unmark
//	gone    no, or unreadably     mark
//	gone    less than leaseKept   keep
//	gone    for leaseKept         delete
func lapse(lease *coordinationv1.Lease, gone bool, now time.Time) leaseAction {
	text, marked := lease.Annotations[types.AnnotationDiskGoneSince]
	since, err := time.Parse(time.RFC3339, text)
	switch {
	case !gone && marked:
		return leaseUnmark
	case !gone:
		return leaseKeep
	case err != nil:
		return leaseMark
	case now.Sub(since) < leaseKept:
		return leaseKeep
	}
	return leaseDelete
}

// isDiskGone reports whether the disk of a Lease is unknown to the cluster:
//
//   - No node has recorded its UUID.
//   - The disk that claimed it is not in any spec.
//   - No replica is on it according to its object.
//
// If the holder of a claim cannot be parsed, the claim is not ours. In that case its disk does not count as gone.
func isDiskGone(lease *coordinationv1.Lease, uuid string, nodes []*longhorn.Node, replicas []*longhorn.Replica) bool {
	holder := leaseOf(lease).Holder
	holderNode, holderDisk, ok := strings.Cut(holder, "/")
	if !ok {
		return false
	}
	for _, n := range nodes {
		for _, status := range n.Status.DiskStatus {
			if strings.EqualFold(status.DiskUUID, uuid) {
				return false
			}
		}
		if n.Name == holderNode && !holderGone(n, holderDisk, uuid) {
			return false
		}
	}
	for _, r := range replicas {
		if strings.EqualFold(r.Spec.DiskID, uuid) {
			return false
		}
	}
	return true
}
