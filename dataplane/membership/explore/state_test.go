package explore

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

const (
	replicas = 3
	engines  = 2
	nobody   = 0
	fence    = 15 // the session of a generation that was raised for no engine
)

// set is a set of replicas or of writes, one bit for each.
type set uint8

func one(i int) set             { return 1 << i }
func (s set) has(i int) bool    { return s&one(i) != 0 }
func (s set) within(o set) bool { return s&^o == 0 }
func (s set) len() int          { return bits.OnesCount8(uint8(s)) }

var names = [replicas]string{"a", "b", "c"}

func (s set) names() []string {
	var out []string
	for i, n := range names {
		if s.has(i) {
			out = append(out, n)
		}
	}
	return out
}

// epoch is a membership.Epoch in 16 bits: generation, 5 bits of counter, 3 bits of members. Zero is none.
type epoch uint16

func epochOf(generation, counter int64, members set) epoch {
	if generation > 255 || counter > 31 {
		panic("BUG: an epoch beyond the model's bounds")
	}
	return epoch(generation<<8 | counter<<3 | int64(members))
}

func (e epoch) members() set { return set(e & 7) }

func (e epoch) value() membership.Epoch {
	if e == 0 {
		return membership.Epoch{}
	}
	return membership.NewEpoch(int64(e>>8), int64(e>>3&31), e.members().names())
}

func fromValue(v membership.Epoch) epoch {
	var m set
	for i, n := range names {
		if v.Has(n) {
			m |= one(i)
		}
	}
	return epochOf(v.Generation, v.Counter, m)
}

func (e epoch) String() string { return e.value().String() }

// object is the state of the object in the API server.
type object struct {
	generation, session uint8
	epoch               epoch
}

type replicaState struct {
	// Durable: the last admitted engine, the stored epoch, whether the replica is being rebuilt, the writes that its
	// data has, and the writes that are marked as possibly unequal.
	generation, session uint8
	epoch               epoch
	rebuilding          bool
	held, marked        set
	record
	// Lost when it stops.
	up   bool
	live uint8 // the session that it serves
	// Ghost: a rebuild of it was started, and since then no epoch was recorded that lists it.
	partial bool
}

type phase uint8

const (
	off       phase = iota
	admitting       // asks replicas
	starting        // has planned an epoch, serves no user
	running         // serves
)

// shown is the answer of a replica when it admitted the engine.
type shown struct {
	asked, rebuilding bool
	epoch             epoch
	partial           bool // ghost
}

// engineState is lost as a whole when the engine stops.
type engineState struct {
	phase               phase
	generation, session uint8
	recorded            epoch // in the object when the generation was raised; until the plan
	shown               [replicas]shown

	inForce  epoch // the object and all members hold it
	proposed epoch // 0 if none; the proposal stands until it is in force
	told     bool  // the object holds, or held, the proposal, and the engine knows this
	stored   set   // the replicas that stored the proposal
	synced   bool  // at a start: marked writes were made equal, and are not yet unmarked

	serving set   // get every write; listed by the epoch in force or proposed
	leaving set   // failed, but still listed
	uneven  set   // writes that serving members may hold or not, because all of them refused
	write   uint8 // 1 + the write under way, or 0
	applied set   // the replicas that confirmed it
	target  uint8 // 1 + the replica that is being rebuilt, or 0
	copied  bool
	lacking
}

// spent counts the events that are bounded.
type spent struct {
	starts, raises, fails, crashes, rebuilds, cuts, backups uint8
}

// state is the whole state. It is a value: no pointers, comparable.
type state struct {
	object   object
	api      bool // reachable
	backup   object
	restored bool // the object is older than its newest version
	replica  [replicas]replicaState
	engine   [engines]engineState
	begun    uint8 // writes
	spent    spent

	// Ghosts.
	acked  set   // writes acknowledged to a user
	newest epoch // the highest epoch ever recorded
	// fenced is a generation that a member of the recorded epoch confirmed for a fence; the volume counts as detached.
	fenced uint8
	late   set // writes that an older engine started after that
}

func initial() state {
	s := state{api: true}
	for i := range s.replica {
		s.replica[i].up = true
	}
	return s
}

// String returns the form for the trace of a violation.
func (s state) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "object %d/%d %v", s.object.generation, s.object.session, s.object.epoch)
	if !s.api {
		b.WriteString(" (away)")
	}
	fmt.Fprintf(&b, "  acked %b", s.acked)
	for i, r := range s.replica {
		fmt.Fprintf(&b, "\n    %s: gen %d/%d live %d %v held %b marked %b", names[i], r.generation, r.session, r.live, r.epoch, r.held, r.marked)
		if !r.up {
			b.WriteString(" DOWN")
		}
		if r.rebuilding {
			b.WriteString(" REBUILDING")
		}
	}
	for k, e := range s.engine {
		if e.phase != off {
			fmt.Fprintf(&b, "\n    engine %d: phase %d gen %d/%d force %v proposed %v (told %v stored %03b) serving %03b leaving %03b write %d applied %03b target %d",
				k+1, e.phase, e.generation, e.session, e.inForce, e.proposed, e.told, e.stored, e.serving, e.leaving, e.write, e.applied, e.target)
		}
	}
	return b.String()
}
