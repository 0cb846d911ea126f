package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
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
				assert.GreaterOrEqual(t, r.clock.Since(began), membership.SlowAfter)
				assert.NoError(t, r.answer(answered))
				s := r.await(e, changed, "epoch", inEpoch(rest...))
				r.expectModes(s, map[string]string{victim: ModeERR, rest[0]: ModeRW, rest[1]: ModeRW})
			})
		}
	}
}

// Requests of the engine itself also delay users, so they are watched like the requests of users.
func TestAMemberThatHangsWhileMarksAreClearedIsExpelled(t *testing.T) {
	for _, local := range []string{"a", "b"} {
		t.Run(local+" is local", func(t *testing.T) {
			r := newRig(t, "a", "b")
			r.local = local
			e, _ := r.run(1)
			require.NoError(t, writeOnes(e.Backend()))
			g := faulty.NewGate()
			t.Cleanup(g.Open)
			r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Flush), Gate: g})
			r.tick(e)
			r.tick(e)
			<-g.Arrived()
			r.stepUntil(func() bool { return inEpoch("a")(e.State()) })
			r.stepUntil(func() bool { return len(r.disk("a").marked()) == 0 }) // marks are cleared again
			assert.NoError(t, writeOnes(e.Backend()))
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
	assert.NoError(t, <-answered)
}

func TestTheTimesAreConfigurable(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1, func(c *Config) { c.QuietPeriod, c.SlowAfter = time.Second, 400*time.Millisecond })
	require.NoError(t, writeOnes(e.Backend()))
	began := r.clock.Now()
	r.tick(e)
	r.tick(e)
	r.expectMarks(nil)
	assert.Equal(t, 2*time.Second, r.clock.Since(began))
	g := faulty.NewGate()
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Gate: g})
	answered := make(chan error, 1)
	go func() { answered <- writeOnes(e.Backend()) }()
	<-g.Arrived()
	began = r.clock.Now()
	r.stepBy(25*time.Millisecond, func() bool { return inEpoch("a")(e.State()) })
	waited := r.clock.Since(began)
	assert.GreaterOrEqual(t, waited, 400*time.Millisecond)
	assert.Less(t, waited, membership.SlowAfter)
	assert.NoError(t, r.answer(answered))
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
	assert.NoError(t, <-answered)
	s := e.State()
	assert.True(t, inEpoch("a", "b")(s), s)
	assert.Zero(t, countMode(s, ModeERR))
}

// look advances the time by one check and waits until the engine has done its check, if there is anything to check. A
// request may start just when the time has passed, for example a flush before marks are cleared. Then look advances the
// time again. The timer of the marks must run.
func (r *rig) look(e *Engine) {
	r.t.Helper()
	w := e.mirror.watchdog
	state := func() (told bool, lastLook time.Time) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.isWoken, w.lastCheck
	}
	deadline := time.Now().Add(time.Minute)
	for _, before := state(); ; time.Sleep(100 * time.Microsecond) {
		require.False(r.t, time.Now().After(deadline), "the engine does not look")
		switch told, last := state(); {
		case !told:
			r.clock.Step(membership.CheckInterval)
			return
		case last.After(before):
			return
		case r.clock.Waiters() == 2:
			r.clock.Step(membership.CheckInterval)
		}
	}
}

// The engine's process is paused for a long time, between the answers of two members. Afterwards the second answer is
// available.
func TestAPausedEngineExpelsNoMember(t *testing.T) {
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
		looked = w.lastCheck.Equal(r.clock.Now())
		w.mu.Unlock()
	}
	g.Open()
	assert.NoError(t, <-answered)
	s := e.State()
	assert.True(t, inEpoch("a", "b")(s), s)
	assert.Zero(t, countMode(s, ModeERR))
}
