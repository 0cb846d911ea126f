package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/longhorn-lep/longhorn-manager/membership"
)

func TestMarksAreClearedAfterAQuietTime(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	write := func(region int64) {
		t.Helper()
		if err := e.Backend().WriteAt(t.Context(), pattern(1, 512), region*testRegion, false); err != nil {
			t.Fatal(err)
		}
	}
	if r.clock.HasWaiters() {
		t.Fatal("a timer runs in an engine that was never written")
	}
	write(1)
	write(2)
	write(6)
	r.tick(e)
	write(2)
	r.tick(e)
	r.expectMarks([]int64{2})
	r.tick(e)
	r.expectMarks(nil)
	for r.clock.HasWaiters() { // the loop is about to disarm it
		time.Sleep(time.Millisecond)
	}
	cleared := r.disk("a").count(membership.OpClearIntents)
	write(3)
	r.expectMarks([]int64{3})
	r.tick(e)
	r.tick(e)
	r.expectMarks(nil)
	if n := r.disk("a").count(membership.OpClearIntents); n != cleared+1 {
		t.Errorf("%d clears, want one more than %d", n, cleared)
	}
}

// tick ends one period and waits until the engine has done what it does then.
func (r *rig) tick(e *Engine) {
	r.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !r.clock.HasWaiters() {
		if time.Now().After(deadline) {
			r.t.Fatal("no timer")
		}
		time.Sleep(100 * time.Microsecond)
	}
	periods := func() int {
		e.mirror.regions.mu.Lock()
		defer e.mirror.regions.mu.Unlock()
		return e.mirror.regions.count
	}
	before := periods()
	r.clock.Step(quietPeriod)
	for periods() == before {
		if time.Now().After(deadline) {
			r.t.Fatal("the timer did nothing")
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func (r *rig) expectMarks(want []int64) {
	r.t.Helper()
	for _, d := range r.disks {
		deadline := time.Now().Add(10 * time.Second)
		for !slices.Equal(d.marked(), want) {
			if time.Now().After(deadline) {
				r.t.Fatalf("%s has marks %v, want %v", d.name, d.marked(), want)
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
}
