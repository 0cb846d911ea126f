package explore

import (
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

type keptFile struct {
	num, from, top uint8
	now, disk      [keptBlocks]uint8
}

type keptMap struct{ from, end, bits uint8 }

type keptReplica struct {
	n, next uint8
	files   [keptFiles]keptFile // the lowest first
	maps    [keptMaps]keptMap
	away    bool
}

type keptPoint struct {
	state layers.State
	holds uint8 // targets
}

type keptState struct {
	replica  [2]keptReplica
	counter  uint8
	points   [keptPoints + 1]keptPoint // by number
	bases    [2]uint8                  // of each target
	to, by   uint8                     // the last revert
	truth    [keptBlocks]uint8
	snap     [keptPoints + 1][keptBlocks]uint8
	touched  [keptPoints + 1]uint8 // blocks written since the point
	written  uint8                 // blocks
	flight   uint8                 // block of a write that is not answered, from 1
	inFile   [2]uint8              // the file to which each replica writes it
	spent    keptBounds
	backedUp uint8 // points
}

func (m *keptReplica) chain() (layers.Chain, layers.Has) {
	c := layers.Chain{Next: layers.File(m.next)}
	first := true
	for _, f := range m.files[:m.n] {
		if first {
			c.Layers = append(c.Layers, layers.Layer{From: layers.Number(f.from)})
		}
		l := &c.Layers[len(c.Layers)-1]
		l.Files = append(l.Files, layers.File(f.num))
		if first = f.top > 0; first {
			l.Top = layers.Border{Point: pointOf(f.top, f.top), Flushed: true}
		}
	}
	return c, func(f layers.File, b int64) bool {
		i := m.place(uint8(f))
		return i == 0 || m.files[i].now[b] != 0
	}
}

func (m *keptReplica) find(num uint8) (place int, ok bool) {
	for i := range int(m.n) {
		if m.files[i].num == num {
			return i, true
		}
	}
	return 0, false
}

func (m *keptReplica) place(num uint8) int {
	i, ok := m.find(num)
	if !ok {
		panic("BUG: no such file")
	}
	return i
}

// setChain stores a list. It returns false if the model has no room.
func (m *keptReplica) setChain(c layers.Chain) bool {
	old := *m
	m.n, m.files, m.next = 0, [keptFiles]keptFile{}, uint8(c.Next)
	for _, l := range c.Layers {
		for j, f := range l.Files {
			if m.n == keptFiles {
				return false
			}
			to := &m.files[m.n]
			m.n++
			if uint8(f) < old.next {
				*to = old.files[old.place(uint8(f))]
			}
			to.num, to.from, to.top = uint8(f), 0, 0
			if j == 0 {
				to.from = uint8(l.From)
			}
			if j == len(l.Files)-1 {
				to.top = uint8(l.Top.Number)
			}
		}
	}
	return true
}

func (m *keptReplica) kept() (out []layers.KeptMap) {
	for _, one := range m.maps {
		if one.from == 0 {
			continue
		}
		k := layers.KeptMap{From: pointOf(one.from, one.from), End: layers.File(one.end)}
		for b := range keptBlocks {
			k.Blocks = append(k.Blocks, one.bits>>b&1 != 0)
		}
		out = append(out, k)
	}
	return out
}

func (m *keptReplica) setKept(kept []layers.KeptMap) {
	m.maps = [keptMaps]keptMap{}
	for i, k := range kept {
		one := keptMap{from: uint8(k.From.Number), end: uint8(k.End)}
		for b, changed := range k.Blocks {
			if changed {
				one.bits |= 1 << b
			}
		}
		m.maps[i] = one
	}
}

// view reads a block, from a file downwards.
func (m *keptReplica) view(top, b int) uint8 {
	for i := top; i >= 0; i-- {
		if w := m.files[i].now[b]; w != 0 {
			return w % zeroed
		}
	}
	return 0
}

func (m *keptReplica) border(number uint8) int {
	for i := range int(m.n) {
		if m.files[i].top == number {
			return i
		}
	}
	return -1
}

func (s *keptState) line() layers.Line {
	l := layers.Line{Counter: layers.Number(s.counter)}
	for n, p := range s.points {
		if p.state == layers.Unknown {
			continue
		}
		m := layers.Mark{Point: pointOf(uint8(n), uint8(n)), State: p.state}
		for t := range 2 {
			if p.holds>>t&1 != 0 {
				m.Holds = append(m.Holds, memberNames[t])
			}
		}
		l.Points = append(l.Points, m)
	}
	if s.by > 0 {
		l.Reverted = []layers.Interval{s.lastRevert()}
	}
	for t, n := range s.bases {
		if n > 0 {
			l.Bases = append(l.Bases, layers.Base{Point: pointOf(n, n), By: memberNames[t]})
		}
	}
	return l
}

func (s *keptState) lastRevert() layers.Interval {
	return layers.Interval{To: layers.Number(s.to), By: layers.Number(s.by)}
}

func (s *keptState) setLine(l layers.Line) {
	s.counter, s.points, s.bases = uint8(l.Counter), [keptPoints + 1]keptPoint{}, [2]uint8{}
	for _, m := range l.Points {
		p := keptPoint{state: m.State}
		for _, h := range m.Holds {
			p.holds |= 1 << (h[0] - 'a')
		}
		s.points[m.Number] = p
	}
	for _, r := range l.Reverted {
		s.to, s.by = uint8(r.To), uint8(r.By)
	}
	for _, b := range l.Bases {
		s.bases[b.By[0]-'a'] = uint8(b.Number)
	}
}

func showKept(s *keptState) string {
	out := fmt.Sprintf("volume %v, points %v, bases %v, revert (%d,%d)", s.truth, s.points[1:s.counter+1], s.bases, s.to, s.by)
	for i := range s.replica {
		m := &s.replica[i]
		out += fmt.Sprintf("\n       %s:", memberNames[i])
		for _, f := range m.files[:m.n] {
			out += fmt.Sprintf(" file %d %v/%v", f.num, f.now, f.disk)
			if f.top > 0 {
				out += fmt.Sprintf(" <%d>", f.top)
			}
		}
		out += fmt.Sprintf(", maps %v, away %v", m.maps, m.away)
	}
	return out
}
