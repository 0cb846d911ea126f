package chain

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// mergeWaits does one merge, which must wait.
func mergeWaits(t *testing.T, p *player, want layers.MergeWait) {
	t.Helper()
	more, wait, err := p.c.Merge(context.Background())
	require.NoError(t, err)
	require.Equal(t, want.String(), wait.String())
	require.False(t, more)
}

// allocated is the space that the data of a file takes.
func (p *player) allocated(t *testing.T, n layers.File) int64 {
	t.Helper()
	f, err := p.c.state.Load().files[n].reader()
	require.NoError(t, err)
	bytes, err := f.AllocatedBytes()
	require.NoError(t, err)
	return bytes
}

// The disk has one piece above its reserve, or one byte less.
func TestAMergeLeavesTheReserve(t *testing.T) {
	const piece = 10 * block // the whole volume
	for name, prepare := range map[string]func(t *testing.T) *player{
		"up": mergeable,
		"down": func(t *testing.T) *player {
			p := start(t)
			do(t, func() error { return p.write(0, testSize) }, p.snapshot, func() error { return p.write(block, block) }, p.snapshot,
				func() error { return p.remove(0) })
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := prepare(t)
			p.full = true
			p.c.SetReserve(1 << 20)
			p.f.SetAvailable(1<<20 + piece - 1)
			files := fileNumbers(p.c.Layers())
			mergeWaits(t, p, layers.NeedsSpace)
			require.Equal(t, files, fileNumbers(p.c.Layers()))
			p.f.SetAvailable(1<<20 + piece)
			more, wait, err := p.c.Merge(context.Background())
			require.NoError(t, err)
			require.Equal(t, layers.NoWait, wait)
			require.False(t, more)
			require.Len(t, fileNumbers(p.c.Layers()), len(files)-1)
			do(t, p.check)
		})
	}
}

// Other programs use the disk while a merge runs. It stops before the next piece, and continues later.
func TestAMergeAsksForSpaceBeforeEachPiece(t *testing.T) {
	p, want := startGrown(t, 9)
	do(t, func() error { return p.fill(want, 30*block, block, 3) }, func() error { return p.fill(want, farBlock*block, block, 4) },
		p.snapshot, func() error { return p.remove(1) })
	p.c.SetReserve(1 << 30)
	p.f.SetAvailable(1<<30 + pieceBlocks*block)
	copies := 0
	p.f.Before(func(op memfs.Op) error {
		if op.Kind == "write" && op.Name == "2.img" {
			copies++
			p.f.SetAvailable(0)
		}
		return nil
	})
	mergeWaits(t, p, layers.NeedsSpace)
	require.Equal(t, 1, copies)
	same := func() error { return sectorsAre(p.c.ReadAt, want) }
	do(t, same)
	p.f.Before(nil)
	p.f.SetAvailable(1 << 31)
	do(t, func() error { return p.merge(1 << 30) }, same)
	require.Equal(t, []layers.File{1, 2, 4}, fileNumbers(p.c.Layers()))
}

// On a full disk, a merge frees what the later layer hides, and waits.
func TestAMergeOnAFullDiskPunches(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, 8*block) }, p.snapshot, func() error { return p.write(2*block, 3*block) })
	p.f.Fill()
	p.full = true
	before := p.allocated(t, 1)
	do(t, func() error { return p.remove(0) })
	mergeWaits(t, p, layers.NeedsSpace)
	assert.Equal(t, before-3*block, p.allocated(t, 1), "the blocks that were not flushed before the merge too")
	mergeWaits(t, p, layers.NeedsSpace)
	do(t, p.check, func() error { return p.again(killed, nil) })
}

// A merge on a full disk removes a file whose content is hidden completely.
func TestAMergeOnAFullDiskRemovesAFile(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, 2*block) }, p.snapshot, func() error { return p.write(0, 4*block) }, p.snapshot,
		func() error { return p.remove(0) })
	p.f.Fill()
	more, wait, err := p.c.Merge(context.Background())
	require.NoError(t, err)
	require.Equal(t, layers.NoWait, wait)
	require.False(t, more)
	require.Equal(t, []layers.File{2, 3}, fileNumbers(p.c.Layers()))
	do(t, p.check)
}

func TestAMergeWaitsForTheBarrierAndForTheSnapshot(t *testing.T) {
	p := mergeable(t)
	do(t, p.prepare)
	mergeWaits(t, p, layers.NeedsBarrier)
	require.Len(t, fileNumbers(p.c.Layers()), 3)
	do(t, p.doSwitch)
	_, wait, err := p.c.Merge(context.Background())
	require.NoError(t, err)
	require.Equal(t, layers.NoWait, wait)
	do(t, p.seal, p.check)

	p = start(t)
	do(t, func() error { return p.write(0, testSize) }, p.snapshot, func() error { return p.write(2*block, block) },
		func() error { return p.remove(0) })
	more, wait, err := p.c.Merge(context.Background())
	require.NoError(t, err)
	require.Equal(t, layers.NoWait, wait)
	require.True(t, more, "the local head is above the lowest file")
	mergeWaits(t, p, layers.NeedsSnapshot)
	// Users write to the local head. What it hides is freed all the same.
	do(t, func() error { return p.write(0, block) })
	before := p.allocated(t, 1)
	mergeWaits(t, p, layers.NeedsSnapshot)
	assert.Equal(t, before-block, p.allocated(t, 1))
	do(t, p.check)
}

// One layer waits. The next one does not.
func TestAMergeThatWaitsDoesNotDelayTheOtherLayers(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, testSize) }, p.snapshot, func() error { return p.write(block, block) }, p.snapshot,
		func() error { return p.write(2*block, 2*block) }, p.snapshot, func() error { return p.write(2*block, 2*block) }, p.snapshot,
		func() error { return p.remove(0) }, func() error { return p.remove(1) })
	require.Equal(t, []layers.File{1, 2, 3, 4, 5}, fileNumbers(p.c.Layers()))
	p.f.Fill()
	p.full = true
	_, wait, err := p.c.Merge(context.Background())
	require.NoError(t, err)
	require.Equal(t, layers.NoWait, wait)
	require.Equal(t, []layers.File{1, 2, 4, 5}, fileNumbers(p.c.Layers()), "file 4 hides file 3")
	mergeWaits(t, p, layers.NeedsSpace)
	do(t, p.check)
}

// A growth is undone after a merge has put a local head on. Later the local head goes down, into a larger file.
func TestAFileThatWasGrownTakesTheSizeOfItsLayer(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, testSize) }, p.snapshot, p.snapshot,
		func() error { return p.write(2*block, 3*block) }, func() error { return p.c.Truncate(testSize + 3*block) }, func() error { return p.remove(1) })
	s := p.c.state.Load()
	next, err := s.list.chain.PutLocalHead(layers.AllFiles)
	require.NoError(t, err)
	p.c.lane.Lock()
	err = p.c.commit(next, false)
	p.c.local = p.c.state.Load().active().n
	p.c.lane.Unlock()
	require.NoError(t, err)
	do(t, func() error { return p.c.Truncate(testSize) }, func() error { return p.write(0, 512) }, p.snapshot,
		func() error { return p.merge(1 << 30) }, p.check)
	require.Equal(t, []layers.File{1, 3, 5}, fileNumbers(p.c.Layers()), "file 4 went down into file 3")
	do(t, func() error { return p.again(killed, nil) })
}

// A file system that cannot punch leaves the space of hidden blocks. The merge does not punch them again and again.
func TestAMergeWithoutPunching(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, 8*block) }, p.snapshot, func() error { return p.write(2*block, 3*block) },
		func() error { return p.remove(0) })
	p.f.Before(func(op memfs.Op) error {
		if op.Kind == "punch" {
			return syscall.EOPNOTSUPP
		}
		return nil
	})
	more, wait, err := p.c.Merge(context.Background())
	require.NoError(t, err)
	require.Equal(t, layers.NoWait, wait)
	require.True(t, more)
	mergeWaits(t, p, layers.NeedsSnapshot)
	do(t, p.check)
}
