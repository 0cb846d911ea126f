package chain

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// target is a player whose replica missed two snapshots, and is rebuilt from the first one on.
type target struct {
	*player
	line   layers.Line
	first  layers.Point
	missed []layers.Point
	snaps  map[layers.Point][]byte
	sealed map[layers.Point]bool
}

// rebuildLife takes a replica through a rebuild with two stages and the head. It stops at the first error.
func rebuildLife(p *player) (t *target, err error) {
	t = &target{player: p, snaps: map[layers.Point][]byte{}, sealed: map[layers.Point]bool{}}
	for _, step := range []func() error{
		func() error { return p.write(0, 4*block) },
		p.flush,
		p.snapshot,
		func() error { return p.write(2*block, 2*block) },
		p.snapshot, // the volume gave it up while the replica was away
		func() error { return p.write(5*block, block) },
		p.flush,
	} {
		if err := step(); err != nil {
			return t, err
		}
	}
	t.first = p.ready()[0]
	t.snaps[t.first], t.sealed[t.first] = p.snaps[t.first], true
	line, err := p.line.Delete(p.ready()[1])
	if err == nil {
		line, err = line.Forget(p.ready()[1])
	}
	for nonce := range uint64(2) {
		if err == nil {
			var point layers.Point
			line, point, err = line.Intend(nonce+100, "")
			t.missed = append(t.missed, point)
		}
		if err == nil {
			line, err = line.Ready(t.missed[nonce])
		}
	}
	if t.line = line; err != nil {
		return t, err
	}
	if _, err := p.c.Follow(line); err != nil {
		return t, err
	}
	if err := p.c.StartRebuild(t.first); err != nil {
		return t, err
	}
	for _, point := range t.missed {
		if err := p.write(int64(point.Number)*block, 2*block+512); err != nil {
			return t, err
		}
		t.snaps[point] = slices.Clone(p.now)
		if err := p.c.SealStage(line, point); err != nil {
			return t, err
		}
		p.settle()
		t.sealed[point] = true
	}
	if err := p.write(block, block); err != nil {
		return t, err
	}
	if err := p.c.EndRebuild(line); err != nil {
		return t, err
	}
	return t, p.flush()
}

// reopen opens a target after a loss of power, and compares it with what its rebuild promised.
func (t *target) reopen(rng *rand.Rand) error {
	t.f.Crash(rng)
	t.boot++
	dir, err := t.f.OpenDir(testDir)
	if err != nil {
		return err
	}
	t.dir = dir
	if t.c, err = Open(dir, Options{UID: testUID, BootID: t.bootID(), SameSuperblock: true, recentEntries: t.entries}); err != nil {
		return err
	}
	if err := t.lookAfterLoss(); err != nil {
		return err
	}
	if t.line.Counter == 0 {
		return nil // the rebuild had not started
	}
	if _, err := t.c.Follow(t.line); err != nil {
		return err
	}
	for point, want := range t.snaps {
		if t.c.Layers().Border(point) < 0 {
			if t.sealed[point] {
				return fmt.Errorf("stage %d was sealed, and is gone", point.Number)
			}
			continue
		}
		v, err := t.c.View(point)
		if err != nil {
			return err
		}
		got := make([]byte, len(want))
		if err := errors.Join(v.ReadAt(got, 0), v.Close()); err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("the view at %d is not what was copied", point.Number)
		}
	}
	return t.look(nil)
}

// A rebuild that is stopped at any step keeps the stages that it has sealed, and the next rebuild starts there.
func TestALossOfPowerAtAnyStepOfARebuildKeepsTheSealedStages(t *testing.T) {
	p := start(t)
	first := p.f.Steps()
	_, err := rebuildLife(p)
	require.NoError(t, err)
	steps, stride := p.f.Steps()-first, 1
	require.Greater(t, steps, 80, "the rebuild is not what it was")
	if raceEnabled {
		stride = 10
	}
	for at := 1; at <= steps; at += stride {
		for seed := range uint64(seeds) {
			p := start(t)
			first := p.f.Steps()
			p.f.Before(func(op memfs.Op) error {
				if op.N == first+at {
					return memfs.ErrCrashed
				}
				return nil
			})
			target, err := rebuildLife(p)
			require.ErrorIs(t, err, memfs.ErrCrashed, "step %d", at)
			p.f.Before(nil)
			name := fmt.Sprintf("step %d of %d, seed %d", at, steps, seed)
			require.NoError(t, target.reopen(rand.New(rand.NewPCG(uint64(at), seed))), name)
			if target.line.Counter == 0 {
				continue
			}
			base := layers.Line.Base(target.line, madeOf(target), target.c.Layers())
			require.NoError(t, target.c.StartRebuild(base), name)
			for _, point := range target.missed {
				if point.Number > base.Number {
					require.NoError(t, target.write(0, block), name)
					require.NoError(t, target.c.SealStage(target.line, point), name)
				}
			}
			require.NoError(t, target.c.EndRebuild(target.line), name)
			require.Len(t, target.c.Layers().Layers, 4, name)
		}
	}
}

// madeOf is the chain of a source that has all points of the line.
func madeOf(t *target) layers.Chain {
	c := layers.Chain{Next: 9}
	below := layers.Number(0)
	for i, m := range t.line.Points {
		c.Layers = append(c.Layers, layers.Layer{
			From: below, Top: layers.Border{Point: m.Point, Flushed: true}, Files: []layers.File{layers.File(i + 1)},
		})
		below = m.Number
	}
	c.Layers = append(c.Layers, layers.Layer{From: below, Files: []layers.File{8}})
	return c
}

func TestStartRebuildIsRefusedAtABorderThatTheReplicaLacks(t *testing.T) {
	p := start(t)
	require.NoError(t, p.snapshot())
	generation := p.c.Generation()
	assert.ErrorIs(t, p.c.StartRebuild(layers.Point{Number: 1, Nonce: 99}), layers.ErrNoBorder)
	assert.Equal(t, generation, p.c.Generation(), "the list was replaced")
	v, err := p.c.View(p.ready()[0])
	require.NoError(t, err)
	require.NoError(t, p.c.StartRebuild(layers.Point{}))
	assert.Len(t, p.c.Layers().Layers, 1)
	assert.ErrorIs(t, v.ReadAt(make([]byte, 512), 0), layers.ErrNoBorder)
	require.NoError(t, v.Close())
}

func TestDiffersNamesAllChangesUpToThePresent(t *testing.T) {
	p := start(t)
	require.NoError(t, p.write(0, 8*block))
	_, _, err := p.c.Differs(layers.Point{Number: 1}, layers.Point{}, 0, 10)
	require.ErrorIs(t, err, layers.ErrNoBorder)
	require.NoError(t, p.snapshot())
	from := p.ready()[0]
	require.NoError(t, p.write(block, 512))
	require.NoError(t, p.snapshot())
	require.NoError(t, p.write(3*block, 2*block))
	require.NoError(t, p.punch(7*block, block))

	found, next, err := p.c.Differs(from, layers.Point{}, 0, 10)
	require.NoError(t, err)
	assert.EqualValues(t, testSize, next)
	got := [][2]int64{}
	for _, r := range found {
		got = append(got, [2]int64{r.Off / block, r.Length / block})
	}
	assert.Equal(t, [][2]int64{{1, 1}, {3, 2}, {7, 1}}, got)
	found, _, err = p.c.Differs(p.ready()[1], layers.Point{}, 0, 10)
	require.NoError(t, err)
	assert.Len(t, found, 2)
	found, _, err = p.c.Differs(from, p.ready()[1], 0, 10)
	require.NoError(t, err)
	assert.Len(t, found, 1)
}

func TestOwnsRefusesNumbersThatWereNeverGivenOut(t *testing.T) {
	p := start(t)
	require.NoError(t, p.snapshot())
	owns, listed := Owns(p.dir, testUID)
	assert.True(t, listed)
	for name, want := range map[string]bool{
		"data.img": true, "2.img": true, "2.map": true, "2.recent": true, "3.img": true, "4.img": false, "1.img": false,
		"1-61.kept": true, "index": true, "notes.txt": false, "02.img": false, "layers.list": false,
	} {
		assert.Equal(t, want, owns(name), name)
	}
	_, listed = Owns(p.dir, "another")
	assert.False(t, listed)
}
