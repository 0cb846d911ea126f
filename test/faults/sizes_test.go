package faults

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// volumeSizes are what a volume has at first, and what it grows to: within the last region, to where a region ends, and into new ones.
var volumeSizes = []int64{
	4*regionBytes + regionBytes/2,
	4*regionBytes + 3*regionBytes/4,
	regionCount * regionBytes,
	6*regionBytes + regionBytes/2,
	7 * regionBytes,
}

const (
	// early is the bit of a growth's detail that has the engine asked before its members are known to have grown: it must refuse.
	early = 1
	// twice is the bit that has the volume grow by two sizes at once.
	twice = 2
)

// sizes are what the objects of a volume record, each of which only grows.
type sizes struct {
	asked   int64            // of each replica: Volume.status.size
	engine  int64            // of the engine: Engine.spec.volumeSize
	early   bool             // engine follows asked at once
	offered int64            // what users have been offered, by whichever run
	shown   map[string]int64 // what each replica has shown; Replica.status.currentSize
	looked  offer            // at what the members have
	wrong   []string         // what must not be
}

// offer is a size that a run of the engine offers.
type offer struct {
	session string
	bytes   int64
}

func firstSizes() sizes {
	return sizes{asked: volumeSizes[0], engine: volumeSizes[0], offered: volumeSizes[0], shown: map[string]int64{}}
}

// grow asks for a larger volume, as a user does: from here on forward only.
func (v *volume) grow(detail int) {
	v.mu.Lock()
	at := slices.Index(volumeSizes, v.sizes.asked)
	to := min(at+1+detail&twice/twice, len(volumeSizes)-1)
	v.sizes.asked = volumeSizes[to]
	v.sizes.early = v.sizes.early || detail&early != 0
	v.seen.growths += to - at
	v.mu.Unlock()
	v.tell()
}

func (v *volume) askedBytes() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sizes.asked
}

func (v *volume) engineBytes() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sizes.engine
}

func (v *volume) offeredBytes() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sizes.offered
}

func (v *volume) wrongLocked(format string, args ...any) {
	v.sizes.wrong = append(v.sizes.wrong, fmt.Sprintf(format, args...))
}

// wrongSizes says what was wrong with the sizes that were seen; nil for nothing.
func (v *volume) wrongSizes() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var errs []error
	for _, w := range v.sizes.wrong {
		errs = append(errs, errors.New(w))
	}
	return errors.Join(errs...)
}

// noteSizes remembers what the replicas show. None of them ever becomes smaller, whatever its node has lost.
func (v *volume) noteSizes() {
	for _, n := range v.replicaNodes() {
		s, name := v.replicaOn(n), v.replicaName(n)
		size := s.GetSizeBytes()
		if s.GetPhase() != proto.Phase_PHASE_RUNNING || size == 0 {
			continue
		}
		v.mu.Lock()
		if was := v.sizes.shown[name]; size < was {
			v.wrongLocked("replica %s shows %d bytes, and showed %d before", name, size, was)
		}
		if s.GetGrowError() != "" && size < v.sizes.asked {
			v.seen.ungrown++
		}
		v.sizes.shown[name] = size
		v.mu.Unlock()
	}
}

// growEngine records what the engine is to offer: what all members have, and every replica that is on its way. It looks at nothing of that
// for an engine that is asked early.
func (v *volume) growEngine(o membership.Object, e *proto.EngineState) {
	asked := slices.Clone(o.Epoch.Members)
	for _, m := range e.GetMembers() {
		if m.GetRebuilding() {
			asked = append(asked, m.GetName())
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	least := v.sizes.asked
	for _, name := range asked {
		least = min(least, v.sizes.shown[name])
	}
	if v.sizes.early {
		least = v.sizes.asked
	}
	v.sizes.engine = max(v.sizes.engine, least)
}

// expand asks a running engine for the recorded size. It returns whether that is to be done before anything else.
func (v *volume) expand(r *run, e *proto.EngineState) bool {
	v.mu.Lock()
	size := v.sizes.engine
	v.mu.Unlock()
	if e.GetPhase() != proto.Phase_PHASE_RUNNING || e.GetSizeBytes() >= size {
		return false
	}
	v.call("expand", r.node, func(ctx context.Context, c *child) error {
		_, err := c.client.EngineExpand(ctx, &proto.EngineExpandRequest{Name: v.engineName(), Session: r.session, SizeBytes: size})
		return err
	})
	return true
}

// noteOffer remembers what an engine offers to users. Every member that the object lists must have as much, durably, for the next engine may
// begin with any of them: what their directories say is looked at with each offer of each run.
func (v *volume) noteOffer(e *proto.EngineState) {
	size := e.GetSizeBytes()
	if e.GetPhase() != proto.Phase_PHASE_RUNNING || !v.isNewOffer(offer{e.GetSession(), size}) {
		return
	}
	o := v.object.peek() // after the offer: who left before it is not listed
	var lacking []string
	members := 0
	for _, n := range v.replicaNodes() {
		if !o.Epoch.Has(v.replicaName(n)) {
			continue
		}
		has, err := v.recordedSize(n)
		if err != nil {
			continue
		}
		if members++; has < size {
			lacking = append(lacking, fmt.Sprintf("%s has %d bytes", v.replicaName(n), has))
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if lacking != nil {
		v.wrongLocked("%d bytes are offered, and of the members %v", size, lacking)
	}
	if size > v.sizes.offered {
		v.sizes.offered = size
		v.seen.expanded++
		v.seen.looked += members
	}
}

func (v *volume) isNewOffer(o offer) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	was := v.sizes.looked
	v.sizes.looked = o
	return was != o
}

// recordedSize is the size in the metadata of a node's replica; an error while its disk is not there.
func (v *volume) recordedSize(n *node) (int64, error) {
	root, ok := n.diskDir()
	if !ok {
		root = filepath.Join(n.dir, "disk")
	}
	s, err := replica.Inspect(fsys.Host{Root: root}, "/replicas/"+v.replicaName(n))
	return s.SizeBytes, err
}

// checkConnection notes a connection to the present run that sees less than users were offered before it was made.
func (v *volume) checkConnection(r *run, b connection, offered int64) {
	if b.Size() >= offered || r.overAt() != never {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wrongLocked("a user of generation %d sees %d bytes, after %d were offered", r.generation, b.Size(), offered)
}

// hasGrown says whether everything has the size that was asked for.
func (v *volume) hasGrown(e *proto.EngineState) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, n := range v.nodes {
		if p := v.placed[n.number]; p != nil && v.sizes.shown[v.nameOf(n, p.incarnation)] < v.sizes.asked {
			return false
		}
	}
	return e.GetSizeBytes() == v.sizes.asked && v.sizes.offered == v.sizes.asked
}
