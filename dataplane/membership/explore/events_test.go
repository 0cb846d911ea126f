package explore

import "fmt"

type kind uint8

const (
	evRaise kind = iota
	evFence
	evCut
	evHeal
	evBackup
	evRestore
	evReplicaStops
	evReplicaReturns
	evStart
	evAdmit
	evPlan
	evPropose
	evRecord
	evStore
	evEqualize
	evServe
	evWrite
	evApply
	evFail
	evAck
	evRefuse
	evUnmark
	evRebuild
	evCopy
	evAsk
	evEngineStops
)

var kindNames = [...]string{
	"the leader raises the generation", "replica is fenced", "API server cut off", "API server back", "object backed up",
	"object restored from the backup", "replica stops", "replica returns", "start", "admitted by", "plans its start", "proposes",
	"object records the proposal", "proposal stored by", "makes marked writes equal from",
	"unmarks and serves", "begins a write", "write applied by", "sees fail", "acknowledges the write", "refuses the write",
	"clears marks", "begins to rebuild", "copies from", "asks what was changed", "stops",
}

// event is one step. k is its engine and i its replica (or subset), if the kind has them.
type event struct {
	kind kind
	k, i uint8
}

func (e event) String() string {
	switch {
	case e.kind <= evRestore && e.kind != evFence:
		return kindNames[e.kind]
	case e.kind <= evReplicaReturns:
		return fmt.Sprintf("%s: %s", kindNames[e.kind], names[e.i])
	case e.kind == evRefuse:
		return fmt.Sprintf("engine %d %s, left on %03b", e.k+1, kindNames[e.kind], e.i)
	case e.kind == evAsk,
		e.kind == evAdmit, e.kind == evStore, e.kind == evEqualize, e.kind == evApply, e.kind == evFail, e.kind == evRebuild, e.kind == evCopy:
		return fmt.Sprintf("engine %d %s %s", e.k+1, kindNames[e.kind], names[e.i])
	}
	return fmt.Sprintf("engine %d %s", e.k+1, kindNames[e.kind])
}

// step collects the successors of one state.
type step struct {
	*search
	from *state
	emit func(event, state, string) bool // returns false when it needs no further ones
	done bool
}

// successors calls emit for each event that can happen now. It passes the state after the event, and the rule that the
// event itself breaks, if any. It stops when emit returns false.
func (s *search) successors(from *state, emit func(ev event, to state, broken string) bool) {
	st := &step{search: s, from: from, emit: emit}
	st.cluster()
	for i := range replicas {
		st.replicaEvents(i)
	}
	for k := range engines {
		switch from.engine[k].phase {
		case off:
			st.startEngine(k)
		case admitting:
			st.admission(k)
		default:
			st.epochs(k)
			st.opening(k)
			st.changes(k)
			st.failures(k)
			st.rebuilding(k)
		}
		st.engineStops(k)
	}
}

// to emits the state after change.
func (st *step) to(ev event, change func(*state)) { st.toBroken(ev, change, "") }

func (st *step) toBroken(ev event, change func(*state), broken string) {
	if st.done {
		return
	}
	next := *st.from
	change(&next)
	st.done = !st.emit(ev, next, broken)
}

// cluster covers the events of the object. All of them need the API server, except the one in which the server becomes
// unreachable.
func (st *step) cluster() {
	s := st.from
	if !s.api {
		st.to(event{kind: evHeal}, func(s *state) { s.api = true })
		return
	}
	if s.spent.cuts < st.cuts {
		st.to(event{kind: evCut}, func(s *state) { s.api = false; s.spent.cuts++ })
	}
	if s.spent.raises < st.raises && s.object.generation > 0 {
		st.to(event{kind: evRaise}, func(s *state) {
			s.object.generation++
			s.object.session = fence
			s.spent.raises++
		})
	}
	if s.spent.backups < st.rollbacks {
		st.to(event{kind: evBackup}, func(s *state) { s.backup = s.object; s.spent.backups++ })
	}
	if s.spent.backups > 0 && !s.restored && s.backup != s.object {
		st.to(event{kind: evRestore}, func(s *state) { s.object = s.backup; s.restored = true })
	}
}

// replicaEvents covers the events of a replica without an engine.
func (st *step) replicaEvents(i int) {
	s, r := st.from, &st.from.replica[i]
	ev := event{i: uint8(i)}
	if !r.up {
		ev.kind = evReplicaReturns
		st.to(ev, func(s *state) { s.replica[i].up = true })
		return
	}
	if s.spent.crashes < st.crashes {
		ev.kind = evReplicaStops
		st.to(ev, func(s *state) {
			s.replica[i].up, s.replica[i].live = false, nobody
			s.spent.crashes++
		})
	}
	if s.object.session == fence && r.generation < s.object.generation {
		ev.kind = evFence
		st.to(ev, func(s *state) {
			r := &s.replica[i]
			r.generation, r.session, r.live = s.object.generation, fence, nobody
			if s.object.epoch.members().has(i) || st.rules.fencesOutsiders {
				s.fenced = max(s.fenced, s.object.generation)
			}
		})
	}
}

// startEngine raises the generation by a compare-and-swap and starts an engine under it, while the other engine may
// still run.
func (st *step) startEngine(k int) {
	if !st.from.api || st.from.spent.starts >= st.starts || st.alone && st.from.engine[1-k].phase != off {
		return
	}
	st.to(event{kind: evStart, k: uint8(k)}, func(s *state) {
		s.spent.starts++
		s.object.generation++
		s.object.session = s.spent.starts
		s.engine[k] = engineState{phase: admitting, generation: s.object.generation, session: s.object.session, recorded: s.object.epoch}
	})
}

// engineStops makes an engine lose all its knowledge, at any moment.
func (st *step) engineStops(k int) {
	if st.from.engine[k].phase == off || st.from.spent.crashes >= st.crashes {
		return
	}
	st.to(event{kind: evEngineStops, k: uint8(k)}, func(s *state) {
		s.spent.crashes++
		s.end(k)
	})
}

// end stops an engine, for any reason: its connections close.
func (s *state) end(k int) {
	for i := range s.replica {
		if s.replica[i].live == s.engine[k].session {
			s.replica[i].live = nobody
		}
	}
	s.engine[k] = engineState{}
}

// reaches reports whether replica i would serve a request of engine k.
func (s *state) reaches(k, i int) bool {
	return s.replica[i].up && s.replica[i].live == s.engine[k].session
}
