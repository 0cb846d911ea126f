package explore

import "fmt"

// hold reports whether every one of the members has all the writes.
func (s *state) hold(members, writes set) bool {
	for i := range replicas {
		if members.has(i) && !writes.within(s.replica[i].held) {
			return false
		}
	}
	return true
}

// equal reports whether the members agree on some writes.
func (s *state) equal(members, writes set) bool {
	all, any := writes, set(0)
	for i := range replicas {
		if members.has(i) {
			all &= s.replica[i].held
			any |= s.replica[i].held & writes
		}
	}
	return all == any
}

// marks returns the union of the members' marks.
func (s *state) marks(members set) (out set) {
	for i := range replicas {
		if members.has(i) {
			out |= s.replica[i].marked
		}
	}
	return out
}

// violation returns the invariant that the state breaks, or "".
//
//	I1  every acknowledged write is on every member of the recorded epoch
//	I3  a recorded epoch has a member
//	I6  members of a serving engine without requests under way are equal, or one of them has marked the difference
//	I7  if a member of the recorded epoch had confirmed a higher generation before an engine started a write,
//	    that write is never acknowledged
//
// I1 is about the object as it was written. For an object that was rolled back it cannot be checked, and starts are
// checked instead (brokenStart).
func (s *state) violation() string {
	switch {
	case s.object.epoch != 0 && s.object.epoch.members() == 0:
		return "I3: the recorded epoch has no member"
	case !s.restored && s.object.epoch != 0 && !s.hold(s.object.epoch.members(), s.acked):
		return fmt.Sprintf("I1: a member of the recorded epoch %v lacks an acknowledged write (of %b)", s.object.epoch, s.acked)
	case s.acked&s.late != 0:
		return "I7: a write was acknowledged that was begun by an engine whose volume was detached"
	}
	for k := range s.engine {
		if e := &s.engine[k]; e.phase == running && e.proposed == 0 && e.leaving == 0 {
			if i, j := s.unequal(k); i >= 0 {
				return fmt.Sprintf("I6: %s and %s differ unmarked while engine %d serves", names[i], names[j], k+1)
			}
		}
	}
	return ""
}

// unequal finds two members that a running engine can reach and that differ without a mark.
func (s *state) unequal(k int) (int, int) {
	e := &s.engine[k]
	var under set
	if e.write != nobody {
		under = 1 << (e.write - 1)
	}
	under |= e.uneven | s.marks(e.serving)
	for i := range replicas {
		for j := range i {
			if e.serving.has(i) && e.serving.has(j) && s.reaches(k, i) && s.reaches(k, j) && (s.replica[i].held^s.replica[j].held)&^under != 0 {
				return i, j
			}
		}
	}
	return -1, -1
}

// brokenStart checks the plan of a start.
//
//	I4  it takes only members of the recorded epoch, and no replica with an incomplete copy
//	I5  it is refused if, and only if, a replica that answered has stored an epoch that the object has lost
func (s *state) brokenStart(e *engineState, planned epoch) string {
	members := planned.members()
	if members == 0 {
		return "I3: a start without a member"
	}
	if e.recorded != 0 && !members.within(e.recorded.members()) {
		return fmt.Sprintf("I4: a start with %v from outside the recorded epoch %v", members.names(), e.recorded)
	}
	for i, sh := range e.shown {
		switch {
		case s.restored && sh.asked && sh.epoch > e.recorded:
			return fmt.Sprintf("I5: a start from %v though %s shows %v", e.recorded, names[i], sh.epoch)
		case members.has(i) && !sh.asked:
			return "I4: a start with a replica that did not answer"
		}
	}
	return ""
}

// takesPartial reports whether a start takes a replica with a rebuild that was started and not finished.
func (s *state) takesPartial(e *engineState, planned epoch) bool {
	for i, sh := range e.shown {
		if planned.members().has(i) && sh.partial {
			return true
		}
	}
	return false
}

// brokenAck checks an acknowledgement by engine k.
//
//	I2  when an older engine acknowledges a write, every newer engine that was planned, or serves, already has it
func (st *step) brokenAck(k int, w set) string {
	s, e := st.from, &st.from.engine[k]
	if e.leaving != 0 || e.proposed != 0 {
		st.reach("a write acknowledged while an epoch is pending")
	}
	if e.inForce.members().len() < replicas && e.inForce>>3&31 > 1 {
		st.reach("a write acknowledged after an expulsion")
	}
	if e.inForce>>3&31 > 2 && e.inForce.members().len() == replicas {
		st.reach("a write acknowledged with a rebuilt member")
	}
	for o := range s.engine {
		newer := &s.engine[o]
		if !s.restored && newer.generation > e.generation && newer.phase == running && !s.hold(newer.serving, w) {
			return fmt.Sprintf("I2: engine %d acknowledges a write that engine %d, which is newer, does not have", k+1, o+1)
		}
	}
	return ""
}

// reach counts an event that must be possible. If it never happens, the search proves little.
func (s *search) reach(goal string) { s.goals[goal]++ }
