package explore

import (
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

type kind uint8

const (
	evStart kind = iota
	evFollow
	evServe
	evEngineDies
	evWrite
	evTrim
	evPartialWrite
	evFlush
	evGrow
	evIntend
	evPrepare
	evSwitch
	evSeal
	evReady
	evGiveUp
	evDelete
	evForget
	evHold
	evRelease
	evJoin
	evPiece
	evFuse
	evLocalHead
	evRevert
	evRevertEarly
	evAway
	evBack
	evExpel
	evLosesPower
	evRebuild
	evStage
	evCut
	evJoinTarget
	evBackup
	evRestore
)

var kindNames = [...]string{
	"an engine starts: the object records line and epoch", "follows the line", "marked blocks are made equal from", "the engine dies",
	"a write is acknowledged, block", "a trim is acknowledged, block", "the engine dies in a write, block, on members", "a flush is acknowledged",
	"the volume grows", "the object intends a snapshot", "prepares its next head", "the gate is shut, all members switch, the gate opens",
	"flushes and stores 'flushed'", "the object says ready", "the attempt ends: the number leaves the line, the caller gets the error",
	"is deleted by the user", "is shown by no member and leaves the line", "is held by a job", "is released", "joins border",
	"moves a block (file, direction and block)", "removes a merged file", "puts a local head on", "the object records a revert to",
	"drops layers before the object knows", "goes away", "comes back", "the object records an epoch without the failed members",
	"loses power", "a rebuild starts of (from)", "the rebuild makes the next point", "the rebuild is interrupted in the middle of a point",
	"the target has all and joins", "the object is backed up", "the object is restored from the backup",
}

// event is one indivisible step: durable data survives the next stop, everything else is lost.
type event struct {
	kind kind
	i, j uint8
}

func (e event) String() string {
	who := memberNames[e.i%maxMembers]
	switch e.kind {
	case evFollow, evPrepare, evSeal, evRevertEarly, evAway, evBack, evLocalHead:
		return who + " " + kindNames[e.kind]
	case evFuse:
		return fmt.Sprintf("%s %s: file %d", who, kindNames[e.kind], e.j+1)
	case evJoin:
		return fmt.Sprintf("%s %s %d", who, kindNames[e.kind], e.j)
	case evPiece:
		return fmt.Sprintf("%s %s: between files %d and %d, %s, block %d", who, kindNames[e.kind], e.j/16+1, e.j/16+2, []string{"up", "down"}[e.j/8%2], e.j%8)
	case evLosesPower:
		return fmt.Sprintf("%s %s (outcome %d)", who, kindNames[e.kind], e.j)
	case evServe:
		return kindNames[e.kind] + " " + who
	case evWrite, evTrim, evRevert:
		return fmt.Sprintf("%s %d", kindNames[e.kind], e.i)
	case evPartialWrite:
		return fmt.Sprintf("%s %d %v", kindNames[e.kind], e.i, set(e.j).names())
	case evRebuild:
		return fmt.Sprintf("%s %s, %s", kindNames[e.kind], who, memberNames[e.j])
	case evDelete, evForget, evHold, evRelease:
		return fmt.Sprintf("point %d %s", e.i, kindNames[e.kind])
	}
	return kindNames[e.kind]
}

// step collects the successors of one state.
type step struct {
	bounds
	rules rules
	from  *state
	emit  func(event, state, string)
	goals map[string]int
}

func (st *step) to(ev event, change func(*state)) { st.broken(ev, change, "") }

func (st *step) broken(ev event, change func(*state), why string) {
	next := *st.from
	change(&next)
	st.emit(ev, next, why)
}

func (st *step) all() {
	s := st.from
	for i := range int(st.members) {
		st.presence(i)
	}
	switch s.engine.phase {
	case off:
		st.start()
		st.object()
		st.revertsDetached()
		return
	case following:
		st.opening()
	case serving:
		st.changes()
		st.barrier()
		st.points()
		st.rebuild()
		for i := range int(st.members) {
			if s.engine.roster.has(i) && !s.engine.leaving.has(i) {
				st.merges(i)
			}
		}
	}
	st.expel()
	if s.spent.crashes < st.crashes {
		st.to(event{kind: evEngineDies}, func(s *state) {
			s.engine = engine{}
			s.spent.crashes++
		})
	}
}

// presence covers members that go away, come back and lose power.
func (st *step) presence(i int) {
	s, m := st.from, &st.from.member[i]
	e := &s.engine
	others := e.roster &^ e.leaving &^ only(i)
	usable := e.phase == off || !e.roster.has(i) || others != 0
	if m.up && s.spent.absences < st.absences && usable {
		st.to(event{evAway, uint8(i), 0}, func(s *state) {
			s.member[i].up = false
			s.fails(i)
			s.spent.absences++
		})
	}
	if !m.up {
		st.to(event{evBack, uint8(i), 0}, func(s *state) { s.member[i].up = true })
	}
	if s.spent.losses < st.losses && usable {
		st.power(i)
	}
}

// fails ends the session of a member, or the rebuild of a target.
func (s *state) fails(i int) {
	e := &s.engine
	s.member[i].prepared = false
	if e.roster.has(i) {
		e.leaving |= only(i)
	}
	if e.target == uint8(i)+1 || e.source == uint8(i)+1 {
		e.target, e.source, e.done, e.doneNonce, e.own = 0, 0, 0, 0, false
	}
}

// power emits each outcome of a loss of power.
func (st *step) power(i int) {
	m := st.from.member[i]
	outcomes := []member{m}
	for f := range int(m.n) {
		for b := range maxBlocks {
			c := m.files[f].cells[b]
			if c.disk&(c.disk-1) == 0 {
				continue
			}
			var more []member
			for _, o := range outcomes {
				for rest := c.disk; rest != 0; rest &= rest - 1 {
					w := rest & -rest
					o.files[f].cells[b] = cell{w, w}
					more = append(more, o)
				}
			}
			outcomes = more
		}
	}
	if len(outcomes) > 1 {
		st.goals[goalLost]++
	}
	for n, o := range outcomes {
		st.to(event{evLosesPower, uint8(i), uint8(n)}, func(s *state) {
			s.member[i] = o
			s.member[i].lossy = true
			s.fails(i)
			s.spent.losses++
		})
	}
}

// object covers a backup of the object and its restoration, while no engine runs.
func (st *step) object() {
	s := st.from
	if s.spent.backups > 0 && s.spent.restores == 0 && s.backup != s.object {
		st.to(event{kind: evRestore}, func(s *state) {
			s.object, s.restored = s.backup, true
			s.spent.restores++
		})
	}
}

// start is one write of the object. The present members are up, and the recorded epoch lists them.
func (st *step) start() {
	s := st.from
	var present set
	var chains []layers.Chain
	followedLast := s.lastBy == 0
	for i := range int(st.members) {
		m := &s.member[i]
		if m.epoch > s.object.epoch {
			if m.up {
				st.goals[goalRolledBack]++
			}
			return // refused; or no replica that is present can prove it, which membership/explore covers
		}
		if !m.up {
			continue
		}
		if s.object.members.has(i) {
			present |= only(i)
			chains = append(chains, m.chain())
			followedLast = followedLast || m.reverted.by == s.lastBy
		}
	}
	if present == 0 {
		return
	}
	if s.restored && !followedLast {
		return // no replica that is present knows of the revert
	}
	plan, err := st.rules.planStart(s.object.line(), chains)
	ev := event{kind: evStart}
	if err != nil || st.rules.strict && unknownBorder(s.object.line(), chains) {
		st.broken(ev, func(*state) {}, "V7: a start is refused though members with all data are present")
		return
	}
	if len(plan.Adopted) > 0 {
		st.goals[goalAdopted]++
	}
	if len(plan.Line.Points) > maxPoints || len(plan.Line.Reverted) > maxReverts {
		return
	}
	st.to(ev, func(s *state) {
		if len(plan.Line.Reverted) > len(s.object.line().Reverted) {
			st.goals[goalAdoptedRevert]++
		}
		s.object.setLine(plan.Line)
		s.object.epoch++
		s.object.members = present
		s.engine = engine{phase: following, roster: present}
		s.restored = false
	})
}

func unknownBorder(l layers.Line, members []layers.Chain) bool {
	for _, c := range members {
		for _, layer := range c.Layers {
			if layer.Top.Number > 0 && l.State(layer.Top.Point) == layers.Unknown {
				return true
			}
		}
	}
	return false
}

// opening covers the time from the record of a start, or of a revert, to the first request.
func (st *step) opening() {
	s := st.from
	e := &s.engine
	for i := range int(st.members) {
		if !e.roster.has(i) || e.leaving.has(i) || e.followed.has(i) {
			continue
		}
		f := st.rules.follow(s.object.line(), s.member[i].chain())
		if len(f.Dropped) > 0 {
			st.goals[goalDropped]++
		}
		if len(f.Joined) > 0 && s.member[i].files[s.member[i].n-1].cells != emptyCells {
			st.goals[goalGivenUp]++
		}
		why := ""
		if f.Short {
			why = "V8: a member of the start does not have the point of a revert"
		}
		st.broken(event{evFollow, uint8(i), 0}, func(s *state) {
			m := &s.member[i]
			m.prepared = false
			if !m.setChain(f.Chain) {
				panic("BUG: no room for a chain that has followed the line")
			}
			m.epoch = s.object.epoch
			s.engine.followed |= only(i)
		}, why)
	}
	if e.leaving != 0 || e.followed != e.roster {
		return
	}
	for i := range int(st.members) {
		if e.roster.has(i) && (!s.member[i].lossy || s.allLossy()) {
			st.serve(i)
		}
	}
}

func (s *state) allLossy() bool {
	for i := range s.member {
		if s.engine.roster.has(i) && !s.member[i].lossy {
			return false
		}
	}
	return true
}

// serve makes marked blocks equal, from one source, and opens the gate.
func (st *step) serve(source int) {
	s := st.from
	from, why := &s.member[source], ""
	var marked set
	for i := range int(st.members) {
		if s.engine.roster.has(i) {
			marked |= s.member[i].marked
		}
	}
	for b := range int(s.size) {
		allowed := s.live[b]
		if from.lossy {
			allowed = s.allowed[b]
		}
		if w := from.read(b); w&allowed == 0 {
			why = fmt.Sprintf("V6: an acknowledged change is lost: block %d of %s reads %v, allowed %v", b, memberNames[source], w, allowed)
		}
	}
	st.broken(event{evServe, uint8(source), 0}, func(s *state) {
		for i := range int(st.members) {
			if !s.engine.roster.has(i) {
				continue
			}
			m := &s.member[i]
			for b := range int(s.size) {
				if w := s.member[source].read(b); marked.has(b) && m.read(b) != w && !st.rules.doesNotEqualize {
					m.put(int(m.n)-1, b, w)
				}
			}
			m.flush(st.rules.flushesTopOnly)
			m.marked, m.lossy = 0, false
		}
		for b := range s.truth {
			w := s.member[source].read(b)
			s.truth[b], s.live[b], s.allowed[b] = w, w, w
		}
		s.engine.phase, s.engine.followed = serving, 0
	}, why)
}

// receivers get every change.
func (s *state) receivers() set { return s.engine.roster &^ s.engine.leaving }

// changes are the requests of users. They wait while an epoch is to be recorded.
func (st *step) changes() {
	s := st.from
	if s.engine.leaving != 0 {
		return
	}
	for b := range min(int(s.size), int(st.blocks)) {
		if s.spent.writes < st.writes && (b == 0 || s.written.has(b-1)) {
			w := value(s.spent.writes + 1)
			st.to(event{evWrite, uint8(b), 0}, func(s *state) {
				s.change(b, w, s.receivers(), everyBlock)
				s.spent.writes++
			})
			if st.partial && s.spent.crashes < st.crashes {
				st.partialWrites(b, w)
			}
		}
		if s.spent.trims < st.trims {
			st.trim(b)
		}
	}
	st.to(event{kind: evFlush}, func(s *state) {
		for i := range int(st.members) {
			if s.engine.roster.has(i) {
				s.member[i].flush(st.rules.flushesTopOnly)
				s.member[i].marked = 0
			}
		}
		s.allowed, s.live = s.truth, s.truth
	})
	if st.grows && s.size < st.blocks {
		st.to(event{kind: evGrow}, func(s *state) { s.size++ })
	}
	if s.spent.backups < st.backups && (s.engine.stage == noBarrier || st.backupInAttempt) {
		st.to(event{kind: evBackup}, func(s *state) { s.backup = s.object; s.spent.backups++ })
	}
}

func everyBlock(*member, int) bool { return true }

// change writes a word to the active files, where enter says that the block gets a bit.
func (s *state) change(b int, w word, on set, enter func(*member, int) bool) {
	for i := range s.member {
		if m := &s.member[i]; on.has(i) {
			place := m.active()
			if enter(m, place) {
				m.put(place, b, w)
			}
			m.marked |= only(b)
		}
	}
	s.truth[b], s.live[b] = w, w
	s.allowed[b] |= w
	s.written |= only(b)
}

func (st *step) partialWrites(b int, w word) {
	all := st.from.receivers()
	for on := set(1); on <= all; on++ {
		if on&^all != 0 {
			continue
		}
		st.to(event{evPartialWrite, uint8(b), uint8(on)}, func(s *state) {
			truth, live := s.truth[b], s.live[b]
			s.change(b, w, on, everyBlock)
			s.truth[b], s.live[b] = truth, live|w
			s.engine = engine{}
			s.spent.writes++
			s.spent.crashes++
		})
	}
}

func (st *step) trim(b int) {
	st.to(event{evTrim, uint8(b), 0}, func(s *state) {
		written := s.written
		s.change(b, zeroes, s.receivers(), func(m *member, place int) bool {
			has := m.files[place].cells[b].now != absent
			below := false
			for i := range place {
				below = below || m.files[i].cells[b].now != absent
			}
			e := st.rules.onDiscard(has, below)
			return has && e.Punch || e.Enter
		})
		s.written = written
		s.spent.trims++
	})
}

// expel records an epoch without the members that have failed.
func (st *step) expel() {
	s := st.from
	e := &s.engine
	if e.leaving == 0 || e.leaving == e.roster {
		return
	}
	st.to(event{kind: evExpel}, func(s *state) {
		e := &s.engine
		s.object.epoch++
		s.object.members = e.roster &^ e.leaving
		e.roster, e.leaving = s.object.members, 0
		e.followed &= e.roster
		for i := range s.member {
			if e.roster.has(i) {
				s.member[i].epoch = s.object.epoch
			}
		}
	})
}
