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
				if err := <-answered; err != nil {
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
			r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Flush), Gate: g})
			r.tick(e)
			r.tick(e)
			<-g.Arrived()
			r.stepUntil(func() bool { return inEpoch("a")(e.State()) })
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
		r.clock.Step(membership.LookEvery)
	}
	g.Open()
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if s := e.State(); !inEpoch("a", "b")(s) || countMode(s, ModeERR) != 0 {
		t.Errorf("got %+v", s)
	}
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
