package explore

import "github.com/longhorn-lep/longhorn-manager/dataplane/membership"

// admission: replicas admit the engine one by one. At any moment it may decide that the others are absent.
func (st *step) admission(k int) {
	s, e := st.from, &st.from.engine[k]
	asked := false
	for i := range replicas {
		r := &s.replica[i]
		asked = asked || e.shown[i].asked
		if e.shown[i].asked || !r.up || !st.rules.admit(r.generation, r.session, e.generation, e.session) {
			continue
		}
		st.to(event{evAdmit, uint8(k), uint8(i)}, func(s *state) {
			r, e := &s.replica[i], &s.engine[k]
			r.generation, r.session, r.live = e.generation, e.session, e.session
			e.shown[i] = shown{asked: true, rebuilding: r.rebuilding, epoch: r.epoch, partial: r.partial}
		})
	}
	if asked {
		st.plan(k)
	}
}

// plan decides with which replicas to start. The decision is checked here, because only here its input is known.
func (st *step) plan(k int) {
	s, e := st.from, st.from.engine[k]
	ev := event{kind: evPlan, k: uint8(k)}
	proposed, err := st.rules.planStart(e.recorded, e.generation, e.shown)
	if err != nil {
		if isRolledBack(err) {
			st.reach("a rolled-back object was refused")
		}
		broken := ""
		if isRolledBack(err) && !s.restored {
			broken = "I5: a start was refused for a rolled-back object, though nobody rolled it back: " + err.Error()
		}
		st.toBroken(ev, func(s *state) { s.end(k) }, broken)
		return
	}
	broken := s.brokenStart(&e, proposed)
	if broken == "" && s.takesPartial(&e, proposed) {
		broken = "I4: a start with a replica whose copy is not complete"
	}
	if broken == "" && s.restored && !s.hold(proposed.members(), s.acked) {
		st.reach("a rollback that no replica present could prove")
		return // nothing can be demanded of later steps
	}
	if proposed.members().len() < e.recorded.members().len() {
		st.reach("a start with a part of the members")
	}
	st.toBroken(ev, func(s *state) {
		e := &s.engine[k]
		*e = engineState{
			phase: starting, generation: e.generation, session: e.session, proposed: proposed, serving: proposed.members(),
		}
		for i := range replicas {
			if s.replica[i].live == e.session && !e.serving.has(i) {
				s.replica[i].live = nobody
			}
		}
	}, broken)
}

// epochs: the engine proposes an epoch, the object records it, and the serving replicas store it. Then the epoch is in
// force. Before that, the proposal remains.
func (st *step) epochs(k int) {
	s, e := st.from, &st.from.engine[k]
	if e.proposed == 0 {
		st.propose(k)
		return
	}
	if !e.told && s.api && st.rules.canRecord(s.object, e.generation, e.session, e.proposed) {
		st.to(event{kind: evRecord, k: uint8(k)}, func(s *state) {
			e := &s.engine[k]
			s.object.epoch, e.told = e.proposed, true
			s.newest = max(s.newest, e.proposed)
			for i := range replicas {
				s.replica[i].partial = s.replica[i].partial && !e.proposed.members().has(i)
			}
			e.settle()
		})
	}
	if !e.told && !st.rules.storesBeforeRecord {
		return
	}
	for i := range replicas {
		if e.serving.has(i) && !e.stored.has(i) && s.reaches(k, i) && e.proposed >= s.replica[i].epoch {
			st.to(event{evStore, uint8(k), uint8(i)}, func(s *state) {
				r, e := &s.replica[i], &s.engine[k]
				st.follow(r, i, e.proposed)
				e.stored |= one(i)
				if e.proposed.members().has(i) {
					r.rebuilding = false
				}
				e.settle()
			})
		}
	}
}

// settle puts a proposal in force when the object holds it and all serving replicas have stored it. This is not a
// separate event: it only allows more events, and those may happen late anyway. For the same reason, the engine knows
// at once that the object holds a proposal.
func (e *engineState) settle() {
	if e.proposed == 0 || !e.told || !e.serving.within(e.stored) {
		return
	}
	e.inForce, e.proposed, e.told, e.stored = e.proposed, 0, false, 0
	e.leaving &= e.inForce.members()
}

// propose handles failures first, then a complete copy. A joining replica serves from here on.
func (st *step) propose(k int) {
	e := &st.from.engine[k]
	ev := event{kind: evPropose, k: uint8(k)}
	failed := e.inForce.members() &^ e.serving
	switch {
	case failed != 0:
		next, err := st.rules.planExpel(e.inForce, failed)
		if err != nil {
			return
		}
		broken := ""
		if next.members() == 0 {
			broken = "I3: the last member was expelled"
		}
		st.toBroken(ev, func(s *state) { s.engine[k].proposed = next }, broken)
	case e.target != nobody && (e.copied || st.rules.joinsBeforeCopy):
		i := int(e.target) - 1
		st.to(ev, func(s *state) {
			e := &s.engine[k]
			e.proposed = st.rules.planJoin(e.inForce, i)
			e.serving |= one(i)
			e.target, e.copied, e.lacking = nobody, false, lacking{skipped: e.skipped}
		})
	}
}

// opening equalizes and unmarks the writes that were under way when the last engine stopped. Then the engine serves the
// volume.
func (st *step) opening(k int) {
	s, e := st.from, &st.from.engine[k]
	if e.phase != starting || e.inForce == 0 || e.proposed != 0 || (e.leaving != 0 && !st.rules.unmarksWhileLeaving) {
		return
	}
	if !st.reachesAll(k, e.serving) {
		return
	}
	if marked := s.marks(e.serving); !e.synced && !st.rules.servesUnsynced && !s.equal(e.serving, marked) {
		for i := range replicas {
			if e.serving.has(i) {
				st.to(event{evEqualize, uint8(k), uint8(i)}, func(s *state) {
					for j := range replicas {
						if e.serving.has(j) {
							r := &s.replica[j]
							differs := (r.held ^ s.replica[i].held) & marked
							r.held ^= differs
							r.marked |= differs
						}
					}
					s.engine[k].synced = true
				})
			}
		}
		return
	}
	broken := ""
	if !s.hold(e.serving, s.acked) && !s.restored {
		broken = "an engine begins to serve without an acknowledged write"
	}
	st.toBroken(event{kind: evServe, k: uint8(k)}, func(s *state) {
		e := &s.engine[k]
		st.unmark(s, e.serving, s.marks(e.serving))
		e.phase, e.synced = running, false
	}, broken)
}

// failures: the engine notices at no cost that a replica no longer serves this session. A replica that serves the
// session may also fail (an error, a cut connection, slowness, an administrator's order). If the last replica is gone,
// the engine stops too.
func (st *step) failures(k int) {
	s, e := st.from, &st.from.engine[k]
	for i := range replicas {
		joining := int(e.target) == i+1
		gone := !s.reaches(k, i)
		if !e.serving.has(i) && !joining || !gone && s.spent.fails >= st.fails {
			continue
		}
		last := e.serving == one(i)
		if last && !gone {
			continue // its errors go to the users: refuse
		}
		st.to(event{evFail, uint8(k), uint8(i)}, func(s *state) {
			e := &s.engine[k]
			if !gone {
				s.spent.fails++
				s.replica[i].live = nobody
			}
			switch {
			case joining:
				e.target, e.copied, e.lacking = nobody, false, lacking{skipped: e.skipped}
			case last:
				s.end(k)
			default:
				e.serving &^= one(i)
				e.leaving |= one(i)
				e.synced = false
				e.settle()
			}
		})
	}
}

// changes: a write goes to all serving replicas and to the joining one. The engine judges the write when all of them
// have answered or failed.
func (st *step) changes(k int) {
	s, e := st.from, &st.from.engine[k]
	if e.phase != running {
		return
	}
	if e.write == nobody {
		st.begin(k)
		return
	}
	w := set(1) << (e.write - 1)
	asked := e.serving
	if e.target != nobody {
		asked |= one(int(e.target) - 1)
	}
	asked &^= e.skipped
	for i := range replicas {
		if asked.has(i) && !e.applied.has(i) && s.reaches(k, i) {
			st.to(event{evApply, uint8(k), uint8(i)}, func(s *state) {
				s.replica[i].held |= w
				s.replica[i].marked |= w
				s.engine[k].applied |= one(i)
			})
		}
	}
	if asked.within(e.applied) && st.rules.judge(e.parts(membership.Missed)) == membership.Acknowledge {
		st.toBroken(event{kind: evAck, k: uint8(k)}, func(s *state) {
			s.acked |= w
			e := &s.engine[k]
			e.write, e.applied, e.skipped = nobody, 0, 0
		}, st.brokenAck(k, w))
	}
	st.refuse(k, w)
}

func (st *step) begin(k int) {
	s, e := st.from, &st.from.engine[k]
	ev := event{k: uint8(k)}
	if s.begun < st.writes {
		ev.kind = evWrite
		st.to(ev, func(s *state) {
			e := &s.engine[k]
			s.begun++
			e.write = s.begun
			if e.generation < s.fenced {
				s.late |= 1 << (s.begun - 1)
			}
		})
	}
	marked := s.marks(e.serving) &^ e.uneven
	if e.proposed == 0 && (e.leaving == 0 || st.rules.unmarksWhileLeaving) && marked != 0 && st.reachesAll(k, e.serving) {
		ev.kind = evUnmark
		st.to(ev, func(s *state) {
			st.unmark(s, e.serving, marked)
		})
	}
}

// refuse: all serving replicas are full, and any of them may have a part of the write.
func (st *step) refuse(k int, w set) {
	s, e := st.from, &st.from.engine[k]
	if e.applied&e.serving != 0 || e.skipped&e.serving != 0 || s.spent.fails >= st.fails || !st.reachesAll(k, e.serving) {
		return
	}
	parts := e.parts(membership.NoSpace)
	if a := st.rules.judge(parts); a != membership.RefuseNoSpace {
		return
	}
	for left := range set(8) {
		if !left.within(e.serving) {
			continue
		}
		st.to(event{evRefuse, uint8(k), uint8(left)}, func(s *state) {
			e := &s.engine[k]
			s.spent.fails++
			for i := range replicas {
				if e.serving.has(i) {
					s.replica[i].marked |= w
				}
				if left.has(i) {
					s.replica[i].held |= w
				}
			}
			e.uneven |= w
			// Whether it did other than the members or the same: its copy is worthless now.
			if i := int(e.target) - 1; i >= 0 {
				s.replica[i].live = nobody
				e.target, e.copied, e.lacking = nobody, false, lacking{}
			}
			e.write, e.applied, e.skipped = nobody, 0, 0
		})
	}
}

// parts returns the input for the rule of acknowledgement. unless is the result of the replicas that have not confirmed
// the write.
func (e *engineState) parts(unless membership.Result) []membership.Part {
	var out []membership.Part
	for i := range replicas {
		p := membership.Part{Role: membership.Left, Result: unless}
		switch {
		case e.serving.has(i):
			p.Role = membership.Serving
		case e.leaving.has(i):
			p.Role = membership.Leaving
		case int(e.target) == i+1:
			p.Role = membership.Joining
		}
		if e.applied.has(i) {
			p.Result = membership.Stored
		}
		out = append(out, p)
	}
	return out
}

// rebuilding: the engine admits one replica that no epoch lists, marks it, and sends it new writes. Then the replica
// gets a copy. A copy waits for the write that is under way.
func (st *step) rebuilding(k int) {
	s, e := st.from, &st.from.engine[k]
	if e.phase != running {
		return
	}
	if e.target == nobody {
		for i := range replicas {
			r := &s.replica[i]
			if (e.serving | e.leaving).has(i) || !r.up || s.spent.rebuilds >= st.rebuilds || !st.rules.admit(r.generation, r.session, e.generation, e.session) {
				continue
			}
			st.to(event{evRebuild, uint8(k), uint8(i)}, func(s *state) {
				r, e := &s.replica[i], &s.engine[k]
				r.generation, r.session, r.live = e.generation, e.session, e.session
				e.lacking = lacking{base: r.last(i)}
				if !st.rules.rebuildsUntold {
					st.follow(r, i, max(r.epoch, e.inForce))
				}
				r.rebuilding, r.partial = true, true
				e.target = uint8(i) + 1
				st.join(e)
				s.spent.rebuilds++
			})
		}
		return
	}
	t := int(e.target) - 1
	if st.delta {
		st.copyLacking(k, t)
		return
	}
	if e.copied || e.write != nobody || !s.reaches(k, t) {
		return
	}
	for i := range replicas {
		if e.serving.has(i) && s.reaches(k, i) {
			st.to(event{evCopy, uint8(k), uint8(i)}, func(s *state) {
				s.replica[t].held = s.replica[i].held
				s.engine[k].copied = true
			})
		}
	}
}

func (st *step) reachesAll(k int, members set) bool {
	for i := range replicas {
		if members.has(i) && !st.from.reaches(k, i) {
			return false
		}
	}
	return true
}
