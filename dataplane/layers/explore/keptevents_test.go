package explore

import (
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// keptStep collects the successors of one state.
type keptStep struct {
	rules  keptRules
	bounds keptBounds
	from   *keptState
	emit   func(said, keptState, string)
	goals  map[string]int
}

func (k *keptStep) do(text string, change func(*keptState) string) {
	to := *k.from
	why := change(&to)
	k.emit(said(text), to, why)
}

func (k *keptStep) all() {
	s := k.from
	k.writes()
	if s.flight == 0 {
		k.snapshots()
		k.jobs()
		k.stops()
	}
	for i := range int(k.bounds.replicas) {
		if s.replica[i].away {
			continue
		}
		k.joins(i)
		if i == 0 || k.bounds.targetMerges || s.spent.rebuilds == k.bounds.rebuilds {
			k.merges(i)
		}
	}
}

func (k *keptStep) writes() {
	s := k.from
	if s.flight > 0 {
		b := int(s.flight) - 1
		k.do(fmt.Sprintf("the write of block %d is answered", b), func(s *keptState) string {
			k.put(s, b)
			s.flight = 0
			return ""
		})
		return
	}
	for b := range keptBlocks {
		if s.spent.writes >= k.bounds.writes || b > 0 && s.written>>(b-1)&1 == 0 { // the blocks have no order
			continue
		}
		start := func(s *keptState) {
			s.spent.writes++
			for i := range s.replica {
				m := &s.replica[i]
				s.inFile[i] = m.files[m.n-1].num
			}
		}
		if k.bounds.slowWrites {
			k.do(fmt.Sprintf("a write of block %d starts", b), func(s *keptState) string {
				start(s)
				s.flight = uint8(b) + 1
				return ""
			})
			continue
		}
		k.do(fmt.Sprintf("a write of block %d", b), func(s *keptState) string {
			start(s)
			k.put(s, b)
			return ""
		})
	}
	if k.bounds.losses > 0 {
		k.do("a flush", func(s *keptState) string {
			for i := range s.replica {
				s.replica[i].flush()
			}
			return ""
		})
	}
}

// put answers a write. Without losses of power, what is flushed makes no difference, so everything is.
func (k *keptStep) put(s *keptState, b int) {
	for i := range int(k.bounds.replicas) {
		m := &s.replica[i]
		if place, ok := m.find(s.inFile[i]); ok && !m.away {
			m.files[place].now[b] = s.spent.writes
		}
		if k.bounds.losses == 0 {
			m.flush()
		}
	}
	s.truth[b], s.inFile = s.spent.writes, [2]uint8{}
	s.written |= 1 << b
	for n := range s.touched {
		s.touched[n] |= 1 << b
	}
}

func (m *keptReplica) flush() {
	for i := range int(m.n) {
		m.files[i].disk = m.files[i].now
	}
}

// barrier makes a point on every member, as one event.
func (s *keptState) barrier(state layers.State) {
	s.counter++
	for i := range s.replica {
		m := &s.replica[i]
		if m.away {
			continue
		}
		c, _ := m.chain()
		c, err := c.Prepare(pointOf(s.counter, s.counter), layers.MostFiles)
		if err != nil || !m.setChain(c) {
			panic(fmt.Sprint("BUG: ", err))
		}
		m.flush()
	}
	s.points[s.counter].state = state
	s.snap[s.counter], s.touched[s.counter] = s.truth, 0
}

// room reports whether each member can have another file, and the line another number.
func (s *keptState) room() bool {
	return s.counter < keptPoints && s.replica[0].n < keptFiles && s.replica[1].n < keptFiles
}

func (k *keptStep) snapshots() {
	s := k.from
	if !s.room() {
		return
	}
	if s.spent.snapshots < k.bounds.snapshots {
		k.do("snapshot", func(s *keptState) string { s.spent.snapshots++; s.barrier(layers.Ready); return "" })
	}
	if s.spent.fails < k.bounds.fails {
		k.do("a snapshot is given up", func(s *keptState) string { s.spent.fails++; s.barrier(layers.Unknown); return "" })
	}
}

// jobs are backups, deletions and reverts.
func (k *keptStep) jobs() {
	s, l := k.from, k.from.line()
	for n := uint8(1); n <= s.counter; n++ {
		p, at := s.points[n], pointOf(n, n)
		for t := range int(k.bounds.targets) {
			if t == 0 || s.spent.backups > 0 { // the targets have no order
				k.backup(l, n, t)
			}
		}
		if next, err := l.Delete(at); err == nil && s.spent.deletes < k.bounds.deletes {
			k.do(fmt.Sprintf("point %d is deleted", n), func(s *keptState) string { s.spent.deletes++; s.setLine(next); return "" })
		}
		if p.state == layers.Ready && s.spent.reverts < k.bounds.reverts && s.counter < keptPoints {
			if next, err := l.Revert(at, later(l, at)...); err == nil {
				k.revert(n, next)
			}
		}
	}
}

func (k *keptStep) backup(l layers.Line, n uint8, t int) {
	s, at, name := k.from, pointOf(n, n), memberNames[t]
	held := s.points[n].holds>>t&1 != 0
	if next, err := l.Hold(at, name); err == nil && !held && s.spent.backups < k.bounds.backups {
		k.do(fmt.Sprintf("a backup of point %d to target %s starts", n, name), func(s *keptState) string {
			s.spent.backups++
			s.setLine(next)
			return ""
		})
	}
	complete := func(s *keptState, next layers.Line) string {
		s.backedUp |= 1 << n
		s.setLine(next)
		for i := range s.replica {
			s.replica[i].setKept(next.StillWanted(s.replica[i].kept()))
		}
		return ""
	}
	if k.rules.releasesFirst && held {
		k.do("the hold of the backup ends", func(s *keptState) string {
			s.setLine(l.Release(at, name))
			s.backedUp |= 1 << n
			return ""
		})
	}
	if k.rules.releasesFirst && s.backedUp>>n&1 != 0 && s.bases[t] != n {
		k.do("the object records the base", func(s *keptState) string {
			l.Bases = []layers.Base{{Point: at, By: name}}
			return complete(s, l)
		})
	}
	if !held || k.rules.releasesFirst {
		return
	}
	next, err := l.SetBase(name, at)
	if err != nil {
		panic(err)
	}
	next = next.Release(at, name)
	k.do(fmt.Sprintf("the backup of point %d to target %s is complete", n, name), func(s *keptState) string { return complete(s, next) })
}

func (k *keptStep) revert(n uint8, next layers.Line) {
	k.do(fmt.Sprintf("revert to point %d", n), func(s *keptState) string {
		s.spent.reverts++
		if k.rules.keepsBases {
			next.Bases = s.line().Bases
		}
		s.setLine(next)
		s.truth = s.snap[n]
		k.follow(s)
		return ""
	})
}

// follow brings the members in order with the line, at a start or after a revert.
func (k *keptStep) follow(s *keptState) {
	l := s.line()
	for i := range int(k.bounds.replicas) {
		m := &s.replica[i]
		if m.away {
			continue
		}
		c, _ := m.chain()
		f := l.Follow(c)
		kept := m.kept()
		if s.by > 0 {
			kept = k.rules.drop(kept, s.lastRevert())
		}
		for _, p := range f.Joined {
			if l.Wanted(p) && !k.rules.followsBlind {
				kept = k.rules.keep(c, p, kept)
			}
			if len(kept) > 0 {
				k.goals[goalRestart]++
			}
		}
		m.setKept(kept)
		if !m.setChain(f.Chain) {
			panic("BUG: no room for a chain that has followed the line")
		}
	}
}

// stops are losses of power of all replicas, and one replica that goes away and is rebuilt.
func (k *keptStep) stops() {
	s := k.from
	if s.spent.losses < k.bounds.losses {
		k.do("power is lost; an engine starts", func(s *keptState) string {
			s.spent.losses++
			for i := range s.replica {
				for j := range s.replica[i].files {
					s.replica[i].files[j].now = s.replica[i].files[j].disk
				}
			}
			k.follow(s)
			source := &s.replica[0]
			for b := range keptBlocks {
				s.truth[b] = source.view(int(source.n)-1, b)
				if m := &s.replica[1]; !m.away && m.view(int(m.n)-1, b) != s.truth[b] {
					m.store(int(m.n)-1, b, s.truth[b])
				}
			}
			return ""
		})
	}
	if s.spent.restarts < k.bounds.restarts {
		k.do("an engine starts", func(s *keptState) string { s.spent.restarts++; k.follow(s); return "" })
	}
	if k.bounds.rebuilds == 0 {
		return
	}
	switch {
	case !s.replica[1].away && s.spent.rebuilds < k.bounds.rebuilds:
		k.do("b goes away", func(s *keptState) string { s.spent.rebuilds++; s.replica[1].away = true; return "" })
	case s.replica[1].away && s.room():
		k.rebuild()
	}
}

func (m *keptReplica) store(place, b int, w uint8) {
	if w == 0 {
		w = zeroed
	}
	m.files[place].now[b], m.files[place].disk[b] = w, w
}

// rebuild is one event: its steps are in the model of the volume. It takes a hidden point of its own first.
func (k *keptStep) rebuild() {
	k.do("b comes back and is rebuilt from a", func(s *keptState) string {
		s.barrier(layers.Deleted)
		src, m := &s.replica[0], &s.replica[1]
		l := s.line()
		source, has := src.chain()
		target, _ := m.chain()
		target = l.Follow(target).Chain
		done := l.Base(source, target)
		if !k.rules.keepsOnReturn {
			m.setKept(nil)
		}
		m.setChain(layers.StartRebuild(target, done))
		for own := true; ; own = false {
			stage := layers.NextStage(source, done, own)
			m.copyStage(src, source, stage)
			target, _ = m.chain()
			if stage.To.Number == 0 {
				break
			}
			if !m.setChain(l.SealStage(target, stage.To.Point)) {
				return "" // no room: it stays away
			}
			done = stage.To.Point
		}
		if kept := k.rules.handOver(l, source, target, done, keptBlocks, has, src.kept()); !k.rules.keepsOnReturn {
			if len(kept) > 0 {
				k.goals[goalHandOver]++
			}
			m.setKept(kept)
		}
		m.setChain(l.EndRebuild(target))
		m.away = false
		return ""
	})
}

func (m *keptReplica) copyStage(src *keptReplica, source layers.Chain, stage layers.Stage) {
	var blocks [keptBlocks]bool
	name := func(f keptFile) {
		for b := range keptBlocks {
			blocks[b] = blocks[b] || f.now[b] != 0
		}
	}
	for _, i := range stage.Source {
		for _, f := range source.Layers[i].Files {
			name(src.files[src.place(uint8(f))])
		}
	}
	top := int(src.n) - 1
	if stage.To.Number > 0 {
		top = src.border(uint8(stage.To.Number))
	}
	if stage.Own {
		own, _ := m.chain()
		for _, f := range own.Layers[own.Head()].Files {
			name(m.files[m.place(uint8(f))])
		}
	}
	for b := range keptBlocks {
		if blocks[b] {
			m.store(int(m.n)-1, b, src.view(top, b))
		}
	}
}

// joins are the removals of borders. The map is stored first, then the list.
func (k *keptStep) joins(i int) {
	m := &k.from.replica[i]
	c, _ := m.chain()
	if c.Head() == 0 {
		return
	}
	l := k.from.line()
	for _, layer := range c.Layers[:c.Head()] {
		p := layer.Top.Point
		if !l.MayJoin(p, layers.Busy{}) {
			continue
		}
		joined, err := c.Join(p)
		if err != nil {
			panic(err)
		}
		kept := m.kept()
		if l.Wanted(p) {
			kept = k.rules.keep(c, p, kept)
		}
		if len(kept) > len(m.kept()) && !k.rules.joinsFirst {
			if len(kept) > 1 {
				k.goals[goalTwoMaps]++
			}
			k.do(fmt.Sprintf("%s stores a map of point %d", memberNames[i], p.Number), func(s *keptState) string { s.replica[i].setKept(kept); return "" })
			continue
		}
		k.do(fmt.Sprintf("%s joins border %d", memberNames[i], p.Number), func(s *keptState) string { s.replica[i].setChain(joined); return "" })
	}
}
