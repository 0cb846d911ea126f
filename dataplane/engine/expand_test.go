package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// growing is a frontend with a device that can grow.
type growing struct {
	size int64
	err  error
}

func (g *growing) Start(_ context.Context, _ string, size int64, _ nbd.Backend) (string, error) {
	g.size = size
	return "/dev/x", nil
}
func (g *growing) Stop(context.Context) error { return nil }
func (g *growing) Size() int64                { return g.size }

func (g *growing) Resize(_ context.Context, size int64) error {
	if g.err == nil {
		g.size = size
	}
	return g.err
}

func TestExpandOffersWhatEveryMemberHas(t *testing.T) {
	const size = 2 * testSize
	ctx, f := t.Context(), &growing{}
	r := newRig(t, "a", "b")
	for _, d := range r.disks {
		d.resize(size) // the replicas have grown, and the engine does not know it
	}
	e, _ := r.run(1, func(c *Config) { c.Frontend = f })
	session := e.cfg.Session
	page := pattern(1, 4096)
	require.Equal(t, int64(testSize), e.State().SizeBytes)
	require.ErrorIs(t, e.Backend().WriteAt(ctx, page, testSize, false), nbd.ENOSPC)

	require.ErrorIs(t, e.Expand(ctx, "another", size), ErrOtherSession)
	require.ErrorIs(t, e.Expand(ctx, session, 2*size), ErrMemberTooSmall)
	require.ErrorIs(t, e.Backend().WriteAt(ctx, page, testSize, false), nbd.ENOSPC)
	require.Equal(t, int64(testSize), f.size)

	f.err = nbd.EIO
	require.Error(t, e.Expand(ctx, session, size))
	assert.Equal(t, int64(testSize), e.State().SizeBytes, "users are not offered it")
	f.err = nil
	require.NoError(t, e.Expand(ctx, session, size))
	require.NoError(t, e.Expand(ctx, session, size), "again")
	require.NoError(t, e.Expand(ctx, session, testSize), "what it has more than")
	assert.Equal(t, int64(size), e.State().SizeBytes)
	assert.Equal(t, int64(size), f.size)
	require.NoError(t, e.Backend().WriteAt(ctx, page, size-4096, false))
	last := int64(size/testRegion - 1)
	for _, d := range r.disks {
		assert.Equal(t, page, d.bytes(t, size-4096, 4096), d.name)
		assert.Contains(t, d.marked(), last, d.name)
	}
	require.NoError(t, e.mirror.clearAll())
	assert.Empty(t, r.disk("a").marked(), "a mark of the new range cannot be cleared")
}

// growingAside is growing with a function that runs while its device grows.
type growingAside struct {
	growing
	aside func()
}

func (g *growingAside) Resize(ctx context.Context, size int64) error {
	g.aside()
	return g.growing.Resize(ctx, size)
}

// A copy has the size that the volume had at its start, so neither operation runs during the other.
func TestNoVolumeGrowsDuringARebuildNorTheReverse(t *testing.T) {
	const size = 2 * testSize
	r, f := newRig(t, "a", "b"), &growingAside{}
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	r.disk("a").epoch = r.recorded
	for _, d := range r.disks {
		d.resize(size)
	}
	r.disk("a").fill(t, 1, 0, testSize)
	e, changed := r.run(2, func(c *Config) { c.Frontend = f })
	g := faulty.NewGate()
	mend := r.disk("b").io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, 5*testRegion, 1), Gate: g})
	r.add(e, "b")
	<-g.Arrived()
	require.ErrorIs(t, e.Expand(t.Context(), e.cfg.Session, size), ErrBusy)
	require.NoError(t, e.RemoveReplica(e.cfg.Session, "b"))
	mend()
	g.Open()
	r.await(e, changed, "end of the rebuild", func(s State) bool { return failedWith("b")(s) && e.idle() })

	f.aside = func() { assert.ErrorIs(t, e.AddReplica(e.cfg.Session, r.member("b"), 0), ErrBusy) }
	require.NoError(t, e.Expand(t.Context(), e.cfg.Session, size))
	require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(2, 4096), size-4096, false))
	r.add(e, "b")
	r.awaitMember(e, changed, "b")
	r.sameBytes()
}

// A failed member receives no questions. But it is listed until another epoch is in force, and the next engine may
// start with it only. So its size counts until that time.
func TestExpandWaitsUntilAFailedMemberHasLeft(t *testing.T) {
	const size = 2 * testSize
	r := newRig(t, "a", "b")
	r.disk("a").resize(size)
	e, changed := r.run(1)
	r.api.cut(true)
	e.memberFailed(e.mirror.roster.Load().find("b"), errRemoved)
	r.await(e, changed, "proposal", proposed)
	ended, end := context.WithCancel(t.Context())
	end()
	require.ErrorIs(t, e.Expand(ended, e.cfg.Session, size), ErrLeaving)
	expanded := make(chan error, 1)
	go func() { expanded <- e.Expand(t.Context(), e.cfg.Session, size) }()
	r.expectUnanswered(expanded)
	assert.Equal(t, int64(testSize), e.State().SizeBytes)
	r.api.cut(false)
	require.NoError(t, r.answer(expanded))
	assert.Equal(t, int64(size), e.State().SizeBytes)
	assert.Equal(t, []string{"a"}, e.State().Epoch.Members)
}

// An engine that stops does not wait for an expansion which waits for an epoch.
func TestExpandEndsWithTheEngine(t *testing.T) {
	r := newRig(t, "a", "b")
	e, changed := r.run(1)
	r.api.cut(true)
	e.memberFailed(e.mirror.roster.Load().find("b"), errRemoved)
	r.await(e, changed, "proposal", proposed)
	expanded := make(chan error, 1)
	go func() { expanded <- e.Expand(t.Context(), e.cfg.Session, 2*testSize) }()
	r.expectUnanswered(expanded)
	require.NoError(t, e.StopForce(t.Context()))
	require.ErrorIs(t, r.answer(expanded), ErrNotRunning)
}

// A replica that is smaller than the volume is not a member, whatever its epoch says. A larger replica is not refused.
func TestAReplicaThatIsTooSmallIsLeftOut(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.disk("a").resize(2 * testSize)
	r.disk("b").resize(testSize / 2)
	e, _ := r.run(1)
	assert.Equal(t, []string{"a", "c"}, e.State().Epoch.Members)
}

// While the mark of the last region is cleared, no change starts in the part of the region into which the volume grows.
func TestTheLastRegionIsLockedWhole(t *testing.T) {
	m := &mirror{}
	m.regions = newRegions(testRegion/2, testRegion)
	m.size.Store(testRegion / 2)
	locked := false
	m.lockFree(run{0, 1}, func(s *span, _ run) {
		locked = true
		assert.Nil(t, m.locks.tryLock(testRegion-4096, 4096, exclusive))
		m.locks.unlock(s)
	})
	assert.True(t, locked)
}
