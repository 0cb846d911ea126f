package explore

import (
	"fmt"
	"hash/maphash"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// said is an event of a small model: its text.
type said string

func (e said) String() string { return string(e) }

// model is the subject of a search. S is a value without pointers.
type model[S comparable, E fmt.Stringer] struct {
	start S
	// successors calls emit for each event that can happen now. It passes the state after the event, and the rule that
	// the event itself breaks, if any.
	successors func(s *S, emit func(ev E, to S, broken string))
	// violation returns the invariant that a state breaks, or "".
	violation func(s *S) string
	// canonical returns the state that stands for all states that differ only in names. May be nil.
	canonical func(s *S) S
	show      func(s *S) string
}

// link describes how a state was first reached.
type link struct {
	parent uint32
	hash   [2]uint64
}

type result struct {
	states, depth int
	complete      bool   // false if a limit ended the search
	violation     string // empty if none
	trace         string // the events that lead to it
}

// seeds make the hashes of states. Among some 10^7 states, the probability that two share 128 bits is below 10^-23.
var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func hashOf[S comparable](s S) [2]uint64 {
	return [2]uint64{maphash.Comparable(seeds[0], s), maphash.Comparable(seeds[1], s)}
}

// explore visits all states, the nearest first, so a violation is found by one of the shortest sequences.
func explore[S comparable, E fmt.Stringer](m model[S, E], limit int, within time.Duration) result {
	if m.canonical == nil {
		m.canonical = func(s *S) S { return *s }
	}
	deadline := time.Now().Add(within)
	first := m.canonical(&m.start)
	seen := map[[2]uint64]struct{}{hashOf(first): {}}
	links, frontier := []link{{}}, []S{first}
	number, depth := 0, 0 // number is that of frontier[0]
	for ; len(frontier) > 0; depth++ {
		var next []S
		for i := range frontier {
			var why string
			m.successors(&frontier[i], func(ev E, to S, broken string) {
				if why != "" {
					return
				}
				if broken == "" {
					broken = m.violation(&to)
				}
				if broken != "" {
					why = broken
					return
				}
				c := m.canonical(&to)
				h := hashOf(c)
				if _, known := seen[h]; known {
					return
				}
				seen[h] = struct{}{}
				links = append(links, link{uint32(number + i), h})
				next = append(next, c)
			})
			if why != "" {
				return result{states: len(links), depth: depth + 1, violation: why, trace: m.trace(links, uint32(number+i))}
			}
			if len(links) >= limit || i%256 == 0 && time.Now().After(deadline) {
				return result{states: len(links), depth: depth}
			}
		}
		number += len(frontier)
		frontier = next
	}
	return result{states: len(links), depth: depth, complete: true}
}

// trace repeats the events that led to a state, and the event that breaks an invariant there.
func (m model[S, E]) trace(links []link, at uint32) string {
	var path []link
	for ; at != 0; at = links[at].parent {
		path = append(path, links[at])
	}
	var b strings.Builder
	now := m.start // not the canonical state: names stay what they are along the way
	step := func(n int, ev E, to *S) {
		fmt.Fprintf(&b, "%3d. %v\n", n, ev)
		if m.show != nil {
			fmt.Fprintf(&b, "       %s\n", m.show(to))
		}
	}
	for i := len(path) - 1; i >= 0; i-- {
		from, found := now, false
		m.successors(&from, func(ev E, to S, _ string) {
			if !found && hashOf(m.canonical(&to)) == path[i].hash {
				step(len(path)-i, ev, &to)
				found, now = true, to
			}
		})
	}
	told := false
	m.successors(&now, func(ev E, to S, broken string) {
		if !told && (broken != "" || m.violation(&to) != "") {
			step(len(path)+1, ev, &to)
			told = true
		}
	})
	return b.String()
}

// long says that the bounds are wide: LONG=1, or the time for each search, for example LONG=30s. A test asks during its
// run, so that go test does not take the result of another value for this one.
func long() bool { return os.Getenv("LONG") != "" }

// limits ends a search that is too large for the machine. With LONG most searches are.
func limits() (states int, within time.Duration) {
	if !long() {
		return 2_000_000, time.Minute
	}
	if d, err := time.ParseDuration(os.Getenv("LONG")); err == nil {
		return 20_000_000, d
	}
	return 20_000_000, 4 * time.Minute
}

func skipSlow(t *testing.T) {
	if raceEnabled {
		t.Skip("nothing here runs side by side, and the race detector makes it twenty times slower; scripts/test.sh runs it without")
	}
}

// holds searches a model with the right rules.
func holds[S comparable, E fmt.Stringer](t *testing.T, m model[S, E]) {
	t.Helper()
	began := time.Now()
	states, within := limits()
	r := explore(m, states, within)
	fmt.Printf("explored %d states in %d steps, %v: %s\n", r.states, r.depth, time.Since(began).Round(time.Millisecond), t.Name())
	require.Empty(t, r.violation, r.trace)
	if !r.complete {
		t.Logf("the search was ended by its limits at depth %d: no violation up to there", r.depth)
		assert.True(t, long(), "the normal bounds must be searched to the end")
	}
}

// fails searches a model with one wrong rule. The violation must start with want.
func fails[S comparable, E fmt.Stringer](t *testing.T, m model[S, E], want string) {
	t.Helper()
	states, within := limits()
	r := explore(m, states, within)
	if !strings.HasPrefix(r.violation, want) || want == "" {
		t.Fatalf("after %d states (complete: %v): %q, want one of %q\n%s", r.states, r.complete, r.violation, want, r.trace)
	}
	t.Logf("after %d states: %s\n%s", r.states, r.violation, r.trace)
}
