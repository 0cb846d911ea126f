package explore

// Each write has its own region, so a set of writes is also a set of regions.

// record is the information that a replica stores on disk about the time since an epoch (package replica, since.go).
type record struct {
	base    epoch           // the last epoch that it was a member of, while it is not a member
	away    [replicas]epoch // the last epoch of each replica that was left out since; 0: none
	changed set             // marks that were cleared since
}

// lacking is an engine's knowledge about the replica that is being rebuilt.
type lacking struct {
	base    epoch // of that replica
	lacks   set   // the writes that it may lack, while members are asked; then the writes that are still to be copied
	asked   set   // the replicas that have answered, at the end also the replica itself
	knows   bool  // one of them has it on record
	skipped set   // the replica, if the write under way started before it joined
}

// follow makes replica i store an epoch.
func (s *search) follow(r *replicaState, i int, next epoch) {
	prior := r.epoch
	r.epoch = next
	if !s.delta || next == prior {
		return
	}
	was, is := prior.members().has(i), next.members().has(i)
	switch {
	case !is && was && !r.rebuilding:
		r.record = record{base: prior}
	case !is:
		r.record = record{base: r.base}
	case !was:
		r.record = record{}
	default:
		for j := range replicas {
			if prior.members().has(j) && !next.members().has(j) {
				r.away[j] = prior
			}
			if next.members().has(j) || next.members().len() >= r.away[j].members().len() {
				r.away[j] = 0
			}
		}
		if r.away == [replicas]epoch{} {
			r.changed = 0
		}
	}
}

// last returns the last epoch that the replica was a member of, as far as it knows.
func (r *replicaState) last(i int) epoch {
	if r.epoch.members().has(i) && !r.rebuilding {
		return r.epoch
	}
	return r.base
}

// unmark clears marks on members. While a replica is away, the members record the marks first.
func (s *search) unmark(to *state, members, writes set) {
	for i := range replicas {
		r := &to.replica[i]
		if !members.has(i) {
			continue
		}
		r.marked &^= writes
		if r.away != [replicas]epoch{} && !s.rules.unmarksUnrecorded {
			r.changed |= writes
		}
	}
}

// join records the write that is under way when a replica joins: this write does not go to the replica.
func (s *search) join(e *engineState) {
	if !s.delta || e.write == nobody {
		return
	}
	e.skipped = one(int(e.target) - 1)
	if !s.rules.forgetsTheWrite {
		e.lacks = one(int(e.write) - 1)
	}
}

// copyLacking asks the members, and then the replica, which writes the replica may lack. It copies one write after the
// other.
func (st *step) copyLacking(k, t int) {
	s, e := st.from, &st.from.engine[k]
	if e.copied || !s.reaches(k, t) {
		return
	}
	if !e.asked.has(t) {
		st.ask(k, t)
		return
	}
	for w := range set(st.writes) {
		if !e.lacks.has(int(w)) || e.write == uint8(w)+1 {
			continue
		}
		for i := range replicas {
			if e.serving.has(i) && s.reaches(k, i) {
				st.to(event{evCopy, uint8(k), uint8(i)}, func(s *state) {
					from, r, e := &s.replica[i], &s.replica[t], &s.engine[k]
					r.held = r.held&^one(int(w)) | from.held&one(int(w))
					r.marked |= one(int(w))
					e.lacks &^= one(int(w))
					e.copied = e.lacks == 0
				})
			}
		}
		return // in their order
	}
}

func (st *step) ask(k, t int) {
	s, e := st.from, &st.from.engine[k]
	for i := range replicas {
		if e.serving.has(i) && !e.asked.has(i) && s.reaches(k, i) {
			st.to(event{evAsk, uint8(k), uint8(i)}, func(s *state) {
				r, e := &s.replica[i], &s.engine[k]
				e.asked |= one(i)
				e.lacks |= r.marked
				if r.away[t] != 0 && r.away[t] == e.lacking.base {
					e.lacks |= r.changed
					e.knows = true
				}
			})
		}
	}
	if !e.serving.within(e.asked) {
		return
	}
	st.to(event{evAsk, uint8(k), uint8(t)}, func(s *state) {
		e := &s.engine[k]
		e.asked |= one(t)
		if !st.rules.forgetsItsMarks {
			e.lacks |= s.replica[t].marked
		}
		if !e.knows {
			e.lacks = one(int(st.writes)) - 1
		} else if e.lacks != one(int(st.writes))-1 {
			st.reach(goalLacked)
		}
		e.copied = e.lacks == 0
	})
}
