package engine

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// copyHeldAt starts a copy to c from disks with data everywhere. The copy is held before it writes a region.
func copyHeldAt(t *testing.T, region int64) (r *rig, e *Engine, changed chan struct{}, held *faulty.Gate) {
	r = newRig(t, "a", "b", "c")
	r.recorded = membership.NewEpoch(1, 1, []string{"a", "b"})
	for _, name := range []string{"a", "b"} {
		r.disk(name).fill(t, 1, 0, testSize)
		r.disk(name).epoch = r.recorded
	}
	e, changed = r.run(2, keepEachRegion)
	held = faulty.NewGate()
	r.disk("c").io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, region*testRegion, 1), Gate: held, Times: 1})
	r.add(e, "c")
	<-held.Arrived()
	return r, e, changed, held
}

// A change that started before the flush of a copy, and ends after it, may not be flushed: its mark stays on the
// target.
func TestAMarkOfACopyStaysOverAChangeThatOutlastsTheFlush(t *testing.T) {
	r, e, changed, copying := copyHeldAt(t, 1)
	c := r.disk("c")
	writing, flush, next := faulty.NewGate(), faulty.NewGate(), faulty.NewGate()
	c.io.Inject(faulty.Rule{Gate: writing, Match: func(op faulty.Op) bool { return op.Kind == faulty.Write && op.Length == 4096 }})
	// After region 1: the flush of region 0 is over.
	c.io.Inject(faulty.Rule{Gate: flush, Match: faulty.Of(faulty.Flush), Times: 1})
	c.io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, 2*testRegion, 1), Gate: next})
	written := make(chan error, 1)
	go func() { written <- e.Backend().WriteAt(t.Context(), pattern(2, 4096), testRegion, false) }()
	begun := func() bool {
		dirty, _ := e.mirror.regions.dirtyNow()
		return dirty.has(1)
	}
	require.Eventually(t, begun, time.Minute, time.Millisecond, "the change has begun")
	copying.Open()
	<-flush.Arrived()
	<-writing.Arrived()
	writing.Open()
	require.NoError(t, <-written)
	flush.Open()
	<-next.Arrived()
	assert.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7}, c.marked(), "region 1 was changed since the flush began")
	next.Open()
	r.awaitMember(e, changed, "c")
	r.sameBytes()
}

// A change during the copy left a mark that only the new member has. This mark is cleared even if no further change
// comes. As long as a mark remains, no engine can stop in order.
func TestMarksOfANewMemberAreClearedWithTheOthers(t *testing.T) {
	r, e, changed, copying := copyHeldAt(t, 5)
	c := r.disk("c")
	require.NotContains(t, c.marked(), int64(1))
	c.mark(1)
	copying.Open()
	r.awaitMember(e, changed, "c")
	require.Equal(t, []int64{1}, c.marked())
	r.stepUntil(func() bool { return len(c.marked()) == 0 })
	r.sameBytes()
}

// awaitCall waits until a goroutine is in the given function.
func awaitCall(t *testing.T, function string) {
	t.Helper()
	stacks := make([]byte, 4<<20)
	require.Eventually(t, func() bool {
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), function)
	}, time.Minute, time.Millisecond, "call of %s", function)
}

// No request of the new range is admitted before its regions can be marked.
func TestAnExpansionOffersNoRangeWithoutRegions(t *testing.T) {
	const size = 2 * testSize
	r := newRig(t, "a")
	r.disk("a").resize(size)
	e, _ := r.run(1)
	e.mirror.regions.mu.Lock()
	expanded := make(chan error, 1)
	go func() { expanded <- e.Expand(t.Context(), e.cfg.Session, size) }()
	awaitCall(t, "(*regions).grow(")
	assert.EqualValues(t, testSize, e.mirror.size.Load(), "requests of the new range are let through")
	e.mirror.regions.mu.Unlock()
	require.NoError(t, <-expanded)
	require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(1, 512), size-512, false))
}
