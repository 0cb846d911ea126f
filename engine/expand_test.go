package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/nbd"
)

// growing is a frontend whose device can grow.
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
		d.resize(size) // the replicas have grown, and the engine does not know
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

// A member that fails is asked nothing any more, but is listed until another epoch is in force: the next engine may begin with it alone. So
// its size counts as long.
func TestExpandWaitsUntilAFailedMemberHasLeft(t *testing.T) {
	const size = 2 * testSize
	r := newRig(t, "a", "b")
	r.disk("a").resize(size)
	e, changed := r.run(1)
	r.api.cut(true)
	e.memberFailed(e.mirror.roster.Load().find("b"), errRemoved)
	r.await(e, changed, "proposal", proposed)
	require.ErrorIs(t, e.Expand(t.Context(), e.cfg.Session, size), ErrLeaving)
	assert.Equal(t, int64(testSize), e.State().SizeBytes)
	r.api.cut(false)
	r.await(e, changed, "epoch", inEpoch("a"))
	require.NoError(t, e.Expand(t.Context(), e.cfg.Session, size))
	assert.Equal(t, int64(size), e.State().SizeBytes)
}

// A replica that is smaller than the volume is no member, whatever its epoch says, and none that is larger is refused.
func TestAReplicaThatIsTooSmallIsLeftOut(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.disk("a").resize(2 * testSize)
	r.disk("b").resize(testSize / 2)
	e, _ := r.run(1)
	assert.Equal(t, []string{"a", "c"}, e.State().Epoch.Members)
}
