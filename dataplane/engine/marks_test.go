package engine

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// holdFlushes delays the flushes of a disk, from the n-th on, counted from 1.
func (r *rig) holdFlushes(name string, n int) *faulty.Gate {
	g, seen := faulty.NewGate(), 0
	r.disk(name).io.Inject(faulty.Rule{Gate: g, Match: func(op faulty.Op) bool {
		if op.Kind == faulty.Flush {
			seen++
		}
		return op.Kind == faulty.Flush && seen >= n
	}})
	return g
}

// flushedLast reports whether a disk was flushed after the last change that reached it.
func (d *disk) flushedLast() bool {
	ops := d.io.Ops()
	slices.Reverse(ops)
	for _, op := range ops {
		switch op.Kind {
		case faulty.Flush:
			return true
		case faulty.Write, faulty.Zero:
			return false
		}
	}
	return true
}

func TestMarksAreClearedAfterAFlushOfAll(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	require.NoError(t, writeOnes(e.Backend()))
	r.tick(e)
	r.tick(e)
	r.expectMarks(nil)
	for _, d := range r.disks {
		assert.True(t, d.flushedLast(), "%s was not flushed before its mark was cleared: %+v", d.name, d.io.Ops())
	}
}

// The flush does not cover a change that comes after the flush started, although the change is done before the marks
// are cleared.
func TestAMarkStaysOverAChangeDuringTheFlush(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(1, 2*testRegion), 0, false))
	g := r.holdFlushes("b", 1)
	t.Cleanup(g.Open)
	r.tick(e)
	r.tick(e)
	<-g.Arrived()
	require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(2, 512), testRegion, false))
	g.Open()
	r.expectMarks([]int64{1})
	r.tick(e)
	r.tick(e)
	r.expectMarks(nil)
}

// A member is lost after it was flushed and before the marks are cleared. An epoch still lists it, although it will
// lack later changes, so all marks stay.
func TestMarksStayWhenAMemberIsLostDuringTheFlush(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	e, changed := r.run(1)
	require.NoError(t, writeOnes(e.Backend()))
	g := r.holdFlushes("b", 1)
	t.Cleanup(g.Open)
	r.tick(e)
	r.tick(e)
	<-g.Arrived()
	for !r.disk("a").flushedLast() || !r.disk("c").flushedLast() {
		time.Sleep(100 * time.Microsecond)
	}
	r.api.cut(true)
	_ = r.disk("c").currentSession().Close() // waits for the flush
	r.await(e, changed, "proposal", proposed)
	g.Open()
	for !r.quietTimerRuns(e) { // the marks that could be cleared have been
		time.Sleep(100 * time.Microsecond)
	}
	for _, name := range []string{"a", "b"} {
		n := r.disk(name).count(membership.OpClearIntents)
		assert.Zero(t, n, "%s was told %d times to clear", name, n)
		assert.Equal(t, []int64{0}, r.disk(name).marked())
	}
}

// If a member still holds a part of a fanout, the fanout is not used for another request, because the late answer would
// count for that request.
func TestAFanoutWithAnAbandonedPartIsNotUsedAgain(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	m := e.mirror
	ro := m.roster.Load()
	f := m.newFanout(request{kind: kindFlush}, ro)
	f.abandoned = true
	f.release()
	assert.Same(t, m, f.mirror)
	assert.Same(t, ro.serving[0], f.targets[0], "it was emptied for another use")
	for range 16 {
		require.NotSame(t, f, m.newFanout(request{kind: kindFlush}, ro), "it is used again")
	}
}

// A write with FUA is durable on every member, whether the member is reached with or without waiting.
func TestAWriteThatMustBeDurableIsSoEverywhere(t *testing.T) {
	for name, wrap := range map[string]func(*disk, *session) Replica{"waiting": nil, "without waiting": jittered} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "a", "b")
			r.wrap = wrap
			e, _ := r.run(1)
			for _, fua := range []bool{true, false} {
				require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(1, 512), 0, fua))
			}
			for _, d := range r.disks {
				want := []faulty.Op{{Seq: 1, Kind: faulty.Write, Length: 512, FUA: true}, {Seq: 2, Kind: faulty.Write, Length: 512}}
				assert.Equal(t, want, d.io.Ops(), d.name)
			}
		})
	}
}

// The rebuild of b is held at its n-th flush. In that time a user writes and flushes. The user's flush was
// acknowledged, so its data must be durable in b before an epoch lists b.
func TestACopyIsFlushedBeforeItIsAMember(t *testing.T) {
	for name, n := range map[string]int{"before the copy takes part in flushes": 1, "when it does": 2} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "a", "b")
			r.recorded = membership.NewEpoch(1, 1, []string{"a"})
			e, changed := r.run(2)
			g := faulty.NewGate()
			seen := 0
			r.disk("b").io.Inject(faulty.Rule{Gate: g, Times: 1, Match: func(op faulty.Op) bool {
				if op.Kind == faulty.Flush {
					seen++
				}
				return op.Kind == faulty.Flush && seen == n
			}})
			t.Cleanup(g.Open)
			r.add(e, "b")
			select {
			case <-g.Arrived():
			case <-time.After(patience):
				t.Fatalf("the copy is not flushed %d times", n)
			}
			require.NoError(t, writeOnes(e.Backend()))
			require.NoError(t, flush(e.Backend()))
			assert.False(t, n == 2 && !r.disk("b").flushedLast(), "the user's flush left the copy out")
			r.api.mu.Lock()
			r.api.onWrite = func(epoch membership.Epoch) {
				assert.False(t, epoch.Has("b") && !r.disk("b").flushedLast(), "an epoch lists the copy, in which an acknowledged flush is missing")
			}
			r.api.mu.Unlock()
			g.Open()
			r.awaitMember(e, changed, "b")
		})
	}
}

// A hole of the source is written to between the survey and its copy.
func TestAHoleIsCheckedAgainBeforeItIsPunched(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	r.disk("a").fill(t, 1, 0, 4*testRegion)
	r.disk("b").fill(t, 9, 0, testSize)
	r.disk("b").rebuilding = true
	e, changed := r.run(2)
	g := faulty.NewGate()
	t.Cleanup(g.Open)
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, 3*testRegion, 1), Gate: g})
	r.add(e, "b")
	<-g.Arrived()
	require.NoError(t, e.Backend().WriteAt(context.Background(), pattern(2, 4096), 6*testRegion, false))
	g.Open()
	r.awaitMember(e, changed, "b")
	r.sameBytes()
	got := r.disk("b").bytes(t, 6*testRegion, 4096)
	assert.Equal(t, pattern(2, 4096), got, "the write is missing in the copy")
}
