package node

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/disk"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// claimAgain is how long the controller waits before it requests a refused claim again.
const claimAgain = 10 * time.Second

// ClaimStore holds the Leases by which disk UUIDs are claimed.
type ClaimStore interface {
	datastore.LiveReader[*coordinationv1.Lease]
	datastore.Creator[*coordinationv1.Lease]
	datastore.Updater[*coordinationv1.Lease]
}

// claimKey identifies the state for which a claim was settled. Each edit of the node's spec raises its generation. Only
// after an edit can another node have found that this disk is gone.
type claimKey struct {
	node       apitypes.UID
	generation int64
	uuid       string
	number     int64 // in the UUID file
}

type settled struct {
	key   claimKey
	claim Claim
	at    time.Time
}

// claimDisks settles the claims of the disks that this node accepts, and stores the result in in.Claims. It requests a
// claim that it holds once in the life of this process and after each edit of the node's spec. So while nothing changes
// it reads and writes nothing. It requests a refused claim again and again, because there is no event when the holder
// disappears. The rules are those in disk.DecideClaim.
//
// Two cases are not detected:
//
//   - A user removes a disk from a node's spec and adds it again. Both edits happen after another node has read that
//     spec and before it writes the Lease. Then both nodes may hold the disk until the first one requests its claim
//     again.
//   - A user deletes the Lease, so it has no holder. The node that holds the disk does not notice this before it
//     requests its claim again.
//
// An error requests a retry; every disk has its result nevertheless. If an object or file has changed in between, the
// error is queue.ErrStale, and the result is invalid.
func (c *Controller) claimDisks(ctx context.Context, in *Input, late map[string]bool, log *logrus.Entry) error {
	in.Claims = make(map[string]Claim, len(in.Node.Spec.Disks))
	verdicts := diskVerdicts(*in)
	var failures []error
	for _, name := range sortedDisks(in.Node) {
		if !verdicts[name].Accept {
			continue
		}
		claim, err := c.claimDisk(ctx, in, name, late[name], log.WithField(logfields.Disk, name), movedFrom(in.Node.Name, verdicts, late))
		in.Claims[name] = claim
		failures = append(failures, err)
	}
	for name := range c.claims {
		if _, ok := in.Node.Spec.Disks[name]; !ok {
			delete(c.claims, name)
		}
	}
	return errors.Join(failures...)
}

// movedFrom lists the holders, entries of this node, with paths that no longer lead to their disks, while another
// entry's path does.
func movedFrom(node string, verdicts map[string]disk.Verdict, late map[string]bool) map[string]bool {
	moved := map[string]bool{}
	for name, v := range verdicts {
		if v.Reason == disk.ReasonDiskMoved && !late[name] {
			moved[node+"/"+name] = true
		}
	}
	return moved
}

func (c *Controller) claimDisk(ctx context.Context, in *Input, name string, late bool, log *logrus.Entry, moved map[string]bool) (Claim, error) {
	record := in.Records[name]
	key := claimKey{in.Node.UID, in.Node.Generation, record.Config.UUID, record.Config.Claim}
	now := c.deps.Clock.Now()
	if s, ok := c.claims[name]; ok && s.key == key && (s.claim.Held || now.Sub(s.at) < claimAgain) {
		return s.claim, nil
	}
	if late { // the record is an earlier content of the file
		return unsettled(in.Node, name, record.Config.UUID, errNotAnswered), nil
	}
	claim, number, err := c.settleClaim(ctx, in.Node, name, record, log, moved)
	if err != nil {
		return unsettled(in.Node, name, record.Config.UUID, err), fmt.Errorf("claim disk %s: %w", name, err)
	}
	if claim.Held {
		key.number = number
		config := *record.Config
		config.Claim = number
		record.Config = &config
		in.Records[name] = record
	}
	c.claims[name] = settled{key, claim, now}
	return claim, nil
}

// unsettled is the claim of a disk about which nothing could be learned. A disk that was ready stays ready: its claim
// was held, and a failing API server or a full disk does not change that.
func unsettled(n *longhorn.Node, name, uuid string, err error) Claim {
	before := n.Status.DiskStatus[name]
	if strings.EqualFold(before.DiskUUID, uuid) && types.IsConditionTrue(before.Conditions, types.ConditionReady) {
		return Claim{Held: true}
	}
	return Claim{Reason: disk.ReasonNoDiskInfo, Gist: "the manager could not claim the disk in the cluster: " + err.Error()}
}

// settleClaim asks the API server and executes the decision of disk.DecideClaim. It returns the number of the claim
// that is held.
func (c *Controller) settleClaim(ctx context.Context, n *longhorn.Node, name string, record disk.Record, log *logrus.Entry, moved map[string]bool) (Claim, int64, error) {
	uuid := record.Config.UUID
	lease, err := orNil(c.deps.Claims.Live(ctx, types.DiskLeaseName(uuid)))
	if err != nil {
		return Claim{}, 0, err
	}
	in := disk.ClaimInput{
		UUID: uuid, Self: n.Name + "/" + name, File: record.Config.Claim, Lease: leaseOf(lease),
		Discard: fmt.Sprintf("kubectl -n %s delete lease %s", c.deps.Namespace, types.DiskLeaseName(uuid)),
	}
	if in.HolderGone = moved[in.Lease.Holder]; !in.HolderGone && in.Lease.Holder != "" && in.Lease.Holder != in.Self {
		if in.HolderGone, err = c.isHolderGone(ctx, in.Lease.Holder, uuid); err != nil {
			return Claim{}, 0, err
		}
	}
	switch d := disk.DecideClaim(in); d.Action {
	case disk.ClaimHold:
		return Claim{Held: true}, d.Number, c.unmark(ctx, lease, in, d.Number)
	case disk.ClaimTake:
		if err := c.takeClaim(ctx, lease, in, d.Number, record); err != nil {
			return Claim{}, 0, err
		}
		log.WithFields(logrus.Fields{logfields.UUID: uuid, logfields.Generation: d.Number}).Info("Claimed the disk")
		return Claim{Held: true}, d.Number, nil
	default:
		return Claim{Reason: d.Reason, Gist: d.Cause}, 0, nil
	}
}

// unmark removes the mark from a Lease that is held, although the leader marked it as the Lease of a missing disk. This
// happens when the disk is in the spec again. After this write the leader cannot delete the version that it read before
// (Leases.sync).
func (c *Controller) unmark(ctx context.Context, lease *coordinationv1.Lease, in disk.ClaimInput, number int64) error {
	if _, marked := lease.Annotations[types.AnnotationDiskGoneSince]; !marked {
		return nil
	}
	_, err := c.writeLease(ctx, lease, in, number, nil)
	return err
}

// takeClaim performs the three writes of disk.DecideClaim, except those that an earlier, interrupted pass has already
// done.
func (c *Controller) takeClaim(ctx context.Context, lease *coordinationv1.Lease, in disk.ClaimInput, number int64, record disk.Record) error {
	var err error
	l := in.Lease
	if !l.Pending || l.Holder != in.Self || l.Number != number {
		from := in.File
		if lease, err = c.writeLease(ctx, lease, in, number, &from); err != nil {
			return err
		}
	}
	if in.File != number {
		err := c.deps.Disks.WriteClaim(record, number)
		if errors.Is(err, disk.ErrDirectoryChanged) || errors.Is(err, disk.ErrConfigChanged) {
			return fmt.Errorf("%w: %w", queue.ErrStale, err)
		}
		if err != nil {
			return err
		}
	}
	_, err = c.writeLease(ctx, lease, in, number, nil)
	return err
}

// writeLease writes the Lease, based on the version that was read. If lease is nil, writeLease creates it. from is the
// number in the file, as long as it is not known to be the claim's number.
func (c *Controller) writeLease(ctx context.Context, lease *coordinationv1.Lease, in disk.ClaimInput, number int64, from *int64) (*coordinationv1.Lease, error) {
	write := c.deps.Claims.Update
	if lease == nil {
		write = c.deps.Claims.Create
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: types.DiskLeaseName(in.UUID), Namespace: c.deps.Namespace}}
	}
	lease = lease.DeepCopy()
	holder, transitions := in.Self, int32(number)
	lease.Spec.HolderIdentity, lease.Spec.LeaseTransitions = &holder, &transitions
	delete(lease.Annotations, types.AnnotationDiskGoneSince)
	if from == nil {
		delete(lease.Annotations, types.AnnotationClaimFrom)
	} else {
		now := metav1.NewMicroTime(c.deps.Clock.Now())
		lease.Spec.AcquireTime = &now
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, types.AnnotationClaimFrom, strconv.FormatInt(*from, 10))
	}
	stored, err := write(ctx, lease)
	// If the Lease was deleted in between, there is still work to do.
	return stored, datastore.Needed(err)
}

// leaseOf reads a Lease; nil means that it does not exist. A value that is not a number counts as absent.
func leaseOf(l *coordinationv1.Lease) disk.Lease {
	if l == nil {
		return disk.Lease{}
	}
	out := disk.Lease{Exists: true}
	if l.Spec.HolderIdentity != nil {
		out.Holder = *l.Spec.HolderIdentity
	}
	if l.Spec.LeaseTransitions != nil {
		out.Number = int64(*l.Spec.LeaseTransitions)
	}
	if text, ok := l.Annotations[types.AnnotationClaimFrom]; ok {
		from, err := strconv.ParseInt(text, 10, 64)
		out.From, out.Pending = from, err == nil
	}
	return out
}

// isHolderGone asks the API server whether the disk that a Lease names exists.
func (c *Controller) isHolderGone(ctx context.Context, holder, uuid string) (bool, error) {
	node, name, ok := strings.Cut(holder, "/")
	if !ok {
		return false, nil // not written by us: its meaning is not known
	}
	n, err := orNil(c.deps.Nodes.Live(ctx, node))
	if err != nil {
		return false, err
	}
	return holderGone(n, name, uuid), nil
}
