package instance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// replicaHost has the replicas of this process by name.
type replicaHost struct {
	disks   *diskGuard
	boot    string
	changes *changes
	log     *logrus.Entry
	names   nameLocks
	calls   *diskCalls
	// closeTimeout limits how long the stop of the process waits for the replicas.
	closeTimeout time.Duration
	stuckEvery   time.Duration
	// decoy replaces the secret of replicas that are not here, so that a guess reveals nothing.
	decoy []byte

	mu         sync.Mutex
	hosted     map[string]*hosted                // guarded by mu
	parked     map[string]*parked                // guarded by mu; never a name that is in hosted
	distrusted map[string]struct{}               // guarded by mu; uids, see distrust
	asked      map[string]*replica.QuestionTimes // guarded by mu; of each replica, by UID, since its first opening
	paces      map[string]*replica.Pace          // guarded by mu; by UUID of the disk, since a replica on it was first opened
	stuck      map[string]*proto.DiskState       // guarded by mu; by replica, see lookForStuck
	stopping   bool                              // guarded by mu
}

// hosted is one replica that was started and not stopped. It is never changed: an entry is replaced.
type hosted struct {
	spec    *proto.ReplicaSpec
	replica *replica.Replica // nil if the directory was refused, or was closed because its disk is gone
	tenancy *tenancy         // of replica
	refused error            // why the replica is nil
}

func newReplicaHost(disks *diskGuard, boot string, c *changes, log *logrus.Entry) *replicaHost {
	h := &replicaHost{
		disks: disks, boot: boot, changes: c, log: log, calls: newDiskCalls(c.notifyAll), closeTimeout: replicaCloseTimeout, stuckEvery: stuckInterval, decoy: make([]byte, 32),
		hosted: map[string]*hosted{}, parked: map[string]*parked{}, distrusted: map[string]struct{}{}, paces: map[string]*replica.Pace{},
		asked: map[string]*replica.QuestionTimes{},
	}
	_, _ = rand.Read(h.decoy) // never fails
	return h
}

func (h *replicaHost) find(name string) *hosted {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hosted[name]
}

func (h *replicaHost) put(name string, e *hosted) {
	h.mu.Lock()
	if e == nil {
		delete(h.hosted, name)
	} else {
		h.hosted[name] = e
	}
	h.mu.Unlock()
	h.changes.notifyReplica(name)
}

func (h *replicaHost) refuseNew() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
}

func (h *replicaHost) checkRunning() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopping {
		return refuse(reasonStopping, "the data plane is stopping")
	}
	return nil
}

func specOf(s *proto.ReplicaSpec) replica.Spec {
	return replica.Spec{UID: s.GetUid(), Volume: s.GetVolume(), Name: s.GetName(), SizeBytes: s.GetSizeBytes()}
}

func (s *service) ReplicaCreate(ctx context.Context, r *proto.ReplicaSpec) (*proto.ReplicaState, error) {
	state, err := s.instance.replicas.create(ctx, r)
	return state, toStatus(err)
}

// create creates a replica's directory.
func (h *replicaHost) create(ctx context.Context, s *proto.ReplicaSpec) (*proto.ReplicaState, error) {
	o := operation{what: "create", name: s.GetName(), disk: s.GetDiskPath()}
	return attend(ctx, h, o, func(context.Context) (*proto.ReplicaState, error) { return h.createNamed(s) }, nil)
}

// createNamed is create under the name's lock. The same holds for all functions with names that end in Named.
func (h *replicaHost) createNamed(s *proto.ReplicaSpec) (*proto.ReplicaState, error) {
	if err := h.checkRunning(); err != nil {
		return nil, err
	}
	err := h.disks.onDisk(s, func(d *replica.Disk) error { return d.Create(s.GetDirectory(), specOf(s)) })
	if err != nil {
		return nil, err
	}
	h.logOf(s).Info("Replica directory created")
	if e := h.find(s.GetName()); e != nil {
		return e.state(), nil
	}
	return &proto.ReplicaState{Name: s.GetName(), Volume: s.GetVolume(), Uid: s.GetUid()}, nil
}

func (h *replicaHost) logOf(s *proto.ReplicaSpec) *logrus.Entry {
	return h.log.WithFields(logrus.Fields{logfields.Replica: s.GetName(), logfields.Volume: s.GetVolume(), logfields.Path: s.GetDirectory()})
}

// minSecretBytes is the length of the shortest secret that is accepted.
const minSecretBytes = 16

func (s *service) ReplicaStart(ctx context.Context, r *proto.ReplicaSpec) (*proto.ReplicaState, error) {
	state, err := s.instance.replicas.start(ctx, r)
	return state, toStatus(err)
}

// start opens a replica. A replica that was refused or has failed is opened again.
func (h *replicaHost) start(ctx context.Context, s *proto.ReplicaSpec) (*proto.ReplicaState, error) {
	if len(s.GetSecret()) < minSecretBytes {
		return nil, fmt.Errorf("%w: a replica needs a secret of at least %d bytes", errInvalid, minSecretBytes)
	}
	o := operation{what: "start", name: s.GetName(), disk: s.GetDiskPath()}
	return attend(ctx, h, o, func(ctx context.Context) (*proto.ReplicaState, error) { return h.startNamed(ctx, s) }, nil)
}

func (h *replicaHost) startNamed(ctx context.Context, s *proto.ReplicaSpec) (*proto.ReplicaState, error) {
	if err := h.checkRunning(); err != nil {
		return nil, err
	}
	old := h.find(s.GetName())
	if old != nil && old.replica != nil {
		if !isSamePlace(old.spec, s) {
			return nil, refuse(reasonHosted, "replica %s is already served from %s on disk %s with UID %s", s.GetName(), old.spec.GetDirectory(), old.spec.GetDiskUuid(), old.spec.GetUid())
		}
		if old.replica.State().Failure == nil {
			h.grow(ctx, old, s)
			// The secret may have changed.
			h.put(s.GetName(), &hosted{spec: sized(s, old.replica.Size()), replica: old.replica, tenancy: old.tenancy})
			return old.state(), nil
		}
		if err := h.close(ctx, old); err != nil {
			return nil, err
		}
	}
	if err := h.unpark(ctx, s.GetName()); err != nil {
		return nil, err
	}
	e := h.open(s)
	h.put(s.GetName(), e)
	return e.state(), nil
}

// grow increases an open replica to the requested size. Its state shows if that failed.
func (h *replicaHost) grow(ctx context.Context, e *hosted, s *proto.ReplicaSpec) {
	if s.GetSizeBytes() <= e.replica.Size() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replicaCloseTimeout)
	defer cancel()
	if err := e.replica.Grow(ctx, s.GetSizeBytes()); err != nil {
		h.logOf(s).WithError(err).Warn("Cannot grow the replica")
	}
}

// sized returns a spec with at least the current size of the replica. A daemon with an older object requests a smaller
// size. Replicas never shrink. So with that size, a later opening of the replica, to fence or read it, would be
// refused.
func sized(s *proto.ReplicaSpec, hasBytes int64) *proto.ReplicaSpec {
	if s.GetSizeBytes() >= hasBytes {
		return s
	}
	s = protobuf.CloneOf(s)
	s.SizeBytes = hasBytes
	return s
}

func isSamePlace(a, b *proto.ReplicaSpec) bool {
	return a.GetUid() == b.GetUid() && a.GetDirectory() == b.GetDirectory() && a.GetDiskPath() == b.GetDiskPath() && a.GetDiskUuid() == b.GetDiskUuid()
}

// open opens a replica for engines.
func (h *replicaHost) open(s *proto.ReplicaSpec) *hosted {
	opts := h.options(s)
	t, err := h.disks.open(s, opts, h.evict)
	if err != nil {
		h.distrustRefused(s, err)
		opts.Log.WithError(err).Warn("Cannot open the replica")
		return &hosted{spec: s, refused: err}
	}
	opts.Log.Info("Replica is serving")
	return &hosted{spec: s, replica: t.replica, tenancy: t}
}

// options returns the options for opening a replica that may be written to.
func (h *replicaHost) options(s *proto.ReplicaSpec) replica.Options {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, distrusted := h.distrusted[s.GetUid()]
	pace := h.paces[s.GetDiskUuid()]
	if pace == nil {
		pace = replica.NewPace()
		h.paces[s.GetDiskUuid()] = pace
	}
	asked := h.asked[s.GetUid()]
	if asked == nil {
		asked = replica.NewQuestionTimes()
		h.asked[s.GetUid()] = asked
	}
	return replica.Options{
		BootID: h.boot, Distrust: distrusted,
		OnChange: func() { h.changes.notifyReplica(s.GetName()) }, OnProgress: func() { h.calls.progressed(s.GetName()) },
		Pace: pace, Questions: asked, Reserve: s.GetReserveBytes(), Log: h.logOf(s),
	}
}

// distrust records, for a replica that was closed, whether it may have lost writes although the machine keeps running.
// A disk that fails may refuse to record this. If a disk goes away, its device may go with it, and the kernel then
// drops unsynced data without an error. The record counts for each opening in this process, over any starts and stops.
// It ends when the replica is closed with nothing missing, or is removed.
func (h *replicaHost) distrust(e *hosted) {
	kept := e.replica.State().CacheKept
	h.mu.Lock()
	defer h.mu.Unlock()
	if kept {
		delete(h.distrusted, e.spec.GetUid())
	} else {
		h.distrusted[e.spec.GetUid()] = struct{}{}
	}
}

// distrustRefused is distrust for an opening that was refused. The kernel reports lost writes only once, so no later
// opening learns of them.
func (h *replicaHost) distrustRefused(s *proto.ReplicaSpec, err error) {
	var refused *replica.RefusedError
	if !errors.As(err, &refused) || !refused.WritesLost {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.distrusted[s.GetUid()] = struct{}{}
}

// evict closes a replica that has lost its disk, which releases the file system, and records the reason. If requests to
// that disk do not end, the replica stays open; its next start or stop tries again.
func (h *replicaHost) evict(t *tenancy, lost *replica.DiskLostError) {
	name := t.replica.Name()
	defer h.names.lock(name)()
	e := h.find(name)
	if e == nil || e.tenancy != t {
		return // the call that closes it, or has closed it, releases the tenancy
	}
	defer h.calls.note(e.spec.GetDiskPath(), name, "close")()
	ctx, cancel := context.WithTimeout(context.Background(), replicaCloseTimeout)
	defer cancel()
	if err := t.replica.Close(ctx); err != nil {
		h.logOf(e.spec).WithError(err).Warn("Replica stays open, but its disk was lost")
		return
	}
	h.distrust(e)
	t.release()
	h.put(name, &hosted{spec: e.spec, refused: lost})
}

func (s *service) ReplicaStop(ctx context.Context, r *proto.ReplicaRef) (*proto.Empty, error) {
	return &proto.Empty{}, toStatus(s.instance.replicas.stop(ctx, r.GetName(), r.GetFenceGeneration()))
}

// stop closes a replica. A connected engine gets limited time to leave. With a fence above 0, engines of older
// generations are first shut out permanently, and durably. Only then is the answer a success. A replica that cannot be
// fenced here is refused.
func (h *replicaHost) stop(ctx context.Context, name string, fence int64) error {
	o := operation{what: "stop", name: name}
	_, err := attend(ctx, h, o, func(ctx context.Context) (struct{}, error) { return struct{}{}, h.stopNamed(ctx, name, fence) }, nil)
	return err
}

func (h *replicaHost) stopNamed(ctx context.Context, name string, fence int64) error {
	e := h.find(name)
	switch {
	case e == nil && fence > 0:
		return h.fenceParked(ctx, name, fence)
	case e == nil:
		return nil
	case e.replica == nil && fence > 0:
		return refuse(reasonNotHosted, "fence replica %s: %w", name, e.refused)
	case e.replica == nil:
		h.put(name, nil)
		return nil
	}
	if err := fenceOpen(ctx, e.replica, fence); err != nil {
		return err
	}
	if err := h.awaitRelease(ctx, e.replica); err != nil {
		return fmt.Errorf("stop replica %s: %w", name, err)
	}
	return h.close(ctx, e)
}

// fenceOpen shuts engines below a generation out of an open replica; 0 means no fence.
func fenceOpen(ctx context.Context, r *replica.Replica, fence int64) error {
	if fence <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replicaCloseTimeout)
	defer cancel()
	return r.Fence(ctx, fence)
}

func (h *replicaHost) awaitRelease(ctx context.Context, r *replica.Replica) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	for {
		changed := h.changes.wait()
		if !r.State().Connected {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return replica.ErrInUse
		}
	}
}

// close closes an open replica and removes it from the list.
func (h *replicaHost) close(ctx context.Context, e *hosted) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replicaCloseTimeout)
	defer cancel()
	err := e.replica.Close(ctx)
	if errors.As(err, new(*replica.HangError)) {
		return err // it is still open, or not closed yet
	}
	h.distrust(e)
	e.tenancy.release()
	if err != nil {
		h.logOf(e.spec).WithError(err).Warn("Replica closed, but not cleanly")
	} else {
		h.logOf(e.spec).Info("Replica closed")
	}
	h.park(e)
	return nil
}

func (s *service) ReplicaRemove(ctx context.Context, r *proto.ReplicaSpec) (*proto.Empty, error) {
	return &proto.Empty{}, toStatus(s.instance.replicas.remove(ctx, r))
}

// remove deletes the directory of a replica that is not hosted. It ends the reading of tools.
func (h *replicaHost) remove(ctx context.Context, s *proto.ReplicaSpec) error {
	o := operation{what: "remove", name: s.GetName(), disk: s.GetDiskPath()}
	_, err := attend(ctx, h, o, func(ctx context.Context) (struct{}, error) { return struct{}{}, h.removeNamed(ctx, s) }, nil)
	return err
}

func (h *replicaHost) removeNamed(ctx context.Context, s *proto.ReplicaSpec) error {
	if h.find(s.GetName()) != nil {
		return refuse(reasonHosted, "replica %s must be stopped first", s.GetName())
	}
	if err := h.cutReaders(ctx, s.GetName()); err != nil {
		return err
	}
	err := h.disks.onDisk(s, func(d *replica.Disk) error { return d.Remove(s.GetDirectory(), s.GetUid()) })
	if err != nil {
		return err
	}
	if err := h.unpark(ctx, s.GetName()); err != nil {
		return err
	}
	h.mu.Lock()
	delete(h.distrusted, s.GetUid())
	delete(h.asked, s.GetUid())
	h.mu.Unlock()
	h.logOf(s).Info("Replica directory removed")
	return nil
}

func isElement(s string) bool { return s != "" && !strings.Contains(s, "/") }
