package explore

// A state and the same state with renamed replicas or engines lead to the same violations, because no rule and no event
// prefers a name. (The rules name a source nowhere; the model tries every one.) So the search visits one state of each
// such class: the state with the lowest encoding. Sessions are not renamed, because they order the starts.

type renaming [replicas]int // of replica i to r[i]

var renamings = []renaming{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

var renamedSets = func() (t [6][8]set) {
	for n, r := range renamings {
		for s := range set(8) {
			for i := range replicas {
				if s.has(i) {
					t[n][s] |= one(r[i])
				}
			}
		}
	}
	return t
}()

func (s *state) rename(n int) state {
	if n == 0 {
		return *s
	}
	r, sets := renamings[n], &renamedSets[n]
	ep := func(e epoch) epoch { return e&^7 | epoch(sets[e&7]) }
	o := *s
	o.object.epoch, o.backup.epoch, o.newest = ep(s.object.epoch), ep(s.backup.epoch), ep(s.newest)
	for i := range s.replica {
		t := &o.replica[r[i]]
		*t = s.replica[i]
		t.epoch, t.base = ep(t.epoch), ep(t.base)
		for j, last := range s.replica[i].away {
			t.away[r[j]] = ep(last)
		}
	}
	for k := range s.engine {
		e := &o.engine[k]
		e.recorded, e.inForce, e.proposed = ep(e.recorded), ep(e.inForce), ep(e.proposed)
		e.stored, e.serving, e.leaving, e.applied = sets[e.stored], sets[e.serving], sets[e.leaving], sets[e.applied]
		e.lacking.base, e.asked, e.skipped = ep(e.lacking.base), sets[e.asked], sets[e.skipped]
		if e.target != nobody {
			e.target = uint8(r[e.target-1]) + 1
		}
		for i, sh := range s.engine[k].shown {
			sh.epoch = ep(sh.epoch)
			e.shown[r[i]] = sh
		}
	}
	return o
}

type encoding [144]byte

func (s *state) encode() (out encoding) {
	n := 0
	put := func(bs ...uint8) {
		if copy(out[n:], bs) < len(bs) {
			panic("BUG: a state does not fit its encoding")
		}
		n += len(bs)
	}
	word := func(e epoch) { put(uint8(e>>8), uint8(e)) }
	for _, o := range [...]*object{&s.object, &s.backup} {
		put(o.generation, o.session)
		word(o.epoch)
	}
	put(bit(s.api)|bit(s.restored)<<1, s.begun, uint8(s.acked), s.fenced, uint8(s.late))
	word(s.newest)
	put(s.spent.starts, s.spent.raises, s.spent.fails, s.spent.crashes, s.spent.rebuilds, s.spent.cuts, s.spent.backups)
	for i := range s.replica {
		r := &s.replica[i]
		put(r.generation, r.session, bit(r.rebuilding)|bit(r.up)<<1|bit(r.partial)<<2, uint8(r.held), uint8(r.marked), r.live, uint8(r.changed))
		word(r.epoch)
		word(r.base)
		for _, last := range r.away {
			word(last)
		}
	}
	for k := range s.engine {
		e := &s.engine[k]
		put(uint8(e.phase), e.generation, e.session, uint8(e.stored), uint8(e.serving)|uint8(e.leaving)<<4, uint8(e.uneven), e.write, uint8(e.applied), e.target)
		put(bit(e.told)<<1 | bit(e.synced)<<2 | bit(e.copied)<<3)
		put(uint8(e.lacks), uint8(e.asked)|uint8(e.skipped)<<4, bit(e.knows))
		word(e.lacking.base)
		word(e.recorded)
		word(e.inForce)
		word(e.proposed)
		for _, sh := range e.shown {
			put(bit(sh.asked) | bit(sh.rebuilding)<<1 | bit(sh.partial)<<2)
			word(sh.epoch)
		}
	}
	return out
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// canonical returns the state that represents the class in the search, and its encoding. Engines are in the order of
// their sessions, and replicas in the order of their nature. If several orders remain, it takes the state with the
// lowest encoding.
func (s *state) canonical() (best state, code encoding) {
	in := *s
	if in.engine[0].session > in.engine[1].session {
		in.engine[0], in.engine[1] = in.engine[1], in.engine[0]
	}
	var nature [replicas]uint64
	for i := range nature {
		nature[i] = in.nature(i)
	}
	first := true
	for n, r := range renamings {
		var sorted [replicas]uint64
		for i := range replicas {
			sorted[r[i]] = nature[i]
		}
		if sorted[0] > sorted[1] || sorted[1] > sorted[2] {
			continue
		}
		o := in.rename(n)
		if c := o.encode(); first || string(c[:]) < string(code[:]) {
			best, code, first = o, c, false
		}
	}
	return best, code
}

// nature returns the properties of a replica that do not depend on the names of replicas.
func (s *state) nature(i int) uint64 {
	r := &s.replica[i]
	n := uint64(r.epoch>>3)<<41 | uint64(r.generation)<<28 | uint64(r.session)<<24 | uint64(r.live)<<20 |
		uint64(r.held)<<16 | uint64(r.marked)<<12 | uint64(bit(r.rebuilding))<<11 | uint64(bit(r.up))<<10 | uint64(bit(r.partial))<<40
	if s.object.epoch.members().has(i) {
		n |= 1 << 9
	}
	for k := range s.engine {
		e := &s.engine[k]
		n |= (uint64(e.serving>>i&1) | uint64(e.applied>>i&1)<<1 | uint64(e.stored>>i&1)<<2) << (3 * k)
	}
	return n
}
