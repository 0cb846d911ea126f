package explore

import (
	"fmt"
	"hash/maphash"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// violation returns the invariant that a state breaks, or "".
//
//	V1  every snapshot that exists, or that a job holds, reads on every member of the recorded epoch as the volume did
//	    at its barrier, and is durable there
//	V2  the volume reads on every serving member as the last acknowledged change
//	V3  a snapshot that was told to be ready exists until a user deletes it, or lets it go in a revert
//	V4  a snapshot that was told to have failed does not come back
//	V5  the blocks that differ between two snapshots are among those that Changed names; a block that was never written
//	    is not
//	V6  a start loses no acknowledged change; after a loss of power no flushed change (checked by the event)
//	V7  a start is not refused while members with all data are there (by the event)
//	V8  a member of a start has the point of every revert (by the event)
//	V9  a rebuild continues where it was (by the event)
//
// The views count for members that are away as well: an engine may start with them alone.
func violation(s *state) string {
	if s.restored {
		return "" // until a start has looked at the members
	}
	var ready set
	for _, p := range s.object.points {
		if p.state != layers.Ready && !(p.state == layers.Deleted && p.held) {
			continue
		}
		if why := s.brokenSnapshot(p); why != "" {
			return why
		}
		if p.state == layers.Ready {
			ready |= only(int(p.nonce))
		}
	}
	switch e := &s.engine; {
	case s.promised&^ready != 0:
		return fmt.Sprintf("V3: a snapshot that was ready is gone (nonces %b)", s.promised&^ready)
	case s.refused&ready != 0 && s.spent.backups == 0:
		return fmt.Sprintf("V4: a snapshot that failed is there (nonces %b)", s.refused&ready)
	case e.phase == serving:
		return s.brokenRead()
	}
	return ""
}

func (s *state) brokenSnapshot(p point) string {
	for i := range s.member {
		if !s.object.members.has(i) {
			continue
		}
		m := &s.member[i]
		place := m.border(p.number, p.nonce)
		if place < 0 {
			return fmt.Sprintf("V1: %s lacks snapshot %d", memberNames[i], p.number)
		}
		for b := range maxBlocks {
			if got, want := m.view(place, b), s.snap[p.nonce][b]; got != want {
				return fmt.Sprintf("V1: snapshot %d, block %d: %s reads %v, it was %v", p.number, b, memberNames[i], got, want)
			}
		}
	}
	return ""
}

func (s *state) brokenRead() string {
	readers := s.receivers()
	for i := range s.member {
		if !readers.has(i) {
			continue
		}
		m := &s.member[i]
		for b := range int(s.size) {
			if w := m.read(b); w != s.truth[b] {
				return fmt.Sprintf("V2: block %d: %s reads %v, acknowledged was %v", b, memberNames[i], w, s.truth[b])
			}
		}
		if why := s.brokenChanged(i); why != "" {
			return why
		}
	}
	return ""
}

func (s *state) brokenChanged(i int) string {
	m := &s.member[i]
	var chain layers.Chain
	for a, p := range s.object.points {
		for _, q := range s.object.points[a+1:] {
			if p.state != layers.Ready || q.state != layers.Ready {
				continue
			}
			if chain.Next == 0 {
				chain = m.chain()
			}
			has := func(f layers.File, b int64) bool { return m.files[f-1].cells[b].now != absent }
			changed, ok := chain.Changed(pointOf(p.number, p.nonce), pointOf(q.number, q.nonce), maxBlocks, has, nil)
			for b := range maxBlocks {
				differs := s.snap[p.nonce][b] != s.snap[q.nonce][b]
				if !ok || differs && !changed[b] {
					return fmt.Sprintf("V5: %s: block %d differs between snapshots %d and %d, and no map says so", memberNames[i], b, p.number, q.number)
				}
				if changed[b] && !s.written.has(b) {
					return fmt.Sprintf("V5: %s: block %d counts as changed between snapshots %d and %d, and was never written", memberNames[i], b, p.number, q.number)
				}
			}
		}
	}
	return ""
}

// model returns the subject of a search.
func (b bounds) model(r rules, goals map[string]int) model[state, event] {
	return model[state, event]{
		start: b.initial(),
		successors: func(s *state, emit func(event, state, string)) {
			st := step{bounds: b, rules: r, from: s, emit: emit, goals: goals}
			st.all()
		},
		violation: violation,
		canonical: b.canonical,
		show:      show,
	}
}

// canonical sorts the members. A state and the same state with renamed members lead to the same violations, because no
// rule prefers a name.
func (b bounds) canonical(s *state) state {
	n := int(b.members)
	var keys [maxMembers]uint64
	e := &s.engine
	for i := range n {
		role := func(x set) uint64 { return uint64(x >> i & 1) }
		roles := role(s.object.members) | role(s.backup.members)<<1 | role(e.roster)<<2 | role(e.leaving)<<3 | role(e.followed)<<4 | role(e.atSwitch)<<5
		if e.target == uint8(i)+1 {
			roles |= 1 << 6
		}
		if e.source == uint8(i)+1 {
			roles |= 1 << 7
		}
		keys[i] = maphash.Comparable(seeds[0], s.member[i])<<8 | roles
	}
	order := [maxMembers]int{0, 1, 2}
	for i := 1; i < n; i++ {
		for j := i; j > 0 && keys[order[j]] < keys[order[j-1]]; j-- {
			order[j], order[j-1] = order[j-1], order[j]
		}
	}
	if order == [maxMembers]int{0, 1, 2} {
		return *s
	}
	out := *s
	rename := func(x set) (y set) {
		for to, from := range order {
			if x.has(from) {
				y |= only(to)
			}
		}
		return y
	}
	o := &out.engine
	out.object.members, out.backup.members = rename(s.object.members), rename(s.backup.members)
	o.roster, o.leaving, o.followed, o.atSwitch = rename(e.roster), rename(e.leaving), rename(e.followed), rename(e.atSwitch)
	for to, from := range order {
		out.member[to] = s.member[from]
		if e.target == uint8(from)+1 {
			o.target = uint8(to) + 1
		}
		if e.source == uint8(from)+1 {
			o.source = uint8(to) + 1
		}
	}
	return out
}
