package chain

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// mergeable returns a replica whose head, file 2, is about to be merged with file 1: up into the head.
func mergeable(t *testing.T) *player {
	t.Helper()
	p := start(t)
	do(t, func() error { return p.write(0, 2*block) }, p.snapshot,
		func() error { return p.write(3*block, 4*block) }, p.flush, func() error { return p.remove(0) })
	return p
}

// mergeUp returns the merge of the replica, whose next act is a copy up.
func mergeUp(t *testing.T, p *player) *merge {
	t.Helper()
	m := p.c.merges()[0]
	act, _, err := m.next(context.Background())
	require.NoError(t, err)
	require.Equal(t, layers.MergeUp, act)
	m.direction, m.buffer = layers.Up, make([]byte, copyBlocks*layers.BlockBytes)
	require.NoError(t, m.before())
	return m
}

// A user's flush fails between two steps of a merge. The kernel has reported the loss, so the merge's own sync of the
// map would succeed. The merge must not count the bits, and must not punch the blocks that they hide.
func TestAMergeStopsWhenAFlushHasFailed(t *testing.T) {
	ctx := context.Background()
	for name, until := range map[string]layers.MergeStep{
		"before the map is synced": layers.SetUpperBits,
		"before the bits count":    layers.SyncUpperMap,
		"before the punch":         layers.ShowUpperBits,
	} {
		t.Run(name, func(t *testing.T) {
			p := mergeable(t)
			m := mergeUp(t, p)
			moved, n := overlay{}, m.blocks()
			failed, punched := false, false
			p.f.Before(func(op memfs.Op) error {
				punched = punched || op.Kind == "punch" && op.Name == lowestName
				return nil
			})
			for _, step := range layers.PieceSteps(layers.Up) {
				err := m.step(ctx, step, 0, n, moved)
				if failed {
					require.ErrorIs(t, err, syscall.EIO, "step %d", step)
					continue
				}
				require.NoError(t, err)
				if step == until {
					failed = true
					do(t, func() error { return p.write(8*block, block) })
					p.f.FailSync("2.map", 1)
					require.ErrorIs(t, p.c.Datasync(), syscall.EIO)
				}
			}
			m.forgetCopied()
			require.False(t, punched)
			p.f.Kill()
			require.NoError(t, p.open())
			got := make([]byte, 2*block)
			require.NoError(t, p.c.ReadAt(got, 0))
			require.Equal(t, p.now[:2*block], got, "the old content of the copied blocks is on the disk")
		})
	}
}

// A file system may report ENOSPC for data that it could not write out. Then the data is lost, so the merge must not
// treat the error as a lack of space for its copy.
func TestNoSpaceFromASyncOfAMergeEndsTheChain(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T) *player{
		"up": mergeable,
		"down, and the lower map grows": func(t *testing.T) *player {
			p, want := startGrown(t, 9)
			do(t, func() error { return p.fill(want, farBlock*block, block, 3) }, func() error { return p.remove(1) })
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			struck := 0
			for nth := 1; ; nth++ {
				p := prepare(t)
				existing := map[string]bool{}
				for _, n := range fileNumbers(p.c.Layers()) {
					existing[dataName(n)], existing[mapName(n)] = true, true
				}
				count := 0
				p.f.Before(func(op memfs.Op) error {
					if (op.Kind == "datasync" || op.Kind == "sync") && existing[op.Name] {
						if count++; count == nth {
							return syscall.ENOSPC
						}
					}
					return nil
				})
				_, _, err := p.c.Merge(context.Background())
				if count < nth {
					require.NoError(t, err)
					break
				}
				struck++
				require.ErrorIs(t, err, syscall.ENOSPC)
				require.ErrorIs(t, p.c.Err(), syscall.ENOSPC, "sync %d", nth)
				p.f.Before(nil)
				require.Error(t, p.c.Datasync(), "sync %d", nth)
			}
			assert.GreaterOrEqual(t, struck, 3)
		})
	}
}

// Growth syncs the map of the head.
func TestNoSpaceFromTheSyncOfAGrowthEndsTheChain(t *testing.T) {
	p, _ := startGrown(t, 1)
	p.f.Before(func(op memfs.Op) error {
		if op.Kind == "sync" && op.Name == "3.map" {
			return syscall.ENOSPC
		}
		return nil
	})
	require.ErrorIs(t, p.c.Truncate(2*largeSize), syscall.ENOSPC)
	require.ErrorIs(t, p.c.Err(), syscall.ENOSPC)
}

// An opening finds that a sync has failed. When it is stopped, the next one must know this as well: the kernel reports
// the failure only once.
func TestAnInterruptedOpeningRemembersAFailedSync(t *testing.T) {
	for nth := 2; ; nth++ { // the first write records the failure
		p := start(t)
		do(t, func() error { return p.write(0, 9*block) }, p.snapshot, func() error { return p.write(block, block) },
			p.prepare, p.doSwitch, func() error { return p.write(3*block, block) })
		p.f.LoseUnsynced("3.img")
		p.f.Kill()
		count := 0
		p.f.Before(func(op memfs.Op) error {
			if _, kind, _ := parseName(op.Name); op.Kind == "write" && kind == ".recent" {
				if count++; count == nth {
					return memfs.ErrCrashed
				}
			}
			return nil
		})
		err := p.open()
		if count < nth {
			require.NoError(t, err)
			require.Greater(t, nth, 2)
			return
		}
		require.True(t, errors.Is(err, memfs.ErrCrashed), "%v", err)
		require.NoError(t, p.again(failed, nil), "write %d", nth)
		assert.False(t, p.c.Trust().Recent, "write %d", nth)
	}
}

// unflushedHead returns a replica whose head, file 2, has an entry in recent.
func unflushedHead(t *testing.T) *player {
	t.Helper()
	p := start(t)
	do(t, func() error { return p.write(0, 9*block) }, p.snapshot, func() error { return p.write(block, block) })
	return p
}

// Entries of recent could not be written out. The kernel may drop them from its cache, so they no longer count.
func TestAFlushFailsWhenEntriesOfRecentAreLost(t *testing.T) {
	p := unflushedHead(t)
	p.f.LoseUnsynced("2.recent")
	require.ErrorIs(t, p.c.Datasync(), syscall.EIO)
	assert.Equal(t, FailedSync, p.c.Cause())
	require.NoError(t, p.again(failed, nil))
	assert.Equal(t, layers.Trust{DropCache: true, Distrust: true}, p.c.Trust())
}

// The process was killed before a flush could ask.
func TestAnOpeningDistrustsWhenEntriesOfRecentAreLost(t *testing.T) {
	p := unflushedHead(t)
	p.f.LoseUnsynced("2.recent")
	require.NoError(t, p.again(failed, nil))
	assert.Equal(t, layers.Trust{DropCache: true, Distrust: true}, p.c.Trust())
}
