package explore

import "github.com/longhorn-lep/longhorn-manager/dataplane/layers"

// rebuild covers the copy to a replica that was away, point by point.
func (st *step) rebuild() {
	s := st.from
	e := &s.engine
	if e.target == 0 {
		if s.spent.rebuilds >= st.rebuilds || e.leaving != 0 || st.rules.refusesInRebuild && e.stage != noBarrier {
			return
		}
		for t := range int(st.members) {
			m := &s.member[t]
			if s.object.members.has(t) || !m.up || m.epoch > s.object.epoch {
				continue
			}
			for src := range int(st.members) {
				if e.roster.has(src) {
					st.startRebuild(t, src)
				}
			}
		}
		return
	}
	t, src := int(e.target)-1, int(e.source)-1
	source := s.member[src].chain()
	stage := layers.NextStage(source, pointOf(e.done, e.doneNonce), e.own)
	if stage.To.Number == 0 && e.stage != noBarrier {
		return // the last part and a snapshot exclude each other
	}
	blocks, places := st.toCopy(t, src, stage)
	top := int(s.member[src].n) - 1
	if stage.To.Number > 0 {
		top = s.member[src].border(uint8(stage.To.Number), uint8(stage.To.Nonce))
	}
	wordAt := func(b int) word {
		if st.rules.layersNotViews {
			for i := len(places) - 1; i >= 0; i-- {
				if w := s.member[src].files[places[i]].cells[b].now; w != absent {
					return w
				}
			}
			return absent
		}
		return s.member[src].view(top, b)
	}
	copyTo := func(m *member, b int) {
		if w := wordAt(b); w != absent {
			m.store(int(m.n)-1, b, w)
		}
	}
	if s.spent.cuts < st.cuts && blocks.len() > 1 {
		st.to(event{kind: evCut}, func(s *state) {
			for b := range maxBlocks {
				if blocks.has(b) {
					copyTo(&s.member[t], b)
					break
				}
			}
			s.endRebuild()
			s.spent.cuts++
		})
	}
	if stage.To.Number == 0 {
		st.joinTarget(t, blocks, copyTo)
		return
	}
	why := ""
	if e.done > 0 && source.Border(pointOf(e.done, e.doneNonce)) < 0 {
		why = "V9: a merge took the border away from which a rebuild continues"
	}
	sealed := s.object.line().SealStage(s.member[t].chain(), stage.To.Point)
	if sealed.FileCount() > maxFiles {
		return
	}
	st.broken(event{kind: evStage}, func(s *state) {
		m := &s.member[t]
		for b := range maxBlocks {
			if blocks.has(b) {
				copyTo(m, b)
			}
		}
		m.flush(false)
		m.setChain(sealed)
		s.engine.done, s.engine.doneNonce, s.engine.own = uint8(stage.To.Number), uint8(stage.To.Nonce), false
	}, why)
}

func (s *state) endRebuild() {
	e := &s.engine
	e.target, e.source, e.done, e.doneNonce, e.own = 0, 0, 0, 0, false
}

func (st *step) startRebuild(t, src int) {
	s := st.from
	l := s.object.line()
	target := st.rules.follow(l, s.member[t].chain()).Chain
	base := st.rules.base(l, s.member[src].chain(), target)
	target = layers.StartRebuild(target, base)
	if base.Number > 0 {
		st.goals[goalCommon]++
	}
	if s.spent.reverts > 1 && s.member[t].reverted.by == 0 {
		st.goals[goalTwoReverts]++
	}
	st.to(event{evRebuild, uint8(t), uint8(src)}, func(s *state) {
		m := &s.member[t]
		m.prepared = false
		if !m.setChain(target) {
			panic("BUG: no room for a chain that has followed the line")
		}
		m.rebuilding, m.epoch = true, s.object.epoch
		s.engine.target, s.engine.source = uint8(t)+1, uint8(src)+1
		s.engine.done, s.engine.doneNonce, s.engine.own = uint8(base.Number), uint8(base.Nonce), true
		s.spent.rebuilds++
	})
}

// toCopy returns the blocks that a stage copies, and the source's files that it names.
func (st *step) toCopy(t, src int, stage layers.Stage) (blocks set, places []int) {
	source, target := &st.from.member[src], &st.from.member[t]
	add := func(f *file) {
		for b := range maxBlocks {
			if f.cells[b].now != absent {
				blocks |= only(b)
			}
		}
	}
	chain := source.chain()
	for _, i := range stage.Source {
		for _, f := range chain.Layers[i].Files {
			places = append(places, int(f)-1)
			add(&source.files[f-1])
		}
	}
	if stage.Own && !st.rules.forgetsOwn {
		own := target.chain()
		for _, f := range own.Layers[own.Head()].Files {
			add(&target.files[f-1])
		}
	}
	return blocks, places
}

// joinTarget is the last stage: the target gets every change from here on.
func (st *step) joinTarget(t int, blocks set, copyTo func(*member, int)) {
	s := st.from
	if s.engine.leaving != 0 {
		return
	}
	chain := s.object.line().EndRebuild(s.member[t].chain())
	if st.rules.standsOnBorder && chain.Head() > 0 {
		chain.Layers[chain.Head()].From = chain.Layers[chain.Head()-1].Top.Number
	}
	st.to(event{kind: evJoinTarget}, func(s *state) {
		m := &s.member[t]
		for b := range maxBlocks {
			if blocks.has(b) {
				copyTo(m, b)
			}
		}
		m.flush(false)
		m.setChain(chain)
		m.rebuilding, m.lossy, m.marked = false, false, 0
		s.object.epoch++
		s.object.members |= only(t)
		s.engine.roster = s.object.members
		for i := range s.member {
			if s.engine.roster.has(i) {
				s.member[i].epoch = s.object.epoch
			}
		}
		s.endRebuild()
		st.goals[goalRebuilt]++
	})
}
