package nbd_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

// An export grows under a connection when both ends know it. If only one end knows it, nothing changes.
func TestAnExportGrowsUnderItsConnection(t *testing.T) {
	const before, after = 1 << 20, 2 << 20
	ctx, m := within(t), memory.New(after)
	var now atomic.Int64
	now.Store(before)
	_, path := listen(t, serving(&nbd.Export{Name: "x", Size: before, SizeNow: now.Load, Backend: m}), nbd.ServerOptions{})
	c, other := dial(t, path, "x", nbd.DialOptions{}), dial(t, path, "x", nbd.DialOptions{})
	page := make([]byte, 4096)
	page[0] = 7

	other.Grow(after)
	require.ErrorIs(t, other.WriteAt(ctx, page, before, false), nbd.ENOSPC, "the client alone")
	now.Store(after)
	require.ErrorIs(t, c.WriteAt(ctx, page, before, false), nbd.ENOSPC, "the server alone")
	require.Equal(t, int64(before), c.Size())
	c.Grow(after)
	c.Grow(before)
	require.Equal(t, int64(after), c.Size())
	require.NoError(t, c.WriteAt(ctx, page, before, false))
	require.NoError(t, c.Zero(ctx, after-4096, 4096, 0))
	extents, err := c.Extents(ctx, before, after-before)
	require.NoError(t, err)
	assert.NotEmpty(t, extents)
	got := make([]byte, 4096)
	require.NoError(t, other.ReadAt(ctx, got, before))
	assert.Equal(t, page, got)
	require.ErrorIs(t, c.WriteAt(ctx, page, after, false), nbd.ENOSPC)
}
