package partitionmodel

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// link describes how a state was first reached.
type link struct {
	from  state
	event string
}

// explore visits all states, the nearest first. It returns how many there are, or the events that lead to the first bad
// state.
func explore(r rules) (states int, seen map[string]int, trace string) {
	begin := initial()
	if r.oldServer {
		begin.port = noLimit
	}
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
	var steps []string
	for s != begin {
		steps = append(steps, fmt.Sprintf("%s\n      %v", known[s].event, &s))
		s = known[s].from
	}
	var b strings.Builder
	for i := range steps {
		fmt.Fprintf(&b, "\n%3d. %s", i+1, steps[len(steps)-1-i])
	}
	return b.String()
}

func TestNoOrderOfEventsLetsTwoServersGrant(t *testing.T) {
	for name, r := range map[string]rules{
		"all are of this release":          {},
		"a member is of an older release":  {oldMember: true},
		"the old server is of one as well": {oldServer: true},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			states, seen, trace := explore(r)
			require.Empty(t, trace)
			t.Logf("%d states, %v", states, time.Since(began).Round(time.Millisecond))
			if !r.oldServer && !r.oldMember {
				assert.NotZero(t, seen["the successor gives away what clients held"], "the rule lets nobody through, so it proves nothing")
				assert.NotZero(t, seen["the port's time is renewed"])
			}
		})
	}
}

// Each weaker rule is wrong: the search finds an order of events in which two servers grant.
func TestAWeakerRuleIsFound(t *testing.T) {
	for name, r := range map[string]rules{
		"the time is counted from the answer":                                      {fromAnswer: true},
		"the time is counted from the renewal, before which the process may pause": {fromRenewal: true},
		"one member's answer is a yes":                                             {oneYes: true},
		"the successor trusts the silence to the leader":                           {leadersSilence: true},
		"a member that was restarted tells how long it runs":                       {restartIsAge: true},
		"the successor waits 4 s":                                                  {waitLess: true},
		"yes while the object still lists a member that does not answer":           {yesWhileLeaves: true},
		"a replica that becomes a member again has the age of before":              {keepsAge: true},
		"a question of a server without limit counts as an age":                    {oldMember: true, unlimitedAge: true},
		"a server opens without limit before its members know":                     {oldMember: true, opensUntold: true},
		"no age is known, and the successor waits 5 s after the fence":             {oldServer: true, fenceIsAge: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states, _, trace := explore(r)
			require.NotEmpty(t, trace, "%d states", states)
			t.Logf("after %d states: %s", states, trace)
		})
	}
}
