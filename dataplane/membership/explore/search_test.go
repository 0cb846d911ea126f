package explore

import (
	"fmt"
	"hash/maphash"
	"strings"
	"time"
)

// bounds limit how often each event may happen on the way to a state.
type bounds struct {
	writes, starts, raises, fails, crashes, rebuilds, cuts, rollbacks uint8
	// alone says that an engine starts only after the other has stopped.
	alone bool
	// delta says that a rebuild copies only the writes that the replica lacks, one at a time.
	delta bool
}

// search is one breadth-first search over all states within the bounds. It remembers states by a 128-bit hash of their
// encoding. Among some 10^7 states, the probability that two different ones share a hash is below 10^-23.
type search struct {
	bounds
	rules    rules
	seen     map[[2]uint64]struct{}
	seeds    [2]maphash.Seed
	parents  []link // by number of the state, in order of discovery
	frontier []state
	next     []state
	goals    map[string]int
	limit    int
	deadline time.Time
}

// link describes how a state was first reached.
type link struct {
	parent uint32
	event  event
}

type result struct {
	states, depth int
	complete      bool // false if the limit of states or time ended the search
	goals         map[string]int
	violation     string // with the events that lead to it; empty if none
}

func explore(b bounds, r rules, limit int, within time.Duration) result {
	s := &search{
		bounds: b, rules: r, seen: map[[2]uint64]struct{}{}, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		goals: map[string]int{}, limit: limit, deadline: time.Now().Add(within),
	}
	return s.run()
}

func (s *search) run() result {
	start, code := new(initial()).canonical()
	s.seen[s.hash(code)] = struct{}{}
	s.parents = append(s.parents, link{})
	s.frontier = append(s.frontier, start)
	first, depth := 0, 0 // first is the number of frontier[0]
	for ; len(s.frontier) > 0; depth++ {
		s.next = nil
		for i := range s.frontier {
			number := uint32(first + i)
			if why, ev := s.expand(&s.frontier[i], number); why != "" {
				return result{states: len(s.parents), depth: depth, goals: s.goals, violation: why + "\n" + s.trace(number, ev)}
			}
			if len(s.parents) >= s.limit || i%1024 == 0 && time.Now().After(s.deadline) {
				return result{states: len(s.parents), depth: depth, goals: s.goals}
			}
		}
		first += len(s.frontier)
		s.frontier = s.next
	}
	return result{states: len(s.parents), depth: depth, complete: true, goals: s.goals}
}

func (s *search) hash(code encoding) [2]uint64 {
	return [2]uint64{maphash.Bytes(s.seeds[0], code[:]), maphash.Bytes(s.seeds[1], code[:])}
}

// expand checks every state that one event leads to. It returns the invariant that is broken, if any.
func (s *search) expand(from *state, number uint32) (why string, last event) {
	s.successors(from, func(ev event, to state, broken string) bool {
		if broken == "" {
			broken = to.violation()
		}
		if broken != "" {
			why, last = broken, ev
			return false
		}
		canonical, code := to.canonical()
		h := s.hash(code)
		if _, known := s.seen[h]; known {
			return true
		}
		s.seen[h] = struct{}{}
		s.parents = append(s.parents, link{parent: number, event: ev})
		s.next = append(s.next, canonical)
		return true
	})
	return why, last
}

// trace repeats the events that led to a state, and one more event.
func (s *search) trace(number uint32, last event) string {
	events := []event{last}
	for ; number != 0; number = s.parents[number].parent {
		events = append(events, s.parents[number].event)
	}
	var b strings.Builder
	now, _ := new(initial()).canonical()
	for i := len(events) - 1; i >= 0; i-- {
		s.successors(&now, func(ev event, to state, _ string) bool {
			if ev != events[i] {
				return true
			}
			fmt.Fprintf(&b, "%3d. %v\n    %v\n", len(events)-i, ev, to)
			now = to
			if i > 0 {
				now, _ = to.canonical() // names may change from here
			}
			return false
		})
	}
	return b.String()
}
