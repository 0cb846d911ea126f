package chain

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

const block = layers.BlockBytes

// life takes a replica through all operations. It stops at the first error.
func life(p *player) error {
	const all = 1 << 30
	for i, step := range []func() error{
		func() error { return p.write(0, 4*block) },
		func() error { return p.write(9*block, testSize-9*block) },
		p.flush,
		p.snapshot, // 1: from one layer without a map to two
		func() error { return p.write(block+512, 1024) },
		func() error { return p.write(9*block, 512) },
		func() error { return p.punch(2*block, block) },
		p.flush,
		func() error { return p.write(5*block, 2*block) },
		p.prepare, // 2
		func() error { return p.write(6*block, 512) },
		p.doSwitch,
		func() error { return p.write(6*block+512, 512) },
		func() error { return p.zero(3*block, block) },
		p.seal,
		func() error { return p.write(0, 512) },
		p.prepare, // 3 is given up after the switch
		p.doSwitch,
		func() error { return p.write(7*block, block) },
		p.giveUp,
		func() error { return p.write(4*block, block) },
		func() error { return p.remove(0) }, // up: the head does not change
		func() error { return p.merge(3) },
		func() error { return p.merge(all) },
		p.flush,
		func() error { return p.grow(2 * block) },
		func() error { return p.write(10*block, block) },
		p.snapshot, // 4
		func() error { return p.write(8*block, 2*block) },
		p.snapshot,                          // 5
		func() error { return p.remove(1) }, // the small layer goes down into the large one
		func() error { return p.merge(all) },
		func() error { return p.punch(512, 5*block) },
		func() error { return p.write(block, 512) },
		func() error { return p.remove(0) }, // the layer of snapshot 2
		func() error { return p.merge(all) },
		func() error { return p.write(4*block+512, 512) },
		func() error { return p.revert(0) },
		func() error { return p.write(3*block, 1024) },
		func() error { return p.remove(0) }, // into the head, with a local head
		func() error { return p.merge(4) },
		func() error { return p.write(block+1024, 512) },
		func() error { return p.merge(all) },
		p.flush,
		p.check,
		// A backup, and the deletion of its point: a kept map is the base of the next backup.
		p.snapshot,
		func() error { return p.write(2*block, 2*block) },
		func() error { return p.backup(0, "a") },
		func() error { return p.remove(0) },
		func() error { return p.merge(all) }, // waits: users write to the upper file
		func() error { return p.write(6*block, 512) },
		p.snapshot,
		func() error { return p.merge(all) }, // the map takes up the upper file
		p.check,
		func() error { return p.write(8*block, block) },
		p.snapshot,
		func() error { return p.backup(1, "b") },
		func() error { return p.write(block, block) },
		func() error { return p.remove(1) },
		p.check,
		func() error { return p.revert(0) }, // the map of target b goes, and the one of target a stays
		func() error { return p.write(4*block, block) },
		func() error { return p.backup(0, "a") },
		func() error { return p.merge(all) },
		p.flush,
		p.check,
	} {
		if err := step(); err != nil {
			return fmt.Errorf("step %d of the life: %w", i, err)
		}
	}
	return nil
}

// stepsOf returns the number of file system steps of a whole life.
func stepsOf(t *testing.T) int {
	t.Helper()
	p := start(t)
	first := p.f.Steps()
	require.NoError(t, life(p))
	require.Greater(t, p.f.Steps()-first, 300, "the life is not what it was")
	return p.f.Steps() - first
}

// atEachStep runs lives to each of their steps, counted after the creation. There, hook is called once.
func atEachStep(t *testing.T, hook func(p *player, op memfs.Op) error, then func(p *player, at int, err error) error) {
	t.Helper()
	steps, stride := stepsOf(t), 1
	if raceEnabled { // one life has no concurrency, and the detector makes it ten times slower
		stride = 20
	}
	for at := 1; at <= steps; at += stride {
		p := start(t)
		first := p.f.Steps()
		p.f.Before(func(op memfs.Op) error {
			if op.N != first+at {
				return nil
			}
			return hook(p, op)
		})
		require.NoError(t, then(p, at, life(p)), "step %d of %d", at, steps)
	}
}

func stop(*player, memfs.Op) error { return memfs.ErrCrashed }

// seeds is in how many ways unsynced data is lost, for each step.
const seeds = 3

func TestALossOfPowerAtAnyStepLosesNothingThatWasFlushed(t *testing.T) {
	for seed := range uint64(seeds) {
		atEachStep(t, stop, func(p *player, at int, err error) error {
			if !isStopped(err) {
				return fmt.Errorf("it did not stop: %w", err)
			}
			return lives(p, powerLost, rand.New(rand.NewPCG(uint64(at), seed)))
		})
	}
}

// A killed process loses nothing. A loss of power must then leave everything on which the next process relies.
func TestAKillAtAnyStepLosesNothing(t *testing.T) {
	atEachStep(t, stop, func(p *player, at int, err error) error {
		if !isStopped(err) {
			return fmt.Errorf("it did not stop: %w", err)
		}
		rng := rand.New(rand.NewPCG(uint64(at), 99))
		if err := p.again(killed, rng); err != nil {
			return err
		}
		if err := p.flush(); err != nil {
			return err
		}
		return lives(p, powerLost, rng)
	})
}

// lives stops, opens again, and does some of each.
func lives(p *player, how stopped, rng *rand.Rand) error {
	if err := p.again(how, rng); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return p.write(2*block+512, block) },
		p.snapshot,
		func() error { return p.merge(1 << 30) },
		func() error { return p.write(4*block, 512) },
		p.check,
		func() error { return p.again(powerLost, rng) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("after the first stop: %w", err)
		}
	}
	return nil
}

// After a sync that failed, and lost the data that it should have made durable, nothing succeeds. The next opening
// shows the content of the disk.
func TestAFailedSyncAtAnyStepEndsTheChain(t *testing.T) {
	failures := 0
	fail := func(p *player, op memfs.Op) error {
		if op.Kind == "datasync" || op.Kind == "sync" {
			failures++
			p.f.LoseUnsynced(op.Name)
		}
		return nil
	}
	atEachStep(t, fail, func(p *player, at int, err error) error {
		if err == nil {
			return nil // no sync, or one whose failure concerns no content
		}
		if !isStopped(err) {
			return err
		}
		if p.c.Err() == nil {
			return fmt.Errorf("the chain still serves after %w", err)
		}
		if err := p.c.WriteAt(make([]byte, 512), 0); err == nil {
			return errors.New("a write succeeds after a failed sync")
		}
		return lives(p, failed, rand.New(rand.NewPCG(uint64(at), 7)))
	})
	require.Greater(t, failures, 3)
}

// When the disk fills up at any step, changes, snapshots and merges may fail. Flushes, seals and lists do not, and
// nothing is lost.
func TestAFullDiskAtAnyStepFailsOnlyWhatNeedsSpace(t *testing.T) {
	fill := func(p *player, _ memfs.Op) error {
		p.f.Fill()
		p.full = true
		return nil
	}
	atEachStep(t, fill, func(p *player, at int, err error) error {
		if errors.Is(err, errFull) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.flush(); err != nil {
			return err
		}
		rng := rand.New(rand.NewPCG(uint64(at), 5))
		return errors.Join(p.again(killed, rng), p.again(powerLost, rng))
	})
}

func TestAnErrorOfTheDiskAtAnyStepEndsTheChainOrChangesNothing(t *testing.T) {
	broken := errors.New("the disk does not answer")
	refuse := func(p *player, op memfs.Op) error { return broken }
	atEachStep(t, refuse, func(p *player, at int, err error) error {
		if err != nil && !errors.Is(err, broken) {
			return err
		}
		rng := rand.New(rand.NewPCG(uint64(at), 3))
		if err == nil { // a removal that the next opening repeats
			return lives(p, killed, rng)
		}
		return lives(p, failed, rng)
	})
}

// Leftovers of any stop go at the next opening.
func TestAnOpeningLeavesOnlyTheFilesOfTheList(t *testing.T) {
	atEachStep(t, stop, func(p *player, at int, _ error) error {
		if err := p.again(powerLost, rand.New(rand.NewPCG(uint64(at), 1))); err != nil {
			return err
		}
		return onlyListed(p)
	})
}

func onlyListed(p *player) error {
	names, err := p.dir.Names()
	if err != nil {
		return err
	}
	files := fileNumbers(p.c.Layers())
	want := map[string]bool{listName: true, listTempName: true, indexName: true}
	for i, n := range files {
		want[dataName(n)] = true
		if i > 0 {
			want[mapName(n)] = true
		}
	}
	for _, name := range names {
		n, kind, _ := parseName(name)
		if point, ok := parseKeptName(name); want[name] {
			delete(want, name)
		} else if ok && p.line.Wanted(point) {
			continue
		} else if kind != ".recent" || n == files[0] || !slices.Contains(p.c.Layers().Unsealed(), n) {
			return fmt.Errorf("%s is left", name)
		}
	}
	if len(want) > 0 {
		return fmt.Errorf("missing: %v", want)
	}
	return nil
}
