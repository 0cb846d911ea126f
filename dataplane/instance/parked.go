package instance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
)

// parked is a replica that was stopped here. It is closed, but tools may still read it. While they read, it is opened,
// without writing to it. They delay nothing: the start or removal of the replica ends their reading.
type parked struct {
	spec       *proto.ReplicaSpec
	generation int64 // the durable generation when it was closed; under the name's lock
	reading    *reading
}

// reading is a parked replica that is open for tools. Its fields are used under the name's lock.
type reading struct {
	replica *replica.Replica
	tenancy *tenancy
	tools   int
}

// errHosted means that a replica is no longer parked.
var errHosted = errors.New("the replica was started")

// park moves a replica that was closed to the parked replicas, where only tools can use it. The caller has the name's
// lock.
func (h *replicaHost) park(e *hosted) {
	name := e.spec.GetName()
	h.mu.Lock()
	delete(h.hosted, name)
	h.parked[name] = &parked{spec: e.spec, generation: e.replica.State().Generation}
	h.mu.Unlock()
	h.changes.notifyReplica(name)
}

// unpark ends the reading of tools and removes the replica from the parked replicas. The caller has the name's lock.
func (h *replicaHost) unpark(ctx context.Context, name string) error {
	if err := h.cutReaders(ctx, name); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.parked, name)
	return nil
}

func (h *replicaHost) findParked(name string) *parked {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.parked[name]
}

// parkedNames lists the parked replicas, sorted.
func (h *replicaHost) parkedNames() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.parked))
}

// cutReaders ends the reading of a parked replica. It waits only for reads that the disk is serving at this moment. The
// caller has the name's lock.
func (h *replicaHost) cutReaders(ctx context.Context, name string) error {
	p := h.findParked(name)
	if p == nil || p.reading == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replicaCloseTimeout)
	defer cancel()
	if err := p.reading.replica.Close(ctx); err != nil {
		return fmt.Errorf("close replica %s for its readers: %w", name, err)
	}
	p.reading.tenancy.release()
	p.reading = nil
	return nil
}

// readParked opens a parked replica for one tool, which must call release. It fails with errHosted if the replica was
// started in between.
func (h *replicaHost) readParked(ctx context.Context, name string) (r *replica.Replica, release func(), err error) {
	type opened struct {
		replica *replica.Replica
		release func()
	}
	got, err := attend(ctx, h, operation{what: "read", name: name}, func(ctx context.Context) (o opened, err error) {
		o.replica, o.release, err = h.readParkedNamed(ctx, name)
		return o, err
	}, func(o opened) { o.release() })
	if reasonOf(err) == reasonDiskNotResponding {
		err = nbd.ErrPolicy(err.Error())
	}
	return got.replica, got.release, err
}

func (h *replicaHost) readParkedNamed(ctx context.Context, name string) (r *replica.Replica, release func(), err error) {
	if err := h.checkRunning(); err != nil {
		return nil, nil, nbd.ErrPolicy(err.Error())
	}
	p := h.findParked(name)
	switch {
	case h.find(name) != nil:
		return nil, nil, errHosted
	case p == nil:
		return nil, nil, fmt.Errorf("%w: this node does not serve replica %s", nbd.ErrUnknownExport, name)
	case p.reading != nil && p.reading.replica.State().Failure != nil: // its disk is gone, and it will be closed soon
		if err := h.cutReaders(ctx, name); err != nil {
			return nil, nil, nbd.ErrPolicy(err.Error())
		}
	}
	if p.reading == nil {
		t, err := h.disks.open(p.spec, replica.Options{ReadOnly: true, Log: h.logOf(p.spec)}, h.evictReaders)
		if err != nil {
			return nil, nil, nbd.ErrPolicy(err.Error())
		}
		p.reading = &reading{replica: t.replica, tenancy: t}
	}
	open := p.reading
	open.tools++
	return open.replica, func() { h.releaseParked(p, open) }, nil
}

// releaseParked closes the replica after its last tool. The tool's view is closed, so it waits only for the name. If a
// disk holds the name, the start or removal of the replica closes it.
func (h *replicaHost) releaseParked(p *parked, open *reading) {
	ctx, cancel := context.WithTimeout(context.Background(), replicaCloseTimeout)
	defer cancel()
	unlock, err := h.names.lockWithin(ctx, p.spec.GetName())
	if err != nil {
		h.logOf(p.spec).WithError(err).Warn("Replica stays open for reading")
		return
	}
	defer unlock()
	if open.tools--; open.tools > 0 || p.reading != open {
		return
	}
	if err := open.replica.Close(ctx); err != nil {
		h.logOf(p.spec).WithError(err).Warn("Replica stays open for reading")
		return
	}
	open.tenancy.release()
	p.reading = nil
}

// evictReaders closes a replica that tools read when its disk is gone.
func (h *replicaHost) evictReaders(t *tenancy, _ *replica.DiskLostError) {
	name := t.replica.Name()
	defer h.names.lock(name)()
	p := h.findParked(name)
	if p == nil || p.reading == nil || p.reading.tenancy != t {
		return // it is already closed
	}
	if err := h.cutReaders(context.Background(), name); err != nil {
		h.logOf(p.spec).WithError(err).Warn("Replica stays open for reading, but its disk was lost")
	}
}

// fenceParked shuts engines below a generation out of a replica that was stopped here. The caller has the name's lock.
func (h *replicaHost) fenceParked(ctx context.Context, name string, fence int64) error {
	p := h.findParked(name)
	switch {
	case p == nil:
		return refuse(reasonNotHosted, "replica %s must be started before it can be fenced", name)
	case p.generation >= fence:
		return nil
	}
	if err := h.cutReaders(ctx, name); err != nil {
		return err
	}
	return h.disks.onDisk(p.spec, func(d *replica.Disk) error {
		r, err := d.Open(p.spec.GetDirectory(), specOf(p.spec), h.options(p.spec))
		if err != nil {
			h.distrustRefused(p.spec, err)
			return err
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replicaCloseTimeout)
		defer cancel()
		err = r.Fence(ctx, fence)
		if err == nil {
			p.generation = r.State().Generation
		}
		err = errors.Join(err, r.Close(ctx))
		h.distrust(&hosted{spec: p.spec, replica: r})
		return err
	})
}
