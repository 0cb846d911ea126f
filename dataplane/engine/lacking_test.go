package engine

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// regionsGiven returns the regions in which a disk was changed since Forget.
func (d *disk) regionsGiven() []int64 {
	given := map[int64]bool{}
	for _, op := range d.io.Ops() {
		if op.Kind == faulty.Write || op.Kind == faulty.Zero || op.Kind == faulty.Trim {
			for r := op.Off / testRegion; r*testRegion < op.Off+op.Length; r++ {
				given[r] = true
			}
		}
	}
	var regions []int64
	for r := range given {
		regions = append(regions, r)
	}
	slices.Sort(regions)
	return regions
}

// isClean returns a check whether no mark remains and the engine knows it.
func (r *rig) isClean(e *Engine) func() bool {
	return func() bool {
		marked := slices.ContainsFunc(r.disks, func(d *disk) bool { return len(d.marked()) > 0 })
		dirty, _ := e.mirror.regions.dirtyNow()
		return !marked && dirty.count() == 0
	}
}

// loseAndChange brings the volume into this state: c is away. Region 2 was changed since and its mark cleared, and
// region 5 was changed. In region 3, c has data that no member has, and its mark.
func loseAndChange(r *rig, e *Engine, changed <-chan struct{}) {
	r.t.Helper()
	b := e.Backend()
	require.NoError(r.t, b.WriteAt(r.t.Context(), pattern(1, testSize), 0, false))
	r.stepUntil(r.isClean(e))
	r.lose(e, changed, "c", "a", "b")
	c := r.disk("c")
	c.mark(3)
	c.fill(r.t, 9, 3*testRegion, 4096)
	require.NoError(r.t, b.WriteAt(r.t.Context(), pattern(2, 4096), 2*testRegion, false))
	r.stepUntil(func() bool { return len(r.disk("a").marked()) == 0 && len(r.disk("b").marked()) == 0 })
	require.NoError(r.t, b.Trim(r.t.Context(), 5*testRegion, 4096, false))
	c.io.Forget()
}

func TestAReplicaThatReturnsGetsOnlyTheDataThatItLacks(t *testing.T) {
	all := []int64{0, 1, 2, 3, 4, 5, 6, 7}
	for name, c := range map[string]struct {
		spoil func(r *rig)
		want  []int64
	}{
		"both members know → what was changed":                   {func(*rig) {}, []int64{2, 3, 5}},
		"one of them was told by an older release":               {func(r *rig) { r.disk("a").controlErr[membership.OpChanged] = nbd.ENOTSUP }, []int64{2, 3, 5}},
		"one does not know, and has a mark of its own":           {func(r *rig) { r.disk("a").away = nil; r.disk("a").mark(7) }, []int64{2, 3, 5, 7}},
		"nobody knows → all":                                     {func(r *rig) { r.disk("a").away, r.disk("b").away = nil, nil }, all},
		"it says nothing of its base → all":                      {func(r *rig) { r.disk("c").base = membership.Epoch{} }, all},
		"its base is another epoch than the members know → all":  {func(r *rig) { r.disk("c").base = membership.NewEpoch(1, 9, []string{"a", "b", "c"}) }, all},
		"its base does not list it → all":                        {func(r *rig) { r.disk("c").base = membership.NewEpoch(1, 1, []string{"a", "b"}) }, all},
		"a copy to it was interrupted, and it has its base → it": {func(r *rig) { r.disk("c").rebuilding = true }, []int64{2, 3, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "a", "b", "c")
			e, changed := r.run(1)
			loseAndChange(r, e, changed)
			c.spoil(r)
			r.add(e, "c")
			r.awaitMember(e, changed, "c")
			assert.Equal(t, c.want, r.disk("c").regionsGiven())
			r.sameBytes()
		})
	}
}

// A member that is left out because it could not read a region gets that region again: only a write repairs a bad
// sector.
func TestARangeThatCouldNotBeReadIsCopiedAgain(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.local = "c"
	e, changed := r.run(1)
	b := e.Backend()
	require.NoError(t, b.WriteAt(t.Context(), pattern(1, testSize), 0, false))
	r.stepUntil(r.isClean(e))
	c := r.disk("c")
	mend := c.io.Inject(failing(nbd.EIO, faulty.Read))
	require.NoError(t, b.ReadAt(t.Context(), make([]byte, 4096), 6*testRegion))
	r.await(e, changed, "expulsion", inEpoch("a", "b"))
	mend()
	c.io.Forget()
	r.add(e, "c")
	r.awaitMember(e, changed, "c")
	assert.Equal(t, []int64{6}, c.regionsGiven())
	r.sameBytes()
}

// held delays writes before the replica has received them.
type held struct {
	*session
	came, pass chan struct{}
}

func (h *held) WriteAt(ctx context.Context, p []byte, off int64, fua bool) error {
	if p[0] == heldStamp {
		h.came <- struct{}{}
		<-h.pass
	}
	return h.session.WriteAt(ctx, p, off, fua)
}

const heldStamp = 77

// If a change is under way when the replica joins, it goes only to the members, and may not have marked a region yet.
func TestAChangeUnderWayWhenAReplicaJoinsIsCopied(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	came, pass := make(chan struct{}, 2), make(chan struct{})
	r.wrap = func(d *disk, s *session) Replica {
		if d.name == "c" {
			return s
		}
		return &held{session: s, came: came, pass: pass}
	}
	e, changed := r.run(1)
	letGo := sync.OnceFunc(func() { close(pass) })
	t.Cleanup(letGo) // a test that fails must not block the engine's stop
	loseAndChange(r, e, changed)
	wrote := make(chan error, 1)
	go func() { wrote <- e.Backend().WriteAt(t.Context(), pattern(heldStamp, 4096), 7*testRegion, false) }()
	<-came
	<-came
	r.add(e, "c")
	// The copy waits for the range of the change. No simulated time passes: the replica would be slow if it did not
	// answer in time.
	r.await(e, changed, "copy of what comes before", func(State) bool { return slices.Contains(r.disk("c").regionsGiven(), 5) })
	letGo()
	require.NoError(t, <-wrote)
	r.awaitMember(e, changed, "c")
	assert.Equal(t, []int64{2, 3, 5, 7}, r.disk("c").regionsGiven())
	r.sameBytes()
}

// The only member does not answer which regions were changed, and the replica is removed during this.
func TestARebuildEndsWhileAMemberIsAskedForWhatWasChanged(t *testing.T) {
	r := newRig(t, "a", "c")
	arrived, answers := make(chan struct{}), make(chan struct{})
	r.disk("a").before = func(op uint16) {
		if op == membership.OpChanged {
			close(arrived)
			<-answers
		}
	}
	e, changed := r.run(1)
	t.Cleanup(func() { close(answers) }) // before the engine stops
	r.lose(e, changed, "c", "a")
	r.add(e, "c")
	<-arrived
	require.NoError(t, e.RemoveReplica("s1", "c"))
	assert.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.operation == nil
	}, 10*time.Second, time.Millisecond, "the rebuild waits for the answer")
}
