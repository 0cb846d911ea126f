package faults

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// volume is one volume on the three nodes, with the controllers' knowledge about it. The object and the nodes are the
// truth. run is the start of the engine that the object stands for.
type volume struct {
	name    string
	nodes   []*node
	object  *object
	history *history
	calls   sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
	news    chan struct{}
	gather  time.Duration // see plan
	rate    atomic.Int64  // see plan.copyRate; 0 after all faults were repaired
	block   bool          // its clients use its block device
	// mayLose is the time since which a member may have lost unflushed data, without a loss of power; 0 if none has.
	mayLose atomic.Int64
	// waiting is the time since which the start of an engine waits for members; zero if none does. Only control uses
	// it.
	waiting time.Time

	mu      sync.Mutex
	run     *run            // guarded by mu; nil before the first start
	older   []*run          // guarded by mu
	changed chan struct{}   // guarded by mu; closed when run changes or serves
	busy    map[string]bool // guarded by mu; calls under way
	want    wish            // guarded by mu
	seen    tally           // guarded by mu
	sizes   sizes           // guarded by mu
	// placed contains the nodes with a replica, by number. Guarded by mu.
	placed       map[int]*placement
	incarnations int           // guarded by mu; replicas that were ever placed
	moving       *transferring // guarded by mu; nil while nothing moves
}

// wish is the history's request to the engine, in addition to serving.
type wish int

const (
	stay     wish = iota
	overtake      // start another elsewhere, whatever the present one does
	move          // stop it in order, then start it elsewhere
	halt          // stop it in order
)

// tally counts the events of a volume.
type tally struct {
	starts, epochs, rebuilds int
	cleared                  int // marks cleared while the volume was served
	slow                     int // replicas expelled because they were slow
	partial                  int // starts with several members that made some regions equal, not all
	refused                  int // writes for which there was no space
	leftMarks                int // orderly stops that left marks
	powerLosses              int
	freezes                  int // disks that hung
	floods                   int // long writes that were acknowledged, or not in time
	devices                  int // volumes that were used by their block device
	wiped                    int // acknowledged discards and zeroes
	slowSyncs, failedSyncs   int // as ordered
	dropped                  int // caches with content that their disk did not have
	stayed                   int // openings at which a part of that stayed cached, in marked regions
	growths                  int // requested sizes
	expanded                 int // offered sizes
	looked                   int // members with metadata that was read when a larger size was offered
	ungrown                  int // checks that found a replica which could not grow
	moved                    int // replicas that moved
	deltas                   int // rebuilds that copied a part of the regions
	goneOn                   int // rebuilds that copied the rest of an interrupted full copy
}

func (t *tally) add(o tally) {
	t.starts += o.starts
	t.epochs += o.epochs
	t.rebuilds += o.rebuilds
	t.cleared += o.cleared
	t.slow += o.slow
	t.partial += o.partial
	t.refused += o.refused
	t.leftMarks += o.leftMarks
	t.powerLosses += o.powerLosses
	t.freezes += o.freezes
	t.floods += o.floods
	t.devices += o.devices
	t.wiped += o.wiped
	t.slowSyncs += o.slowSyncs
	t.failedSyncs += o.failedSyncs
	t.dropped += o.dropped
	t.stayed += o.stayed
	t.growths += o.growths
	t.expanded += o.expanded
	t.looked += o.looked
	t.ungrown += o.ungrown
	t.moved += o.moved
	t.deltas += o.deltas
	t.goneOn += o.goneOn
}

func (t tally) String() string {
	return fmt.Sprintf("%d starts of an engine, %d of them copied a part of the regions, %d epochs, %d rebuilds asked for, %d of part of the regions, %d of the rest of a copy, %d marks cleared, "+
		"%d replicas too slow, %d power losses, %d disks hung, %d long writes, %d writes without space, %d ends in order that left marks, "+
		"%d volumes used by their devices, %d blocks cleared, %d syncs slow, %d failed, %d caches dropped with what was lost, %d openings at which some of that stayed, %d larger sizes asked for, %d offered, %d members looked at, "+
		"%d looks at a replica that could not grow, %d replicas moved",
		t.starts, t.partial, t.epochs, t.rebuilds, t.deltas, t.goneOn, t.cleared, t.slow, t.powerLosses, t.freezes, t.floods, t.refused, t.leftMarks,
		t.devices, t.wiped, t.slowSyncs, t.failedSyncs, t.dropped, t.stayed, t.growths, t.expanded, t.looked, t.ungrown, t.moved)
}

// run is one start of the engine.
type run struct {
	node       *node
	generation int64
	session    string
	child      *child        // the process that got the start
	served     chan struct{} // closed when it serves
	leave      chan struct{} // closed when its clients must leave it
	succeeded  chan struct{} // closed when a later run serves

	mu      sync.Mutex
	shown   bool  // guarded by mu; the node has shown it
	members int   // guarded by mu; the number of members with which it started to serve
	over    int64 // guarded by mu; when a later run served, in the time of the history
}

func (r *run) overAt() int64 {
	if r == nil {
		return never
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// replicaName is the name of the replica on a node. If there is none, no replica has the name.
func (v *volume) replicaName(n *node) string { return v.nameOf(n, v.placementOn(n).incarnation) }
func (v *volume) engineName() string         { return v.name + "-e-0" }

func (v *volume) nameOf(n *node, incarnation int) string {
	return fmt.Sprintf("%s-r-%d-%d", v.name, n.number, incarnation)
}

func (v *volume) replicaSpec(n *node) *proto.ReplicaSpec {
	name := v.replicaName(n)
	return &proto.ReplicaSpec{
		Name: name, Volume: v.name, Uid: "uid-" + name, Directory: "/disk/replicas/" + name,
		DiskPath: "/disk", DiskUuid: diskUUID, SizeBytes: v.askedBytes(), Secret: secret,
	}
}

func (v *volume) member(n *node) *proto.Member {
	return &proto.Member{Name: v.replicaName(n), Uid: v.replicaSpec(n).GetUid(), Address: n.proxy.address(), Tls: true}
}

// newVolume creates the replicas.
func newVolume(name string, nodes []*node, news chan struct{}, p plan) (*volume, error) {
	v := &volume{
		name: name, nodes: nodes, object: &object{}, news: news, history: &history{began: time.Now()},
		changed: make(chan struct{}), busy: map[string]bool{}, gather: p.gather, block: p.block && canHaveDevices(),
		sizes: firstSizes(), placed: map[int]*placement{},
	}
	v.rate.Store(p.copyRate)
	v.ctx, v.cancel = context.WithCancel(context.Background())
	for _, n := range nodes[:p.replicas] {
		v.incarnations++
		v.placed[n.number] = &placement{incarnation: v.incarnations, made: true}
		c, _ := n.now()
		if _, err := c.client.ReplicaCreate(v.ctx, v.replicaSpec(n)); err != nil {
			return nil, fmt.Errorf("create a replica on node %d: %w", n.number, err)
		}
		if _, err := c.client.ReplicaStart(v.ctx, v.replicaSpec(n)); err != nil {
			return nil, fmt.Errorf("start a replica on node %d: %w", n.number, err)
		}
	}
	return v, nil
}

// remove deletes the replicas. The engine must be stopped.
func (v *volume) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, n := range v.replicaNodes() {
		c, _ := n.now()
		if _, err := c.client.ReplicaStop(ctx, &proto.ReplicaRef{Name: v.replicaName(n)}); err != nil {
			return fmt.Errorf("stop the replica on node %d: %w", n.number, err)
		}
		if _, err := c.client.ReplicaRemove(ctx, v.replicaSpec(n)); err != nil {
			return fmt.Errorf("remove the replica of node %d: %w", n.number, err)
		}
	}
	return nil
}

// replicaOn returns a node's report about its replica, or nil.
func (v *volume) replicaOn(n *node) *proto.ReplicaState {
	_, s := n.now()
	name := v.replicaName(n)
	for _, r := range s.GetReplicas() {
		if r.GetName() == name {
			return r
		}
	}
	return nil
}

// engineOn returns a node's report about the volume's engine, or nil.
func (v *volume) engineOn(n *node) *proto.EngineState {
	_, s := n.now()
	for _, e := range s.GetEngines() {
		if e.GetVolume() == v.name {
			return e
		}
	}
	return nil
}

// current returns the present run and a channel that is closed when the run may have changed.
func (v *volume) current() (*run, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.run, v.changed
}

func (v *volume) announceLocked() {
	close(v.changed)
	v.changed = make(chan struct{})
}

func (v *volume) wishes() wish {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.want
}

// wish makes a request. It is fulfilled when the wish is stay again, or when the engine has stopped.
func (v *volume) wish(w wish) {
	v.mu.Lock()
	v.want = w
	v.mu.Unlock()
	v.tell()
}

func (v *volume) tell() {
	select {
	case v.news <- struct{}{}:
	default:
	}
}

// isWhole reports whether the engine serves with all replicas as members, with the requested size, and with nothing
// under way.
func (v *volume) isWhole() bool {
	r, _ := v.current()
	if r == nil || !isClosed(r.served) || v.wishes() != stay {
		return false
	}
	e := v.engineOn(r.node)
	if e.GetSession() != r.session || e.GetPhase() != proto.Phase_PHASE_RUNNING || e.GetProposedEpoch() != nil || v.transfer() != nil || !v.hasGrown(e) {
		return false
	}
	o, err := v.object.read()
	return err == nil && len(o.Epoch.Members) == len(v.replicaNodes()) && epochFromWire(e.GetEpoch()).Equal(o.Epoch)
}
