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

// volumeSizes are the size of a volume at first, and its later sizes: within the last region, to the end of a region,
// and into new regions.
var volumeSizes = []int64{
	4*regionBytes + regionBytes/2,
	4*regionBytes + 3*regionBytes/4,
	regionCount * regionBytes,
	6*regionBytes + regionBytes/2,
	7 * regionBytes,
}

const (
	// early is the bit of a growth's detail with which the engine gets the request before its members are known to have
	// grown: it must refuse.
	early = 1
	// twice is the bit with which the volume grows by two sizes at once.
	twice = 2
)

// sizes are the sizes that the objects of a volume record. Each of them only grows.
type sizes struct {
	asked   int64            // of each replica: Volume.status.size
	engine  int64            // of the engine: Engine.spec.volumeSize
	early   bool             // engine follows asked at once
	offered int64            // the largest size that any run has offered to users
	shown   map[string]int64 // the last size of each replica; Replica.status.currentSize
	looked  offer            // the offer for which the members' sizes were last checked
	wrong   []string         // the violations
}

// offer is a size that a run of the engine offers.
type offer struct {
	session string
	bytes   int64
}

func firstSizes() sizes {
	return sizes{asked: volumeSizes[0], engine: volumeSizes[0], offered: volumeSizes[0], shown: map[string]int64{}}
}

// grow requests a larger volume, like a user. A volume never becomes smaller.
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

// wrongSizes returns an error for all wrong sizes that were seen, or nil.
func (v *volume) wrongSizes() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var errs []error
	for _, w := range v.sizes.wrong {
		errs = append(errs, errors.New(w))
	}
	return errors.Join(errs...)
}

// noteSizes records the sizes that the replicas show. None of them ever becomes smaller, whatever its node has lost.
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

// growEngine records the size that the engine must offer: the size of all members, and of every joining replica. For an
// early request, it checks none of that.
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

// expand requests the recorded size from a running engine. It reports whether this must be done before anything else.
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

// noteOffer records the size that an engine offers to users. Every member that the object lists must have at least this
// size, durably, because the next engine may start with any of them. So the metadata of the members is checked at each
// offer of each run.
func (v *volume) noteOffer(e *proto.EngineState) {
	size := e.GetSizeBytes()
	if e.GetPhase() != proto.Phase_PHASE_RUNNING || !v.isNewOffer(offer{e.GetSession(), size}) {
		return
	}
	o := v.object.peek() // after the offer: a replica that left before is not listed
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

// recordedSize returns the size in the metadata of a node's replica. It returns an error while the replica's disk is
// missing.
func (v *volume) recordedSize(n *node) (int64, error) {
	root, ok := n.diskDir()
	if !ok {
		root = filepath.Join(n.dir, "disk")
	}
	s, err := replica.Inspect(fsys.Host{Root: root}, "/replicas/"+v.replicaName(n))
	return s.SizeBytes, err
}

// checkConnection records an error if a connection to the present run has a smaller size than users were offered before
// the connection.
func (v *volume) checkConnection(r *run, b connection, offered int64) {
	if b.Size() >= offered || r.overAt() != never {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wrongLocked("a user of generation %d sees %d bytes, after %d were offered", r.generation, b.Size(), offered)
}

// hasGrown reports whether everything has the requested size.
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
