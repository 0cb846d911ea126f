package explore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// everything allows all events together. A search of all its states would not end, so histories are drawn at random.
var everything = bounds{
	members: 3, blocks: 3, size: 2, grows: true,
	writes: 6, trims: 2, snapshots: 5, deletes: 3, ends: 4, reverts: 2, crashes: 5, losses: 3, absences: 4,
	rebuilds: 4, cuts: 1, backups: 1, heads: 1, holds: 1, pieces: true, partial: true, detached: true,
}

// rare events are drawn less often: each of them ends what was under way, and is bounded.
var rare = []kind{evAway, evLosesPower, evEngineDies, evPartialWrite, evGiveUp, evCut, evRestore, evDelete, evRevert, evFlush}

// history draws one history: first a kind of event, then one event of it. It returns the violation, if there is one.
// tell is called for each event.
func history(m model[state, event], seed uint64, tell func(event, *state)) string {
	type choice struct {
		ev     event
		to     state
		broken string
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	now := m.start
	for range 250 {
		var choices []choice
		var kinds []kind
		m.successors(&now, func(ev event, to state, broken string) {
			if to == now && broken == "" {
				return
			}
			choices = append(choices, choice{ev, to, broken})
			if !slices.Contains(kinds, ev.kind) {
				kinds = append(kinds, ev.kind)
			}
		})
		if len(choices) == 0 {
			return ""
		}
		k := kinds[rng.IntN(len(kinds))]
		if slices.Contains(rare, k) && rng.IntN(5) > 0 {
			k = kinds[rng.IntN(len(kinds))]
		}
		n, chosen := 0, choice{}
		for _, c := range choices {
			if c.ev.kind == k {
				if n++; rng.IntN(n) == 0 {
					chosen = c
				}
			}
		}
		now = chosen.to
		tell(chosen.ev, &now)
		if chosen.broken != "" {
			return chosen.broken
		}
		if why := m.violation(&now); why != "" {
			return why
		}
	}
	return ""
}

func TestRandomHistoriesKeepTheInvariants(t *testing.T) {
	skipSlow(t)
	most, until := 4_000, time.Now().Add(time.Minute)
	if long() {
		_, within := limits()
		most, until = 1<<30, time.Now().Add(within)
	}
	goals := map[string]int{}
	m := everything.model(protocol(), goals)
	n, steps, began := 0, 0, time.Now()
	for ; n < most && time.Now().Before(until); n++ {
		seed := uint64(n)
		if why := history(m, seed, func(event, *state) { steps++ }); why != "" {
			t.Fatalf("history %d: %s\n%s", n, why, toldHistory(m, seed))
		}
	}
	fmt.Printf("drew %d histories with %d steps, %v\n", n, steps, time.Since(began).Round(time.Millisecond))
	for _, g := range []string{
		goalReady, goalGivenUp, goalDropped, goalMerged, goalLost, goalAdopted, goalRolledBack, goalDuringRebuild, goalCommon, goalRebuilt,
	} {
		assert.NotZero(t, goals[g], "never seen: %s", g)
	}
	t.Logf("seen: %v", goals)
}

func toldHistory(m model[state, event], seed uint64) string {
	var b strings.Builder
	n := 0
	history(m, seed, func(ev event, to *state) {
		n++
		fmt.Fprintf(&b, "%3d. %v\n       %s\n", n, ev, m.show(to))
	})
	return b.String()
}
