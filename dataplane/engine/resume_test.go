package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// keepEachRegion makes copies flush after each region.
func keepEachRegion(c *Config) { c.KeepEvery = testRegion }

// interruptCopy makes a full copy to c, which was never written, end in region 5. It calls spoil before that.
func interruptCopy(r *rig, spoil func(r *rig)) (*Engine, chan struct{}) {
	r.t.Helper()
	r.recorded = membership.NewEpoch(1, 1, []string{"a", "b"})
	for _, name := range []string{"a", "b"} {
		r.disk(name).fill(r.t, 1, 0, testSize)
		r.disk(name).epoch = r.recorded
	}
	e, changed := r.run(2, keepEachRegion)
	spoil(r)
	g, c := faulty.NewGate(), r.disk("c")
	mend := c.io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, 5*testRegion, 1), Gate: g})
	r.add(e, "c")
	<-g.Arrived()
	require.NoError(r.t, e.RemoveReplica("s2", "c"))
	mend()
	g.Open()
	r.await(e, changed, "end of the rebuild", func(s State) bool { return failedWith("c")(s) && e.idle() })
	c.io.Forget()
	return e, changed
}

// changeRegion1 changes a region that the interrupted copy has copied, and waits until its mark is cleared.
func changeRegion1(r *rig, e *Engine) {
	r.t.Helper()
	require.NoError(r.t, e.Backend().WriteAt(r.t.Context(), pattern(2, 4096), testRegion, false))
	r.stepUntil(func() bool { return len(r.disk("a").marked()) == 0 && len(r.disk("b").marked()) == 0 })
}

func TestAnInterruptedFullCopyContinues(t *testing.T) {
	all, nothing := []int64{0, 1, 2, 3, 4, 5, 6, 7}, func(*rig) {}
	refuse := func(name string, op uint16, err error) func(*rig) {
		return func(r *rig) { r.disk(name).controlErr[op] = err }
	}
	for name, c := range map[string]struct {
		before, after func(r *rig)
		want          []int64
	}{
		"both members know → the rest, and what was changed": {nothing, nothing, []int64{1, 5, 6, 7}},
		"one member is of an older release":                  {refuse("a", membership.OpAway, nbd.ENOTSUP), nothing, []int64{1, 5, 6, 7}},
		"one member has no room for a record":                {refuse("b", membership.OpAway, nbd.EINVAL), nothing, []int64{1, 5, 6, 7}},
		"one member forgets":                                 {nothing, func(r *rig) { r.disk("a").away = nil }, []int64{1, 5, 6, 7}},
		"both forget → all":                                  {nothing, func(r *rig) { r.disk("a").away, r.disk("b").away = nil, nil }, all},
		"both are of an older release → all": {func(r *rig) {
			refuse("a", membership.OpAway, nbd.ENOTSUP)(r)
			refuse("b", membership.OpAway, nbd.ENOTSUP)(r)
		}, nothing, all},
		"it is of an older release → all":                            {refuse("c", membership.OpLackAll, nbd.ENOTSUP), nothing, all},
		"it forgets its base → all":                                  {nothing, func(r *rig) { r.disk("c").base = membership.Epoch{} }, all},
		"it has a mark more, of what it could not read for a member": {nothing, func(r *rig) { r.disk("c").mark(3) }, []int64{1, 3, 5, 6, 7}},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by another engine %t", name, restart), func(t *testing.T) {
				r := newRig(t, "a", "b", "c")
				r.disk("c").fill(t, 9, 0, testSize)
				e, changed := interruptCopy(r, c.before)
				last := faulty.NewGate()
				changeRegion1(r, e)
				c.after(r)
				if restart {
					require.NoError(t, e.Stop(t.Context()))
					e, changed = r.run(3, keepEachRegion)
				}
				r.disk("c").io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, 7*testRegion, 1), Gate: last})
				r.add(e, "c")
				<-last.Arrived()
				extent := MemberState{Name: "c", Mode: ModeWO, Rebuilding: true, CopyBytes: int64(len(c.want)) * testRegion, Partial: len(c.want) < len(all)}
				assert.Contains(t, withoutProgress(e.State().Members), extent)
				last.Open()
				r.awaitMember(e, changed, "c")
				assert.Equal(t, c.want, r.disk("c").regionsGiven())
				r.sameBytes()
			})
		}
	}
}

func withoutProgress(members []MemberState) []MemberState {
	members = slices.Clone(members)
	for i := range members {
		members[i].Progress = 0
	}
	return members
}

// Copied data counts only after it was flushed, and a later change is not flushed.
func TestMarksOfACopyAreClearedAfterItsFlush(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.recorded = membership.NewEpoch(1, 1, []string{"a", "b"})
	for _, name := range []string{"a", "b"} {
		r.disk(name).fill(t, 1, 0, testSize)
		r.disk(name).epoch = r.recorded
	}
	e, changed := r.run(2, keepEachRegion)
	c, flush, next := r.disk("c"), faulty.NewGate(), faulty.NewGate()
	flushes := 0
	c.io.Inject(faulty.Rule{Gate: flush, Match: func(op faulty.Op) bool {
		if op.Kind == faulty.Flush {
			flushes++
		}
		return op.Kind == faulty.Flush && flushes == 2 // after region 1
	}})
	c.io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, 2*testRegion, 1), Gate: next})
	r.add(e, "c")
	<-flush.Arrived()
	assert.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7}, c.marked(), "region 0 was copied and flushed")
	for _, region := range []int64{0, 1} {
		require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(2, 4096), region*testRegion, false))
	}
	flush.Open()
	<-next.Arrived()
	assert.Len(t, c.marked(), 8, "what was changed during the flush may not be flushed")
	next.Open()
	r.awaitMember(e, changed, "c")
	r.sameBytes()
}

// A member that answers late may start its record late. Until it has answered, the marks of copies stay, including
// marks of the next copy.
func TestACopysProgressIsNotKeptWhileAMemberIsAsked(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	r.disk("a").fill(t, 1, 0, testSize)
	r.disk("a").epoch = r.recorded
	arrived, answers := make(chan struct{}), make(chan struct{})
	first := true
	r.disk("a").before = func(op uint16) {
		if op == membership.OpAway && first {
			first = false
			close(arrived)
			<-answers
		}
	}
	e, changed := r.run(2, keepEachRegion)
	r.add(e, "c")
	<-arrived
	require.NoError(t, e.RemoveReplica("s2", "c"))
	require.Eventually(t, e.idle, 10*time.Second, time.Millisecond)
	g := faulty.NewGate()
	r.disk("c").io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, 5*testRegion, 1), Gate: g})
	r.add(e, "c")
	<-g.Arrived()
	assert.Len(t, r.disk("c").marked(), 8)
	close(answers)
	g.Open()
	r.awaitMember(e, changed, "c")
	r.sameBytes("a", "c")
}

// A member that has answered no longer prevents the clearing of marks.
func TestTheProgressOfTheNextCopyIsKeptToo(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	e, changed := interruptCopy(r, func(*rig) {})
	c, g := r.disk("c"), faulty.NewGate()
	c.base = membership.Epoch{} // so that everything is copied again
	c.io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, 5*testRegion, 1), Gate: g})
	r.add(e, "c")
	<-g.Arrived()
	assert.Equal(t, []int64{5, 6, 7}, c.marked())
	g.Open()
	r.awaitMember(e, changed, "c")
	r.sameBytes()
}

// awaitCopy waits until a copy has reached a given state, or has ended.
func (r *rig) awaitCopy(e *Engine, there func() bool) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return there() || e.idle() }, 3*time.Minute, time.Millisecond, "the copy neither ends nor comes to where it shall be interrupted")
}

// Copies end at random moments while writers overlap. The same engine or the next one resumes them.
func TestInterruptedCopiesUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("the simulation of 16 copies takes seconds: not with -short")
	}
	kept := 0
	for seed := range uint64(16) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 11))
			r := newRig(t, "a", "b", "c")
			r.local = []string{"a", "b", "c", ""}[rnd.IntN(4)]
			r.wrap = jittered
			r.recorded = membership.NewEpoch(1, 1, []string{"a", "b"})
			for _, d := range r.disks {
				d.fill(t, 'x', 0, testSize/2)
				d.epoch = r.recorded
			}
			r.disk("c").fill(t, 'y', 0, testSize)
			r.disk("c").rebuilding, r.disk("c").epoch = true, membership.Epoch{}
			var last *load
			for generation := int64(2); generation < 5; generation++ {
				e, changed := r.run(generation, keepEachRegion, func(c *Config) { c.QuietPeriod = 10 * time.Millisecond })
				load := startLoad(t, e, seed*10+uint64(generation), testRegion)
				<-load.begun
				for round := range 3 {
					after, seen := int64(rnd.IntN(10)), int64(0)
					if round > 0 { // first a part of it is kept: region 0, which no writer changes
						r.add(e, "c")
						r.awaitCopy(e, func() bool { return !slices.Contains(r.disk("c").marked(), 0) })
					}
					g := faulty.NewGate()
					mend := r.disk("c").io.Inject(faulty.Rule{Times: 1, Gate: g, Match: func(op faulty.Op) bool {
						seen++
						return op.Kind == faulty.Flush && seen > 10*after
					}})
					r.add(e, "c")
					arrived := g.Arrived()
					r.awaitCopy(e, func() bool { return len(arrived) > 0 })
					_ = e.RemoveReplica(e.cfg.Session, "c")
					mend()
					g.Open()
					for range 3 {
						r.clock.Step(10 * time.Millisecond) // so that members clear marks
					}
					r.await(e, changed, "end of the rebuild", func(s State) bool { return e.idle() && inEpoch("a", "b")(s) })
					if marked := len(r.disk("c").marked()); marked > 0 && marked < 8 {
						kept++
					}
				}
				load.stop()
				for off, value := range load.last { // compare with the disks
					if last != nil {
						last.last[off] = value
					}
				}
				if last == nil {
					last = load
				}
				if generation < 4 {
					_ = e.Stop(t.Context())
					continue
				}
				r.add(e, "c")
				r.awaitMember(e, changed, "c")
				r.sameBytes()
				last.check(t, r.disk("c"))
			}
		})
	}
	assert.Positive(t, kept, "nothing was ever kept of a copy")
}

// A region counts as copied when its last byte was copied; the last region of a volume may be short.
func TestHasCopied(t *testing.T) {
	const size = 5*testRegion + 512
	for name, c := range map[string]struct {
		off, end int64
		want     []int64
	}{
		"a region":                  {testRegion, 2 * testRegion, []int64{1}},
		"all but one byte of it":    {testRegion, 2*testRegion - 1, nil},
		"the end of one":            {testRegion + 512, 2 * testRegion, []int64{1}},
		"two, and a part":           {2 * testRegion, 4*testRegion + 1, []int64{2, 3}},
		"the last one, to its end":  {5 * testRegion, size, []int64{5}},
		"the last one, but for 1 B": {5 * testRegion, size - 1, nil},
	} {
		k := &copier{mirror: &mirror{regions: newRegions(size, testRegion)}, copied: newBitmap(6)}
		k.hasCopied(c.off, c.end, size)
		assert.Equal(t, c.want, k.copied.indexes(), name)
	}
}
