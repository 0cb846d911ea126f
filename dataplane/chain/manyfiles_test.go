package chain

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// lineAbove is a line of n points that the replica has missed.
func lineAbove(p *player, n int) (line layers.Line, points []layers.Point) {
	line = layers.Line{Counter: 1000}
	for i := range n {
		point := layers.Point{Number: p.line.Counter + layers.Number(i) + 100, Nonce: 7}
		points = append(points, point)
		line.Points = append(line.Points, layers.Mark{Point: point, State: layers.Ready})
	}
	return line, points
}

// sealStages seals the stages at points, and returns the first one that did not succeed.
func sealStages(c *Chain, line layers.Line, points []layers.Point) (failed int, err error) {
	for i, point := range points {
		if err := c.SealStage(line, point); err != nil {
			return i, err
		}
	}
	return len(points), nil
}

// A replica that shares no point with its source starts with one empty file. So it has room for all points.
func TestARebuildWithoutABaseDropsAllLayers(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, testSize) })
	for range 130 {
		do(t, p.snapshot)
	}
	require.NoError(t, p.c.StartRebuild(layers.Point{}))
	require.Equal(t, []layers.File{132}, fileNumbers(p.c.Layers()))
	names, err := p.dir.Names()
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"132.img", "index", listName, listTempName}, names)
	got := make([]byte, testSize)
	require.NoError(t, p.c.ReadAt(got, 0))
	require.True(t, isZero(got), "the old content is worth nothing")

	do(t, func() error { return p.write(0, 2*block) })
	require.NoError(t, p.c.StartRebuild(layers.Point{}), "it is repeated")
	require.NoError(t, p.c.ReadAt(got, 0))
	require.Equal(t, p.stamp, got[0], "the copied content stays")
	line, points := lineAbove(p, 254)
	sealed, err := sealStages(p.c, line, points)
	require.NoError(t, err, "stage %d", sealed)
	require.NoError(t, p.c.EndRebuild(line))
	v, err := p.c.View(points[0])
	require.NoError(t, err)
	for _, read := range []func([]byte, int64) error{v.ReadAt, p.c.ReadAt} { // the view, and the volume by the index
		require.NoError(t, read(got, 0))
		require.Equal(t, bytes.Repeat([]byte{p.stamp}, 2*block), got[:2*block])
		require.True(t, isZero(got[2*block:]))
	}
	require.NoError(t, v.Close())
}

// A volume without snapshots keeps its data.
func TestARebuildWithoutABaseKeepsTheOnlyFile(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, testSize) }, p.flush)
	generation := p.c.Generation()
	require.NoError(t, p.c.StartRebuild(layers.Point{}))
	require.Equal(t, generation, p.c.Generation())
	do(t, p.check)
}

func TestARebuildOnAFullDiskKeepsTheLayersItCannotReplace(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, testSize) }, p.snapshot, p.snapshot)
	want := fileNumbers(p.c.Layers())
	p.f.Fill()
	require.NoError(t, p.c.StartRebuild(layers.Point{}))
	require.Len(t, p.c.Layers().Layers, 1)
	require.Equal(t, want, fileNumbers(p.c.Layers()))
	require.NoError(t, p.c.Err())
	do(t, func() error { return p.look(nil) })
}

// The next opening finds all layers, or the empty file.
func TestALossOfPowerAtAnyStepWhileAllLayersAreDropped(t *testing.T) {
	for at, ended := 1, false; !ended; at++ {
		for seed := range uint64(seeds) {
			p := start(t)
			do(t, func() error { return p.write(0, testSize) }, p.snapshot, p.snapshot, p.flush)
			first := p.f.Steps()
			p.f.Before(func(op memfs.Op) error {
				if op.N == first+at {
					return memfs.ErrCrashed
				}
				return nil
			})
			_ = p.c.StartRebuild(layers.Point{})
			ended = p.f.Steps() < first+at
			p.f.Before(nil)
			p.f.Crash(rand.New(rand.NewPCG(uint64(at), seed)))
			name := fmt.Sprintf("step %d, seed %d", at, seed)
			dir, err := p.f.OpenDir(testDir)
			require.NoError(t, err, name)
			p.c, err = Open(dir, Options{UID: testUID, BootID: "boot-2"})
			require.NoError(t, err, name)
			if files := p.c.Layers().FileCount(); files != 1 {
				require.Equal(t, 3, files, name)
				require.False(t, ended, name)
				do(t, func() error { return p.look(nil) })
			}
			require.NoError(t, p.c.StartRebuild(layers.Point{}), name)
			line, points := lineAbove(p, 2)
			_, err = sealStages(p.c, line, points)
			require.NoError(t, err, name)
			require.NoError(t, p.c.Close(), name)
		}
	}
}

// A layer below the base has many files. The stages run out of files, and a merge makes room for them.
func TestARebuildWithTooManyFilesEndsAfterAMerge(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, testSize) })
	for range 130 {
		do(t, p.snapshot)
	}
	do(t, func() error { return p.write(block, block) })
	base := p.ready()[129]
	for range 129 {
		do(t, func() error { return p.remove(0) })
	}
	require.NoError(t, p.c.StartRebuild(base))
	line, points := lineAbove(p, 253)
	sealed, err := sealStages(p.c, line, points)
	require.ErrorIs(t, err, layers.ErrManyFiles)
	require.NoError(t, p.c.Err())
	do(t, func() error { return p.write(3*block, block) })
	require.NoError(t, p.c.StartRebuild(points[sealed-1]), "the next rebuild")
	require.ErrorIs(t, p.c.SealStage(line, points[sealed]), layers.ErrManyFiles)
	for more := true; more; {
		more, _, err = p.c.Merge(context.Background())
		require.NoError(t, err)
	}
	_, err = sealStages(p.c, line, points[sealed:])
	require.NoError(t, err)
	require.NoError(t, p.c.EndRebuild(line))
	require.NoError(t, p.look(nil))
	require.NoError(t, p.checkView(base))
}
