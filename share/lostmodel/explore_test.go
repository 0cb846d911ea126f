package lostmodel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// link says how a state was first reached.
type link struct {
	from  state
	event string
}

// explore explores all states, the nearest first. It returns how many there are and which events happened, or how the
// first bad state is reached.
func explore(r rules) (states int, seen map[string]int, trace string) {
	begin := r.initial()
	known, frontier, seen := map[state]link{begin: {}}, []state{begin}, map[string]int{}
	for len(frontier) > 0 && trace == "" {
		var found []state
		for _, s := range frontier {
			r.successors(s, func(event string, to state) {
				if _, is := known[to]; is || trace != "" {
					return
				}
				seen[event]++
				known[to] = link{s, event}
				found = append(found, to)
				if why := to.violation(); why != "" {
					trace = why + tell(known, begin, to)
				}
			})
		}
		frontier = found
	}
	return len(known), seen, trace
}

func tell(known map[state]link, begin, s state) string {
	var b strings.Builder
	var steps []string
	for ; s != begin; s = known[s].from {
		steps = append(steps, known[s].event)
	}
	for i := range steps {
		fmt.Fprintf(&b, "\n%3d. %s", i+1, steps[len(steps)-1-i])
	}
	return b.String()
}

func TestNoOrderOfEventsBreaksAnInvariant(t *testing.T) {
	for name, r := range map[string]rules{
		"all are of this release":                           {},
		"the former pod asks nothing":                       {earlierPod: true},
		"a leader that was deposed creates the pod":         {lateLeader: true},
		"an answer counts in the last round alone":          {lastOnly: true},
		"the leader lists a node that it reaches (no harm)": {noVerdict: true},
	} {
		t.Run(name, func(t *testing.T) {
			states, seen, trace := explore(r)
			require.Empty(t, trace)
			t.Logf("%d states", states)
			if !r.earlierPod && !r.lateLeader {
				assert.NotZero(t, seen["the share manager removes the record"], "the rules let nothing through, so they prove nothing")
				assert.NotZero(t, seen["another client locks"])
				assert.NotZero(t, seen["the leader restarts the client's pods"])
			}
		})
	}
}

// Each weaker rule is wrong: the search finds an order of events that breaks an invariant.
func TestAWeakerRuleIsFound(t *testing.T) {
	for name, tc := range map[string]struct {
		rules rules
		want  string
	}{
		"the list alone counts":                        {rules{noRounds: true}, "answered before the last round"},
		"the last round begins before the wait":        {rules{dialsBefore: true, staleCheck: true}, "answered before the last round"},
		"the last round is long ago":                   {rules{staleCheck: true}, "answered before the last round"},
		"no other node is asked":                       {rules{noControl: true}, "answered before the last round"},
		"the former server may still reach clients":    {rules{noAge: true}, "at the former server"},
		"the former pod asks nothing":                  {rules{noNote: true, earlierPod: true}, "at the former server"},
		"the list is about an engine before":           {rules{anyEngine: true, lateLeader: true}, "at the former server"},
		"each process of the pod takes the list":       {rules{noMark: true}, "the leader does not know"},
		"the leader remembers only what a pod says":    {rules{noEntry: true}, "the leader does not know"},
		"a later pod's answer is believed of the list": {rules{forgetsAtTwo: true}, "the leader does not know"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, trace := explore(tc.rules)
			require.NotEmpty(t, trace, "no order of events breaks an invariant")
			t.Log(trace)
			assert.Contains(t, trace, tc.want)
		})
	}
}
