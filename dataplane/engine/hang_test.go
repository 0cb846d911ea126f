package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// awaitQueued waits until n requests hold or wait for a range.
func (r *rig) awaitQueued(e *Engine, n int) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for queued := 0; queued != n; time.Sleep(100 * time.Microsecond) {
		require.False(r.t, time.Now().After(deadline), "%d requests hold or wait for a range, want %d", queued, n)
		e.mirror.locks.mu.Lock()
		queued = len(e.mirror.locks.spans)
		e.mirror.locks.mu.Unlock()
	}
}

// A read hangs in the local disk, and a write of the same range waits for it. When that replica is expelled, the write
// continues, and so does the clearing of marks. The read ends with the disk, and returns data that all members hold by
// then.
func TestAReadThatHangsDelaysNoOtherRequest(t *testing.T) {
	r := newRig(t, "a", "b")
	r.local = "a"
	e, _ := r.run(1)
	b := e.Backend()
	require.NoError(t, b.WriteAt(t.Context(), pattern(1, 4*testRegion), 0, false))
	g := faulty.NewGate()
	t.Cleanup(g.Open)
	r.disk("a").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Gate: g})
	var got [512]byte
	read, wrote := make(chan error, 1), make(chan error, 1)
	go func() { read <- b.ReadAt(context.Background(), got[:], 2*testRegion) }()
	<-g.Arrived()
	go func() { wrote <- b.WriteAt(context.Background(), pattern(2, 4096), 2*testRegion, false) }()
	r.awaitQueued(e, 2)
	r.stepUntil(func() bool { return inEpoch("b")(e.State()) })
	r.stepUntil(func() bool { return len(wrote) > 0 })
	assert.NoError(t, <-wrote)
	r.stepUntil(func() bool { return len(r.disk("b").marked()) == 0 })
	r.expectUnanswered(read)
	g.Open()
	assert.NoError(t, r.answer(read))
	assert.Equal(t, [512]byte(pattern(2, 512)), got, "read %d", got[0])
	r.awaitQueued(e, 0)
}

// A read hangs in a member. Long before this member is expelled, another member answers other reads.
func TestReadsGoElsewhereWhileOneHangs(t *testing.T) {
	r := newRig(t, "a", "b")
	r.local = "a"
	e, _ := r.run(1)
	g := faulty.NewGate()
	t.Cleanup(g.Open)
	r.disk("a").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Times: 2, Gate: g})
	read := make(chan error, 2)
	ask := func() { read <- e.Backend().ReadAt(context.Background(), make([]byte, 512), 0) }
	go ask()
	<-g.Arrived()
	hanging := func(want int32) func() bool {
		return func() bool { return e.mirror.roster.Load().find("a").hanging.Load() == want }
	}
	r.stepUntil(hanging(1))
	go ask()
	assert.NoError(t, r.answer(read))
	g.Open()
	assert.NoError(t, r.answer(read))
	assert.True(t, hanging(0)(), e.State())
	assert.True(t, inEpoch("a", "b")(e.State()))
	r.disk("b").io.Forget()
	go ask()
	err := r.answer(read)
	require.NoError(t, err)
	assert.Empty(t, r.disk("b").io.Ops(), "when nothing hung any more")
}

// If healthy members may differ, two reads must not have different answers, so no read goes to another member.
func TestAReadIsNotRepeatedElsewhereWhereMembersMayDiffer(t *testing.T) {
	r := newRig(t, "a", "b")
	r.local = "a"
	e, _ := r.run(1)
	for name, stored := range map[string]int{"a": 100, "b": 200} {
		r.disk(name).io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Times: 1, Tear: stored, Err: nbd.ENOSPC})
	}
	require.ErrorIs(t, writeOnes(e.Backend()), nbd.ENOSPC)
	e.mirror.roster.Load().find("a").hanging.Add(1)
	var got [512]byte
	for off, want := range map[int64]string{0: "a", testRegion: "b"} {
		for _, d := range r.disks {
			d.io.Forget()
		}
		err := e.Backend().ReadAt(t.Context(), got[:], off)
		require.NoError(t, err, "the read at %d did not go to %s", off, want)
		assert.Len(t, r.disk(want).io.Ops(), 1, "the read at %d did not go to %s", off, want)
	}
	e.mirror.roster.Load().find("a").hanging.Add(-1)
}

// Two members hang in the same read. The third member shows that the first is slow.
func TestAProbeThatHangsHidesNoOther(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.local = "a"
	e, _ := r.run(1)
	g := faulty.NewGate()
	t.Cleanup(g.Open)
	for _, name := range []string{"a", "b"} {
		r.disk(name).io.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Gate: g})
	}
	read := make(chan error, 1)
	go func() { read <- e.Backend().ReadAt(context.Background(), make([]byte, 512), 0) }()
	r.stepUntil(func() bool { return inEpoch("b", "c")(e.State()) })
	g.Open()
	assert.NoError(t, r.answer(read))
}

// The source of a rebuild is a local disk that hangs. It is expelled, the copy continues from another source, and its
// ranges are free.
func TestARebuildLeavesASourceThatHangs(t *testing.T) {
	const hole = 4 * testRegion
	for name, hangs := range map[string]func(faulty.Op) bool{
		"while it is read":                          faulty.Of(faulty.Read),
		"while it is asked for holes":               faulty.Of(faulty.Extents),
		"while it is asked whether a hole is still": func(op faulty.Op) bool { return op.Kind == faulty.Extents && op.Off == hole },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "a", "b", "c")
			r.local = "a"
			r.recorded = membership.NewEpoch(1, 2, []string{"a", "b"})
			for _, d := range r.disks {
				d.fill(t, 1, 0, hole)
			}
			r.disk("c").fill(t, 9, 0, testSize)
			r.disk("c").rebuilding = true
			e, changed := r.run(2)
			g := faulty.NewGate()
			t.Cleanup(g.Open)
			r.disk("a").io.Inject(faulty.Rule{Match: hangs, Gate: g})
			r.add(e, "c")
			held := <-g.Arrived()
			answered := make(chan error, 1)
			go func() { answered <- e.Backend().WriteAt(context.Background(), pattern(2, 4096), held.Off, false) }()
			r.stepUntil(func() bool { return countMode(e.State(), ModeERR) > 0 })
			// A copy yields to users.
			r.stepBy(time.Millisecond, func() bool { return len(answered) > 0 && rebuilt("c")(e.State()) })
			assert.NoError(t, <-answered)
			r.await(e, changed, "members", inEpoch("b", "c"))
			r.sameBytes("b", "c")
			got := r.disk("c").bytes(t, held.Off, 4096)
			assert.Equal(t, pattern(2, 4096), got, "the write is missing in the copy")
		})
	}
}

// A read that was left behind ends after all, while the copy is at another place.
func TestARebuildDoesNotUseTheBufferOfAReadThatHangs(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.local = "a"
	r.recorded = membership.NewEpoch(1, 2, []string{"a", "b"})
	for _, name := range []string{"a", "b"} {
		for region := range int64(8) {
			r.disk(name).fill(t, byte(1+region), region*testRegion, testRegion)
		}
	}
	e, changed := r.run(2)
	reads, writes := faulty.NewGate(), faulty.NewGate()
	t.Cleanup(reads.Open)
	r.disk("a").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Gate: reads})
	r.disk("c").io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, 3*testRegion, 1), Gate: writes})
	r.add(e, "c")
	<-reads.Arrived()
	r.stepUntil(func() bool { return inEpoch("b")(e.State()) })
	<-writes.Arrived()
	reads.Open()
	r.disk("a").currentSession().inside.Wait()
	writes.Open()
	r.awaitMember(e, changed, "c")
	r.sameBytes("b", "c")
}

// A disk that hangs may still read the data of a write that was left behind. While an epoch lists its replica, the data
// must serve nothing else, even if the engine has failed: otherwise the replica would store data that was never written
// there.
func TestTheDataOfAWriteThatHangsIsNotGivenBackBeforeTheEpoch(t *testing.T) {
	for _, broken := range []bool{false, true} {
		t.Run(fmt.Sprintf("it failed elsewhere: %t", broken), func(t *testing.T) {
			r := newRig(t, "a", "b")
			r.local = "a"
			e, changed := r.run(1)
			r.api.cut(true)
			g := faulty.NewGate()
			t.Cleanup(g.Open)
			r.disk("a").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Times: 1, Gate: g})
			data := pattern(1, 4096)
			answered := make(chan error, 1)
			go func() { answered <- e.Backend().WriteAt(context.Background(), data, 0, false) }()
			<-g.Arrived()
			r.stepUntil(func() bool { return proposed(e.State()) })
			if broken {
				_ = r.disk("b").currentSession().Close() // the last member
				r.await(e, changed, "failure", broke)
			} else {
				e.Interrupt()
			}
			r.expectUnanswered(answered)
			g.Open()
			assert.ErrorIs(t, r.answer(answered), nbd.EIO)
			clear(data)
			got := r.disk("a").bytes(t, 0, 4096)
			assert.Equal(t, pattern(1, 4096), got, "the replica has what was never written to it")
		})
	}
}

// A member answers at the moment when its part is abandoned. Afterwards nothing must wait for this answer. This applies
// to this write, which has another abandoned part, and to the next write that uses the same fanout.
func TestAnAnswerThatComesWhileItsPartIsAbandonedIsNotAwaitedAgain(t *testing.T) {
	m := newMirror(Config{Clock: clock.RealClock{}}, nil, func(*member, error) {})
	ro := &roster{}
	for _, name := range []string{"a", "b"} {
		ro.serving = append(ro.serving, newMember(Member{Name: name, Local: true}, nil))
	}
	f := m.newFanout(request{kind: kindWrite}, ro)
	abandon := func(part int) {
		m.watchdog.mu.Lock()
		defer m.watchdog.mu.Unlock()
		f.abandon(part)
	}
	f.answer(0, nil)
	abandon(0) // the watchdog had checked before the answer came
	abandon(1)
	f.answer(1, nil)
	m.watchdog.forget(f)
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		f.awaitAbandoned()
	}()
	select {
	case <-returned:
	case <-time.After(patience):
		t.Error("the write waits for a member that has answered")
	}
}
