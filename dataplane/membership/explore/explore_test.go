package explore

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	goalExpelled   = "a write acknowledged after an expulsion"
	goalPending    = "a write acknowledged while an epoch is pending"
	goalRebuilt    = "a write acknowledged with a rebuilt member"
	goalPart       = "a start with a part of the members"
	goalRolledBack = "a rolled-back object was refused"
	goalLacked     = "a replica became a member by a copy of a part"
	goalUnprovable = "a rollback that no replica present could prove"
)

// scenario is one search: the events that may happen, and the events that must have happened at least once for a useful
// search.
type scenario struct {
	name   string
	bounds bounds
	long   bounds // with LONG=1
	goals  []string
}

var scenarios = []scenario{
	{
		name:   "members fail, engines overlap",
		bounds: bounds{writes: 2, starts: 2, fails: 2},
		long:   bounds{writes: 3, starts: 3, fails: 2},
		goals:  []string{goalExpelled, goalPart, goalPending},
	},
	{
		name:   "replicas and engines stop anywhere",
		bounds: bounds{writes: 1, starts: 2, fails: 1, crashes: 1},
		long:   bounds{writes: 2, starts: 3, fails: 2, crashes: 2},
		goals:  []string{goalExpelled, goalPart, goalPending},
	},
	{
		name:   "a member is rebuilt while an engine is overtaken",
		bounds: bounds{writes: 1, starts: 2, fails: 1, rebuilds: 1},
		long:   bounds{writes: 2, starts: 3, fails: 2, crashes: 1, rebuilds: 2},
		goals:  []string{goalExpelled, goalRebuilt, goalPending},
	},
	{
		name:   "a rebuild ends with its source, its target or its engine",
		bounds: bounds{writes: 2, starts: 2, fails: 1, crashes: 2, rebuilds: 1, alone: true},
		long:   bounds{writes: 2, starts: 2, fails: 1, crashes: 2, rebuilds: 2},
		goals:  []string{goalExpelled, goalRebuilt},
	},
	{
		name:   "a replica that was away gets what it lacks",
		bounds: bounds{writes: 1, starts: 2, fails: 1, crashes: 1, rebuilds: 1, alone: true, delta: true},
		long:   bounds{writes: 2, starts: 2, fails: 2, crashes: 1, rebuilds: 2, alone: true, delta: true},
		goals:  []string{goalExpelled, goalRebuilt, goalLacked},
	},
	{
		name:   "a replica that was away gets what it lacks while an engine is overtaken",
		bounds: bounds{writes: 1, starts: 2, fails: 1, rebuilds: 1, delta: true},
		long:   bounds{writes: 2, starts: 3, fails: 2, crashes: 1, rebuilds: 2, delta: true},
		goals:  []string{goalExpelled, goalLacked},
	},
	{
		name:   "a node does not answer: the leader fences, another engine starts",
		bounds: bounds{writes: 1, starts: 2, raises: 1, fails: 1},
		long:   bounds{writes: 2, starts: 3, raises: 2, fails: 2, crashes: 1},
		goals:  []string{goalPart},
	},
	{
		name:   "the API server comes and goes",
		bounds: bounds{writes: 1, starts: 2, fails: 1, crashes: 1, cuts: 1},
		long:   bounds{writes: 2, starts: 2, fails: 2, crashes: 1, cuts: 2, rebuilds: 1},
		goals:  []string{goalExpelled},
	},
	{
		name:   "the API server is restored from a backup",
		bounds: bounds{writes: 1, starts: 2, fails: 1, crashes: 1, rebuilds: 1, rollbacks: 1, alone: true},
		long:   bounds{writes: 2, starts: 3, fails: 1, crashes: 1, rebuilds: 1, rollbacks: 1},
		goals:  []string{goalRolledBack, goalUnprovable},
	},
}

// The limits of a search that LONG makes too large for the machine. The test reports which goals were not reached, and
// does not fail.
const (
	mostStates = 40_000_000
	mostTime   = 4 * time.Minute
)

func TestEveryReachableStateKeepsTheInvariants(t *testing.T) {
	if testing.Short() {
		t.Skip("the search takes a minute: not with -short")
	}
	if raceEnabled {
		t.Skip("nothing here runs side by side, and the race detector makes it twenty times slower; scripts/test.sh runs it without")
	}
	long := os.Getenv("LONG") != ""
	total := 0
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			b := sc.bounds
			if long {
				b = sc.long
			}
			began := time.Now()
			r := explore(b, protocol(), mostStates, mostTime)
			total += r.states
			fmt.Printf("explored %d states in %d steps, %v: %s\n", r.states, r.depth, time.Since(began).Round(time.Millisecond), sc.name)
			require.Empty(t, r.violation)
			if !r.complete {
				t.Logf("the search was ended by its limits at depth %d: no violation up to there", r.depth)
				assert.True(t, long, "the normal bounds must be searched to the end")
			}
			for _, g := range sc.goals {
				// a search that was cut off may not have reached this
				assert.False(t, r.goals[g] == 0 && r.complete, "never seen: %s", g)
			}
			t.Logf("seen: %v", r.goals)
		})
	}
	fmt.Printf("explored %d states\n", total)
}
