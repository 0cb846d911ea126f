package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/longhorn-lep/longhorn-manager/membership"
	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/nbd/faulty"
)

func TestASlowMemberIsExpelled(t *testing.T) {
	for _, victim := range []string{"a", "b", "c"} { // b is local
		for _, kind := range []faulty.Kind{faulty.Write, faulty.Flush, faulty.Zero} {
			t.Run(fmt.Sprintf("%s of %s", kind, victim), func(t *testing.T) {
				r := newRig(t, "a", "b", "c")
				r.local = "b"
				e, changed := r.run(1)
				g := faulty.NewGate()
				t.Cleanup(g.Open)
				r.disk(victim).io.Inject(faulty.Rule{Match: faulty.Of(kind), Gate: g})
				do := map[faulty.Kind]func(nbd.Backend) error{faulty.Write: writeOnes, faulty.Flush: flush, faulty.Zero: writeZeroes}[kind]
				answered := make(chan error, 1)
				go func() { answered <- do(e.Backend()) }()
				<-g.Arrived()
				began := r.clock.Now()
				rest := slices.DeleteFunc([]string{"a", "b", "c"}, func(n string) bool { return n == victim })
				r.stepUntil(func() bool { return inEpoch(rest...)(e.State()) })
				if waited := r.clock.Since(began); waited < membership.SlowAfter {
					t.Errorf("expelled after %s", waited)
				}
				if err := r.answer(answered); err != nil {
					t.Error(err)
				}
				s := r.await(e, changed, "epoch", inEpoch(rest...))
				r.expectModes(s, map[string]string{victim: ModeERR, rest[0]: ModeRW, rest[1]: ModeRW})
			})
		}
	}
}

// What the engine itself asks of its members holds users up too, so it is watched like what they ask.
func TestAMemberThatHangsWhileMarksAreClearedIsExpelled(t *testing.T) {
	for _, local := range []string{"a", "b"} {
		t.Run(local+" is local", func(t *testing.T) {
			r := newRig(t, "a", "b")
			r.local = local
			e, _ := r.run(1)
			if err := writeOnes(e.Backend()); err != nil {
				t.Fatal(err)
			}
			g := faulty.NewGate()
			t.Cleanup(g.Open)
			r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Flush), Gate: g})
			r.tick(e)
			r.tick(e)
			<-g.Arrived()
			r.stepUntil(func() bool { return inEpoch("a")(e.State()) })
			r.stepUntil(func() bool { return len(r.disk("a").marked()) == 0 }) // marks are cleared again
			if err := writeOnes(e.Backend()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAMemberThatIsSlowToReadIsExpelled(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	g := faulty.NewGate()
	r.disk("a").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Gate: g})
	answered := make(chan error, 1)
	go func() { answered <- e.Backend().ReadAt(context.Background(), make([]byte, 512), 0) }()
	<-g.Arrived()
	r.stepUntil(func() bool { return inEpoch("b")(e.State()) })
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestTheTimesCanBeSet(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1, func(c *Config) { c.QuietPeriod, c.SlowAfter = time.Second, 400*time.Millisecond })
	if err := writeOnes(e.Backend()); err != nil {
		t.Fatal(err)
	}
	began := r.clock.Now()
	r.tick(e)
	r.tick(e)
	r.expectMarks(nil)
	if took := r.clock.Since(began); took != 2*time.Second {
		t.Errorf("two periods took %s", took)
	}
	g := faulty.NewGate()
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Gate: g})
	answered := make(chan error, 1)
	go func() { answered <- writeOnes(e.Backend()) }()
	<-g.Arrived()
	began = r.clock.Now()
	r.stepBy(25*time.Millisecond, func() bool { return inEpoch("a")(e.State()) })
	if waited := r.clock.Since(began); waited < 400*time.Millisecond || waited >= membership.SlowAfter {
		t.Errorf("expelled after %s", waited)
	}
	if err := r.answer(answered); err != nil {
		t.Error(err)
	}
}

func TestMembersThatAreAllSlowStay(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	g := faulty.NewGate()
	for _, d := range r.disks {
		d.io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Gate: g})
	}
	answered := make(chan error, 1)
	go func() { answered <- writeOnes(e.Backend()) }()
	<-g.Arrived()
	<-g.Arrived()
	for range 40 {
		r.look(e)
	}
	g.Open()
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if s := e.State(); !inEpoch("a", "b")(s) || countMode(s, ModeERR) != 0 {
		t.Errorf("got %+v", s)
	}
}

// look lets the time of one look pass and waits until the engine has looked, if it has anything to look at. The timer of the marks must
// run.
func (r *rig) look(e *Engine) {
	r.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	until := func(ok func(w *watchdog) bool) {
		w := e.mirror.watchdog
		for done := false; !done; time.Sleep(100 * time.Microsecond) {
			if time.Now().After(deadline) {
				r.t.Fatal("the engine does not look")
			}
			w.mu.Lock()
			done = !w.told || ok(w)
			w.mu.Unlock()
		}
	}
	until(func(*watchdog) bool { return r.clock.Waiters() == 2 })
	r.clock.Step(membership.LookEvery)
	until(func(w *watchdog) bool { return w.lastLook.Equal(r.clock.Now()) })
}

// The engine's process stands still for a long time, between the answers of two members. The second is there to be read afterwards.
func TestAnEngineThatWasPausedExpelsNobody(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	g := faulty.NewGate()
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Gate: g})
	answered := make(chan error, 1)
	go func() { answered <- writeOnes(e.Backend()) }()
	<-g.Arrived()
	w := e.mirror.watchdog
	for watched := 0; watched == 0 || !r.clock.HasWaiters(); time.Sleep(100 * time.Microsecond) {
		w.mu.Lock()
		watched = len(w.fanouts)
		w.mu.Unlock()
	}
	r.clock.Step(time.Hour)
	for looked := false; !looked; time.Sleep(100 * time.Microsecond) {
		w.mu.Lock()
		looked = w.lastLook.Equal(r.clock.Now())
		w.mu.Unlock()
	}
	g.Open()
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if s := e.State(); !inEpoch("a", "b")(s) || countMode(s, ModeERR) != 0 {
		t.Errorf("got %+v", s)
	}
}
