package explore

import (
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// keptPair is two neighbouring files of one layer on one member.
type keptPair struct {
	*keptStep
	layers.Pair
	i, low int // the member, and the place of the lower file
	mayAdd bool
}

// do changes the member.
func (p keptPair) do(text string, change func(*keptReplica)) {
	p.keptStep.do(fmt.Sprintf("%s, files %d and %d: %s", memberNames[p.i], p.Lower, p.Upper, text), func(s *keptState) string {
		change(&s.replica[p.i])
		return ""
	})
}

// merges does with each pair what NextAct says. Where it copies, both directions are searched.
func (k *keptStep) merges(i int) {
	s, m := k.from, &k.from.replica[i]
	for low := range int(m.n) - 1 {
		if m.files[low].top > 0 {
			continue
		}
		p := keptPair{keptStep: k, Pair: m.pair(low), i: i, low: low}
		// A local head is put on under the lock that all changes take.
		p.mayAdd = s.spent.heads < k.bounds.heads && m.n < keptFiles && (s.flight == 0 || k.rules.headInWrite)
		switch act, wait := k.rules.next(p.Pair, m.kept(), layers.Space{}, false, p.mayAdd); act {
		case layers.MergeWaits:
			if wait == layers.NeedsSnapshot {
				k.goals[goalWaits]++
			}
		case layers.PunchHidden:
			p.do("hidden blocks are punched", func(m *keptReplica) {
				for b := range keptBlocks {
					if m.files[low+1].disk[b] != 0 {
						m.drop(low, b)
					}
				}
			})
		case layers.RemoveLower:
			p.remove(p.Lower)
		case layers.RemoveUpper:
			p.remove(p.Upper)
		case layers.TakeUpBits:
			p.takeUp()
		default:
			p.copies()
		}
	}
}

func (m *keptReplica) pair(low int) layers.Pair {
	lower, upper := &m.files[low], &m.files[low+1]
	p := layers.Pair{
		Lower: layers.File(lower.num), Upper: layers.File(upper.num), Lowest: low == 0,
		UserWrites: low+2 == int(m.n), UpperDurable: true,
	}
	for b := range keptBlocks {
		l, u := lower.now[b] != 0, upper.now[b] != 0
		if u {
			p.UpperBlocks++
		} else if l {
			p.LowerOnly++
		}
		if l && upper.disk[b] != 0 {
			p.Hidden++
		}
		p.UpperDurable = p.UpperDurable && (!l || !u || upper.disk[b] != 0)
	}
	return p
}

func (m *keptReplica) drop(place, b int) { m.files[place].now[b], m.files[place].disk[b] = 0, 0 }

func (p keptPair) remove(f layers.File) {
	c, _ := p.from.replica[p.i].chain()
	without, err := c.RemoveFile(f)
	if err != nil {
		panic(err)
	}
	p.do(fmt.Sprintf("file %d leaves the list", f), func(m *keptReplica) { m.setChain(without) })
}

func (p keptPair) takeUp() {
	m := &p.from.replica[p.i]
	_, has := m.chain()
	if p.rules.durableOnly {
		has = func(f layers.File, b int64) bool { return m.files[m.place(uint8(f))].disk[b] != 0 }
	}
	kept, ok := p.rules.takeUp(m.kept(), p.Lower, p.Upper, keptBlocks, has, p.UserWrites)
	if !ok {
		return
	}
	p.goals[goalTookUp]++
	p.do("the kept maps take up the upper file", func(m *keptReplica) { m.setKept(kept) })
}

// copies puts a local head on, or moves one block.
func (p keptPair) copies() {
	if p.UserWrites && p.mayAdd {
		p.keptStep.do(memberNames[p.i]+" puts a local head on", func(s *keptState) string {
			s.spent.heads++
			m := &s.replica[p.i]
			m.files[m.n] = keptFile{num: m.next}
			m.n++
			m.next++
			return ""
		})
	}
	m := &p.from.replica[p.i]
	for b := range keptBlocks {
		if m.files[p.low].now[b] != 0 {
			p.do(fmt.Sprintf("block %d goes up", b), func(m *keptReplica) { m.up(p.low, b) })
		}
		if !p.UserWrites && m.files[p.low+1].now[b] != 0 {
			p.do(fmt.Sprintf("block %d goes down", b), func(m *keptReplica) { m.down(p.low, b) })
		}
	}
}

func (m *keptReplica) up(low, b int) {
	lower, upper := &m.files[low], &m.files[low+1]
	if upper.now[b] == 0 {
		upper.now[b], upper.disk[b] = lower.now[b], lower.now[b]
		m.drop(low, b)
	}
}

// down flushes the upper file first.
func (m *keptReplica) down(low, b int) {
	lower, upper := &m.files[low], &m.files[low+1]
	upper.disk = upper.now
	lower.now[b], lower.disk[b] = upper.now[b], upper.now[b]
	m.drop(low+1, b)
}
