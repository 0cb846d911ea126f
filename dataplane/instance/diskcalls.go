package instance

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

const (
	// diskPatience is how long a caller waits for a started operation on a disk, or for the next part of an operation
	// that reports its progress. It is longer than the limits of the operations themselves (releaseTimeout,
	// replicaCloseTimeout). A disk with an older operation counts as a disk that does not respond.
	diskPatience = 20 * time.Second
	// diskWait is how long a caller waits for the replica's name and for a place on its disk. Both times together are
	// less than the daemon's limit for a call (app.dataPlane).
	diskWait = 8 * time.Second
	// callsPerDisk is how many operations run on a disk at a time. So it is also how many operations a disk that hangs
	// can hold.
	callsPerDisk = 2
)

// diskCalls counts the current operations on each disk. A disk may hold an operation forever, in a call of the kernel
// that nothing can end. Then the caller leaves, and the operation is left behind with the resources that it holds.
// While it is under way, other operations on that disk are refused at once. Other disks are not affected.
//
//	an operation    comes when                             and
//	                less than callsPerDisk are under way   runs; its caller waits for patience
//	                callsPerDisk are under way             waits for one of them to end, for a limited time
//	                one is older than patience             is refused
type diskCalls struct {
	patience, wait time.Duration

	changed func() // called when a disk stops responding or responds again; must not block

	mu    sync.Mutex
	disks map[string]*diskLane // by path; guarded by mu; the disks with a call that is under way or waits
}

// diskLane is one disk.
type diskLane struct {
	places chan struct{}          // holds one entry for each call that has a place
	calls  map[*diskCall]struct{} // guarded by the mu of diskCalls
	users  int                    // guarded by the mu of diskCalls
}

// diskCall is a current operation.
type diskCall struct {
	replica, what string
	overdue       chan struct{} // closed when it is late
	// guarded by the mu of diskCalls:
	since time.Time // its start, or the time when the disk last completed a part of it
	timer *time.Timer
	late  bool
}

func newDiskCalls(changed func()) *diskCalls {
	return &diskCalls{patience: diskPatience, wait: diskWait, changed: changed, disks: map[string]*diskLane{}}
}

// enter waits for a place on a disk, until ctx ends. The caller must call leave, which frees the place, after the
// operation.
func (c *diskCalls) enter(ctx context.Context, disk, replica, what string) (call *diskCall, leave func(), err error) {
	lane := c.use(disk)
	select {
	case lane.places <- struct{}{}:
	case <-ctx.Done():
		c.unuse(disk, lane)
		return nil, nil, c.given(ctx, disk, replica)
	}
	call, end := c.begin(disk, lane, replica, what)
	return call, func() {
		<-lane.places
		end()
	}, nil
}

// note counts an operation that does not wait for a place.
func (c *diskCalls) note(disk, replica, what string) (end func()) {
	_, end = c.begin(disk, c.use(disk), replica, what)
	return end
}

func (c *diskCalls) use(disk string) *diskLane {
	disk = path.Clean(disk)
	c.mu.Lock()
	defer c.mu.Unlock()
	lane := c.disks[disk]
	if lane == nil {
		lane = &diskLane{places: make(chan struct{}, callsPerDisk), calls: map[*diskCall]struct{}{}}
		c.disks[disk] = lane
	}
	lane.users++
	return lane
}

func (c *diskCalls) unuse(disk string, lane *diskLane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lane.users--; lane.users == 0 {
		delete(c.disks, path.Clean(disk))
	}
}

func (c *diskCalls) begin(disk string, lane *diskLane, replica, what string) (call *diskCall, end func()) {
	call = &diskCall{replica: replica, what: what, since: time.Now(), overdue: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	lane.calls[call] = struct{}{}
	call.timer = time.AfterFunc(c.patience, func() {
		c.mu.Lock()
		_, call.late = lane.calls[call]
		c.mu.Unlock()
		close(call.overdue)
		c.changed()
	})
	return call, func() {
		c.mu.Lock()
		call.timer.Stop()
		delete(lane.calls, call)
		late := call.late
		c.mu.Unlock()
		c.unuse(disk, lane)
		if late {
			c.changed()
		}
	}
}

// progressed records that a disk has completed a part of an operation on a replica: the time for the rest starts again.
func (c *diskCalls) progressed(replica string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, lane := range c.disks {
		for call := range lane.calls {
			if call.replica == replica && call.timer.Stop() { // a call that is already late stays late until it ends
				call.since = time.Now()
				call.timer.Reset(c.patience)
			}
		}
	}
}

// refusal is the reason why the process sends no operation to a disk, or to a replica on any disk; nil if the disk
// responds.
func (c *diskCalls) refusal(disk, replica string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, lane := range c.disks {
		for call := range lane.calls {
			if call.late && (disk != "" && at == path.Clean(disk) || call.replica == replica) {
				return refuse(reasonDiskNotResponding, "%s", lane.oldestLocked().describe(at))
			}
		}
	}
	return nil
}

// given is the error of a caller with a context that ended before the caller's turn.
func (c *diskCalls) given(ctx context.Context, disk, replica string) error {
	if err := c.refusal(disk, replica); err != nil {
		return err
	}
	return fmt.Errorf("wait for other operations on replica %s or its disk: %w", replica, ctx.Err())
}

func (l *diskLane) oldestLocked() *diskCall {
	var oldest *diskCall
	for call := range l.calls {
		if oldest == nil || call.since.Before(oldest.since) {
			oldest = call
		}
	}
	return oldest
}

// describe returns the same text as long as the call is under way.
func (c *diskCall) describe(disk string) string {
	return fmt.Sprintf("the disk %s has not answered since %s, when the instance manager started to %s replica %s",
		disk, c.since.UTC().Format(time.RFC3339), c.what, c.replica)
}

// states lists the disks that do not respond, by path.
func (c *diskCalls) states() []*proto.DiskState {
	c.mu.Lock()
	defer c.mu.Unlock()
	var silent []*proto.DiskState
	for at, lane := range c.disks {
		for call := range lane.calls {
			if call.late {
				silent = append(silent, &proto.DiskState{Path: at, Reason: reasonDiskNotResponding, Message: lane.oldestLocked().describe(at)})
				break
			}
		}
	}
	slices.SortFunc(silent, func(a, b *proto.DiskState) int { return strings.Compare(a.GetPath(), b.GetPath()) })
	return silent
}

// operation is what attend runs: an action on a replica on a disk.
type operation struct {
	name, what string
	disk       string // path; "" is the disk of the replica that is hosted or parked
}

// attend runs an operation with the replica's name locked, and waits for it for the patience of diskCalls. An operation
// that takes longer continues, and holds the name; its result is passed to discard, if that is set.
func attend[T any](ctx context.Context, h *replicaHost, o operation, run func(context.Context) (T, error), discard func(T)) (T, error) {
	var none T
	if err := h.calls.refusal(o.disk, o.name); err != nil {
		return none, err
	}
	waiting, cancel := context.WithTimeout(ctx, h.calls.wait)
	defer cancel()
	unlock, err := h.names.lockWithin(waiting, o.name)
	if err != nil {
		return none, h.calls.given(waiting, o.disk, o.name)
	}
	if o.disk == "" {
		o.disk = h.diskOf(o.name)
	}
	if o.disk == "" { // then no disk can be involved
		defer unlock()
		return run(context.WithoutCancel(ctx))
	}
	call, leave, err := h.calls.enter(waiting, o.disk, o.name, o.what)
	if err != nil {
		unlock()
		return none, err
	}
	type answer struct {
		value T
		err   error
	}
	answered, gone := make(chan answer), make(chan struct{})
	go func() { // outlives attend, and the process's shutdown, only while the kernel does not answer
		value, err := run(context.WithoutCancel(ctx))
		leave()
		unlock()
		select {
		case answered <- answer{value, err}:
		case <-gone:
			if err == nil && discard != nil {
				discard(value)
			}
		}
	}()
	select {
	case a := <-answered:
		return a.value, a.err
	case <-call.overdue:
	case <-ctx.Done():
	}
	close(gone)
	if err := h.calls.refusal(o.disk, o.name); err != nil {
		return none, err
	}
	return none, fmt.Errorf("%s replica %s: %w", o.what, o.name, cmp.Or(ctx.Err(), context.DeadlineExceeded))
}

// diskOf is the path of the disk of a replica that is hosted or parked; "" if it is neither.
func (h *replicaHost) diskOf(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.hosted[name]; e != nil {
		return e.spec.GetDiskPath()
	}
	if p := h.parked[name]; p != nil {
		return p.spec.GetDiskPath()
	}
	return ""
}
