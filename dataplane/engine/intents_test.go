package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

func TestMarksAreClearedAfterAQuietTime(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	write := func(region int64) {
		t.Helper()
		require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(1, 512), region*testRegion, false))
	}
	r.expectRest()
	write(1)
	write(2)
	write(6)
	r.tick(e)
	write(2)
	r.tick(e)
	r.expectMarks([]int64{2})
	r.tick(e)
	r.expectMarks(nil)
	r.expectRest()
	cleared := r.disk("a").count(membership.OpClearIntents)
	write(3)
	r.expectMarks([]int64{3})
	r.tick(e)
	r.tick(e)
	r.expectMarks(nil)
	assert.Equal(t, cleared+1, r.disk("a").count(membership.OpClearIntents), "want one more than %d", cleared)
}

// expectRest lets the watchdog check for the last time, and fails the test if a timer still runs.
func (r *rig) expectRest() {
	r.t.Helper()
	for looks := 0; r.clock.HasWaiters(); looks++ {
		require.LessOrEqual(r.t, looks, 100, "a timer runs in an engine that has nothing to do")
		r.clock.Step(membership.CheckInterval)
		time.Sleep(time.Millisecond)
	}
}

// tick ends one period and waits until the engine has finished its work at that time.
func (r *rig) tick(e *Engine) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for !r.quietTimerRuns(e) {
		require.False(r.t, time.Now().After(deadline), "no timer")
		time.Sleep(100 * time.Microsecond)
	}
	periods := func() int {
		e.mirror.regions.mu.Lock()
		defer e.mirror.regions.mu.Unlock()
		return e.mirror.regions.period
	}
	before := periods()
	r.clock.Step(e.cfg.QuietPeriod)
	for periods() == before {
		require.False(r.t, time.Now().After(deadline), "the timer did nothing")
		time.Sleep(100 * time.Microsecond)
	}
}

// quietTimerRuns reports whether the timer of the marks runs. It ignores the timer of the watchdog, which runs for a
// while after each request.
func (r *rig) quietTimerRuns(e *Engine) bool {
	w := e.mirror.watchdog
	w.mu.Lock()
	defer w.mu.Unlock()
	others := 0
	if w.isWoken {
		others = 1
	}
	return r.clock.Waiters() > others
}

func (r *rig) expectMarks(want []int64) {
	r.t.Helper()
	for _, d := range r.disks {
		deadline := time.Now().Add(patience)
		for !slices.Equal(d.marked(), want) {
			require.False(r.t, time.Now().After(deadline), "%s has marks %v, want %v", d.name, d.marked(), want)
			time.Sleep(100 * time.Microsecond)
		}
	}
}
