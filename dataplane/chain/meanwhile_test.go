package chain

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// A snapshot is prepared after a merge has looked at all blocks, and before it takes the file out of the list. Then
// changes still go below the border, so the list must not be replaced.
func TestAMergeRemovesNoFileWhileASnapshotIsPrepared(t *testing.T) {
	ctx := context.Background()
	for name, tc := range map[string]struct {
		prepare func(t *testing.T) *player
		act     layers.MergeAct
	}{
		"the lower file": {mergeable, layers.RemoveLower},
		"the upper file": {func(t *testing.T) *player {
			p := layeredReplica(t)
			do(t, func() error { return p.remove(0) })
			return p
		}, layers.RemoveUpper},
	} {
		t.Run(name, func(t *testing.T) {
			p := tc.prepare(t)
			m := p.c.merges()[0]
			act, _, err := m.next(ctx)
			for ; err == nil && act != tc.act; act, _, err = m.next(ctx) {
				wait, err := m.do(ctx, act)
				require.NoError(t, err)
				require.Equal(t, layers.NoWait, wait)
			}
			require.NoError(t, err)
			do(t, p.prepare)
			s := p.c.state.Load()
			wait, err := m.remove(ctx, act)
			require.NoError(t, err)
			require.Equal(t, layers.NeedsBarrier, wait)
			require.Same(t, s, p.c.state.Load())
			do(t, func() error { return p.write(5*block, block) }, p.doSwitch,
				func() error { return p.write(6*block, block) }, p.seal, p.check, func() error { return p.merge(1 << 30) }, p.check)
		})
	}
}

// A snapshot is taken while the changes up to the present are read: the head has become a layer. Its changes are no
// answer, because the new head has later ones.
func TestChangesUpToThePresentAreReadFromOneState(t *testing.T) {
	p := start(t)
	do(t, p.snapshot, func() error { return p.write(block, block) })
	from, s := p.ready()[0], p.c.state.Load()
	do(t, p.snapshot, func() error { return p.write(5*block, block) })
	changed := make([]bool, 10)
	same, err := p.c.addHead(s, changed, 0)
	require.NoError(t, err)
	assert.False(t, same)
	assert.NotContains(t, changed, true)
	found, _, err := p.c.Differs(from, layers.Point{}, 0, 10)
	require.NoError(t, err)
	assert.Equal(t, []fsys.Range{{Off: block, Length: block}, {Off: 5 * block, Length: block}}, found)
}
