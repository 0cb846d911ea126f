package explore

import "github.com/longhorn-lep/longhorn-manager/dataplane/layers"

// attempt returns the intended point.
func (s *state) attempt() (layers.Point, uint8) {
	for _, p := range s.object.points {
		if p.number == s.engine.attempt && p.state == layers.Intended {
			return pointOf(p.number, p.nonce), p.nonce
		}
	}
	panic("BUG: no attempt")
}

func (st *step) barrier() {
	s := st.from
	e := &s.engine
	if e.stage == noBarrier {
		busy := e.leaving != 0 || st.rules.refusesInRebuild && e.target != 0
		if s.spent.snapshots < st.snapshots && s.nonces < maxNonces && !busy && s.object.points[maxPoints-1].number == 0 {
			l, p, err := s.object.line().Intend(uint64(s.nonces+1), "")
			if err != nil {
				panic(err)
			}
			st.to(event{kind: evIntend}, func(s *state) {
				s.object.setLine(l)
				s.nonces++
				s.engine.stage, s.engine.attempt = preparing, uint8(p.Number)
				s.spent.snapshots++
			})
		}
		return
	}
	p, nonce := s.attempt()
	all, sealed := true, set(0)
	for i := range int(st.members) {
		m := &s.member[i]
		if !e.roster.has(i) {
			continue
		}
		place := m.border(e.attempt, nonce)
		all = all && place >= 0 && m.prepared
		if place >= 0 && m.files[place].flushed {
			sealed |= only(i)
		}
		if e.leaving.has(i) {
			continue
		}
		if e.stage == preparing && place < 0 {
			if c, err := m.chain().Prepare(p, layers.MostFiles); err == nil && c.FileCount() <= maxFiles {
				st.to(event{evPrepare, uint8(i), 0}, func(s *state) {
					s.member[i].setChain(c)
					s.member[i].prepared = true
				})
			}
		}
		if e.stage == switched && place >= 0 && !m.files[place].flushed {
			st.seal(i, p)
		}
	}
	if e.stage == preparing && all && e.leaving == 0 {
		st.to(event{kind: evSwitch}, func(s *state) {
			for i := range s.member {
				if s.engine.roster.has(i) {
					s.member[i].prepared = false
				}
			}
			s.snap[nonce] = s.truth
			s.engine.stage, s.engine.atSwitch = switched, s.object.members
		})
	}
	if e.stage == switched && st.rules.readyAllowed(e.atSwitch.names(), s.object.members.names(), (e.roster&^e.leaving).names(), sealed.names()) {
		l, err := s.object.line().Ready(p)
		if err != nil {
			panic(err)
		}
		st.goals[goalReady]++
		st.to(event{kind: evReady}, func(s *state) {
			if s.engine.target != 0 {
				st.goals[goalDuringRebuild]++
			}
			s.object.setLine(l)
			s.promised |= only(int(nonce))
			s.engine.stage, s.engine.attempt, s.engine.atSwitch = noBarrier, 0, 0
		})
	}
	if s.spent.ends >= st.ends {
		return
	}
	l, err := s.object.line().GiveUp(p)
	if err != nil {
		panic(err)
	}
	st.to(event{kind: evGiveUp}, func(s *state) {
		s.object.setLine(l)
		s.spent.ends++
		s.refused |= only(int(nonce))
		s.engine.stage, s.engine.attempt, s.engine.atSwitch = noBarrier, 0, 0
	})
}

func (st *step) seal(i int, p layers.Point) {
	c, err := st.from.member[i].chain().Seal(p)
	if err != nil {
		panic(err)
	}
	st.to(event{evSeal, uint8(i), 0}, func(s *state) {
		m := &s.member[i]
		m.flush(st.rules.flushesTopOnly)
		m.setChain(c)
	})
}

// points are the events of users and jobs.
func (st *step) points() {
	s := st.from
	l := s.object.line()
	for _, p := range s.object.points {
		if p.number == 0 {
			continue
		}
		at := pointOf(p.number, p.nonce)
		if next, err := l.Delete(at); err == nil && s.spent.deletes < st.deletes {
			st.to(event{evDelete, p.number, 0}, func(s *state) {
				s.object.setLine(next)
				s.promised &^= only(int(p.nonce))
				s.spent.deletes++
			})
		}
		if next, err := l.Hold(at, "job"); err == nil && !p.held && s.spent.holds < st.holds {
			st.to(event{evHold, p.number, 0}, func(s *state) { s.object.setLine(next); s.spent.holds++ })
		}
		if p.held {
			st.to(event{evRelease, p.number, 0}, func(s *state) { s.object.setLine(l.Release(at, "job")) })
		}
		if next, err := l.Forget(at); err == nil && !s.shows(p.number, p.nonce) {
			st.to(event{evForget, p.number, 0}, func(s *state) { s.object.setLine(next) })
		}
		st.revert(p)
	}
}

// shows reports whether a listed member, or the target of a rebuild, shows a border.
func (s *state) shows(number, nonce uint8) bool {
	for i := range s.member {
		if (s.object.members.has(i) || s.engine.target == uint8(i)+1) && s.member[i].border(number, nonce) >= 0 {
			return true
		}
	}
	return false
}

// revertsDetached records reverts while no engine runs.
func (st *step) revertsDetached() {
	s := st.from
	if !st.detached || s.restored {
		return
	}
	for _, p := range s.object.points {
		st.revert(p)
	}
}

// revert happens in maintenance mode: the engine serves no users until all members have followed.
func (st *step) revert(p point) {
	s := st.from
	e := &s.engine
	if p.state != layers.Ready || s.spent.reverts >= st.reverts || e.leaving != 0 || e.target != 0 || e.stage != noBarrier {
		return
	}
	l, err := st.rules.revert(s.object.line(), pointOf(p.number, p.nonce))
	if err != nil || len(l.Reverted) > maxReverts {
		return
	}
	if st.rules.revertsMembers && s.spent.crashes < st.crashes {
		for i := range int(st.members) {
			if e.roster.has(i) {
				f := st.rules.follow(l, s.member[i].chain())
				st.to(event{evRevertEarly, uint8(i), 0}, func(s *state) {
					s.member[i].setChain(f.Chain)
					s.engine = engine{}
					s.spent.crashes++
				})
			}
		}
		return
	}
	var letGo set
	for _, n := range later(s.object.line(), pointOf(p.number, p.nonce)) {
		for _, q := range s.object.points {
			if q.number == uint8(n) {
				letGo |= only(int(q.nonce))
			}
		}
	}
	st.to(event{evRevert, p.number, 0}, func(s *state) {
		s.object.setLine(l)
		if !st.silent {
			s.promised &^= letGo
		}
		if s.engine.phase != off {
			s.engine.phase, s.engine.followed = following, 0
		}
		s.truth, s.live, s.allowed = s.snap[p.nonce], s.snap[p.nonce], s.snap[p.nonce]
		s.lastBy = s.object.counter
		s.spent.reverts++
	})
}

// merges are the events of a member that merges layers.
func (st *step) merges(i int) {
	s, m := st.from, &st.from.member[i]
	l, c := s.object.line(), m.chain()
	busy := layers.Busy{Barrier: s.engine.stage != noBarrier}
	if s.engine.source == uint8(i)+1 {
		busy.Needed = layers.Needed(c, pointOf(s.engine.done, s.engine.doneNonce))
	}
	for _, layer := range c.Layers[:c.Head()] {
		p := layer.Top.Point
		if !st.rules.mayJoin(l, p, busy) {
			continue
		}
		joined, err := c.Join(p)
		if err != nil {
			panic(err)
		}
		st.to(event{evJoin, uint8(i), uint8(p.Number)}, func(s *state) {
			s.member[i].setChain(joined)
			s.member[i].prepared = false
		})
	}
	if busy.Barrier {
		return
	}
	for k := range int(m.n) - 1 {
		low := &m.files[k]
		within := low.top == 0
		if within || st.rules.movesBeforeJoin && l.State(pointOf(low.top, low.nonce)) == layers.Deleted {
			st.pieces(i, k, within)
		}
	}
	if s.spent.heads < st.heads && m.n < maxFiles {
		next, err := c.PutLocalHead(layers.AllFiles)
		if err != nil {
			panic(err)
		}
		st.to(event{evLocalHead, uint8(i), 0}, func(s *state) {
			s.member[i].setChain(next)
			s.spent.heads++
		})
	}
}

// pieces moves blocks between the files k and k+1, and removes one of them when its content is in the other.
func (st *step) pieces(i, k int, within bool) {
	m := &st.from.member[i]
	low, up := m.files[k], m.files[k+1]
	users := m.active() == k+1
	for d := range 2 {
		down := d == 1
		if down && users {
			continue
		}
		whole, some := *m, false
		for b := range maxBlocks {
			l, u := low.cells[b].now != absent, up.cells[b].now != absent
			if down && !u || !down && !l {
				continue
			}
			some = true
			st.moveOne(&whole, k, b, down)
			if st.bounds.pieces {
				one := *m
				st.moveOne(&one, k, b, down)
				st.to(event{evPiece, uint8(i), uint8(k*16 + d*8 + b)}, func(s *state) { s.member[i] = one })
			}
		}
		if some && !st.bounds.pieces && within {
			st.to(event{evPiece, uint8(i), uint8(k*16 + d*8 + 7)}, func(s *state) { s.member[i] = whole })
		}
	}
	if !within {
		return
	}
	removeUp, removeLow := layers.Merged(presentIn(up), presentIn(low), maxBlocks, users)
	c := m.chain()
	for n, remove := range []bool{removeLow, removeUp} {
		if !remove {
			continue
		}
		without, err := c.RemoveFile(layers.File(k + 1 + n))
		if err != nil {
			panic(err)
		}
		st.goals[goalMerged]++
		st.to(event{evFuse, uint8(i), uint8(k + n)}, func(s *state) { s.member[i].setChain(without) })
		return
	}
}

type presentIn file

func (f presentIn) Has(b int64) bool     { return f.cells[b].now != absent }
func (f presentIn) Durable(b int64) bool { return f.cells[b].disk&absent == 0 }

// moveOne moves one block, durably. What the other model shows about single steps is one event here.
func (st *step) moveOne(m *member, k, b int, down bool) {
	low, up := m.files[k].cells[b], m.files[k+1].cells[b]
	switch {
	case down:
		m.store(k, b, up.now)
		m.store(k+1, b, absent)
	case up.now == absent:
		m.store(k+1, b, low.now)
		m.store(k, b, absent)
	case up.disk&absent == 0: // hidden by a block that is durable
		m.store(k, b, absent)
	}
}
