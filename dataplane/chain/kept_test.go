package chain

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

func fullKept() keptBits {
	return keptBits{keptMap{layers.Point{Number: 5, Nonce: 1<<64 - 1}, 7}, 19, []byte{1, 255, 5}}
}

func TestAKeptMapIsReadAsItWasWritten(t *testing.T) {
	k := fullKept()
	got, err := decodeKept(k.encode(testUID), testUID, k.from, 7)
	require.NoError(t, err)
	require.Equal(t, k, got)
	for block, want := range map[int64]bool{0: true, 15: true, 16: false, 8 * 16: true, 16*16 - 1: true, 17 * 16: false, 18 * 16: true, 19 * 16: false, 1 << 40: false} {
		assert.Equal(t, want, got.has(block), block)
	}
	got.take([]byte{2}, 3)
	assert.Equal(t, []byte{3, 255, 5}, got.bits)
	got.take([]byte{0, 0, 0, 0, 1}, 33)
	assert.True(t, got.has(32*16))
	assert.Equal(t, int64(33), got.n)
}

func TestADamagedKeptMapIsRefused(t *testing.T) {
	k := fullKept()
	good := k.encode(testUID)
	for at := range good {
		bad := slices.Clone(good)
		bad[at] ^= 1
		_, err := decodeKept(bad, testUID, k.from, 7)
		require.Error(t, err, "byte %d", at)
	}
	for n := range good {
		_, err := decodeKept(good[:n], testUID, k.from, 7)
		require.Error(t, err, "%d bytes", n)
	}
	_, err := decodeKept(append(slices.Clone(good), 0), testUID, k.from, 7)
	require.ErrorIs(t, err, ErrTorn)
	_, err = decodeKept(good, "another", k.from, 7)
	require.ErrorIs(t, err, ErrTorn)
	_, err = decodeKept(good, testUID, layers.Point{Number: 5, Nonce: 1}, 7)
	require.ErrorIs(t, err, ErrTorn)
	_, err = decodeKept(good, testUID, k.from, 6)
	require.ErrorIs(t, err, ErrTorn, "its file was never given out")
}

func TestNamesOfKeptMaps(t *testing.T) {
	p, ok := parseKeptName("5-18446744073709551615.kept")
	assert.True(t, ok)
	assert.Equal(t, layers.Point{Number: 5, Nonce: 1<<64 - 1}, p)
	for _, name := range []string{"5-1.kept.tmp", "05-1.kept", "5.kept", "5-1", "x5-1.kept", "5-1.keptx", "5-99999999999999999999.kept"} {
		_, ok := parseKeptName(name)
		assert.False(t, ok, name)
	}
}

// withKeptMap returns a replica whose first point was backed up and deleted: a map of it ends at the head.
func withKeptMap(t *testing.T) (p *player, base layers.Point) {
	t.Helper()
	p = start(t)
	do(t, func() error { return p.write(0, testSize) }, p.snapshot, func() error { return p.backup(0, "a") })
	base = p.ready()[0]
	do(t, func() error { return p.write(block, block) }, func() error { return p.remove(0) })
	require.Equal(t, []keptMap{{base, 2}}, p.c.keptMaps())
	return p, base
}

func TestAKeptMapFollowsTheMerges(t *testing.T) {
	p, base := withKeptMap(t)
	mergeWaits(t, p, layers.NeedsSnapshot)
	do(t, func() error { return p.write(3*block, block) }, p.snapshot, p.check)
	more, wait, err := p.c.Merge(context.Background())
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, layers.NoWait, wait)
	require.Equal(t, []layers.File{1, 3}, fileNumbers(p.c.Layers()))
	require.Equal(t, []keptMap{{base, 3}}, p.c.keptMaps())
	do(t, p.check, func() error { return p.again(powerLost, rand.New(rand.NewPCG(1, 1))) })
	require.Equal(t, []keptMap{{base, 3}}, p.c.keptMaps())
	do(t, func() error { return p.write(8*block, block) }, p.snapshot, func() error { return p.remove(0) }, func() error { return p.merge(1 << 30) }, p.check)
	require.Equal(t, []keptMap{{base, 4}}, p.c.keptMaps(), "it has taken up file 3")
}

// The blocks are named in units of 64 KiB.
func TestAKeptMapOfALargeVolume(t *testing.T) {
	p, want := startGrown(t, 9)
	base := p.ready()[1]
	do(t, func() error { return p.backup(1, "a") }, func() error { return p.fill(want, 100*block, block, 3) },
		func() error { return p.fill(want, farBlock*block, block, 4) }, func() error { return p.remove(1) }, p.snapshot,
		func() error { return p.merge(1 << 30) })
	require.Equal(t, []layers.File{1, 2, 4}, fileNumbers(p.c.Layers()))
	var found []fsys.Range
	for r, err := range p.c.Changed(base, p.ready()[1]) {
		require.NoError(t, err)
		found = append(found, r)
	}
	assert.Equal(t, []fsys.Range{{Off: 96 * block, Length: 16 * block}, {Off: farBlock * block, Length: 16 * block}}, found)
}

// A merge moves blocks across the end of the map while a job reads what has changed.
func TestChangesAreReadWhileAMergeRuns(t *testing.T) {
	p, want := startGrown(t, 9)
	base := p.ready()[1]
	do(t, func() error { return p.backup(1, "a") })
	for _, b := range []int64{100, pieceBlocks + 16, farBlock} {
		do(t, func() error { return p.fill(want, b*block, block, 3) })
	}
	do(t, func() error { return p.remove(1) }, p.snapshot)
	var found []int64
	for r, err := range p.c.Changed(base, p.ready()[1]) {
		require.NoError(t, err)
		if len(found) == 0 {
			do(t, func() error { return p.merge(1 << 30) })
			require.Equal(t, []layers.File{1, 2, 4}, fileNumbers(p.c.Layers()))
		}
		found = append(found, r.Off/block)
	}
	require.Equal(t, []int64{100, pieceBlocks + 16, farBlock}, found)
}

// A map that is damaged, or of another release, is gone after the opening. The base is unknown then.
func TestAnOpeningDropsADamagedKeptMap(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, p *player, name string){
		"damaged": func(t *testing.T, p *player, name string) {
			f, err := p.dir.OpenFile(name, fsys.ReadWrite)
			require.NoError(t, err)
			require.NoError(t, f.WriteAt([]byte{0xff}, keptHeadBytes))
		},
		"empty": func(t *testing.T, p *player, name string) {
			require.NoError(t, p.dir.Unlink(name))
			require.NoError(t, fsys.WriteNew(p.dir, name, nil))
		},
		"unfinished": func(t *testing.T, p *player, name string) { require.NoError(t, p.dir.Rename(name, name+".tmp")) },
	} {
		t.Run(name, func(t *testing.T) {
			p, base := withKeptMap(t)
			do(t, p.snapshot)
			to := p.ready()[0]
			damage(t, p, keptName(base))
			p.f.Kill()
			require.NoError(t, p.open())
			require.Empty(t, p.c.keptMaps())
			for _, err := range p.c.Changed(base, to) {
				require.ErrorIs(t, err, layers.ErrNoBorder)
			}
			names, err := p.dir.Names()
			require.NoError(t, err)
			for _, n := range names {
				require.NotContains(t, n, "kept")
			}
			do(t, func() error { return p.merge(1 << 30) })
		})
	}
}

// A file that only looks like an unfinished map is not removed.
func TestAnOpeningLeavesForeignFiles(t *testing.T) {
	p := start(t)
	foreign := []string{"notes.kept.tmp", ".kept.tmp", "05-1.kept.tmp", "5-1.kept.tmp.tmp", "5-1x.kept.tmp", "5-1.tmp"}
	for _, name := range append([]string{"5-1.kept.tmp"}, foreign...) {
		require.NoError(t, fsys.WriteNew(p.dir, name, []byte("x")))
	}
	require.NoError(t, p.dir.Sync())
	p.f.Kill()
	require.NoError(t, p.open())
	names, err := p.dir.Names()
	require.NoError(t, err)
	require.Subset(t, names, foreign)
	require.NotContains(t, names, "5-1.kept.tmp")
}

// A map is damaged while the chain is open. The merge does not wait without end, and does not answer wrongly.
func TestAMergeRemovesAKeptMapThatItCannotRead(t *testing.T) {
	p, base := withKeptMap(t)
	do(t, p.snapshot)
	to := p.ready()[0]
	f, err := p.dir.OpenFile(keptName(base), fsys.ReadWrite)
	require.NoError(t, err)
	require.NoError(t, f.WriteAt([]byte{1}, 40))
	do(t, func() error { return p.merge(1 << 30) })
	require.Len(t, fileNumbers(p.c.Layers()), 2)
	require.Empty(t, p.c.keptMaps())
	for _, err := range p.c.Changed(base, to) {
		require.ErrorIs(t, err, layers.ErrNoBorder)
	}
}

func TestKeptMapsGoWithTheirBase(t *testing.T) {
	p, base := withKeptMap(t)
	_, err := p.dir.Lookup(keptName(base))
	require.NoError(t, err)
	p.line = p.line.DropBase("a")
	do(t, func() error { return p.c.ForgetBases(p.line) })
	require.Empty(t, p.c.keptMaps())
	_, err = p.dir.Lookup(keptName(base))
	require.Error(t, err)
	for seed := range uint64(20) {
		p, _ := withKeptMap(t)
		p.line = p.line.DropBase("a")
		do(t, func() error { return p.c.ForgetBases(p.line) })
		p.f.Crash(rand.New(rand.NewPCG(seed, 1)))
		d, err := p.f.OpenDir(testDir)
		require.NoError(t, err)
		_, err = d.Lookup(keptName(base))
		require.Error(t, err, "the removal is durable")
	}

	p, _ = withKeptMap(t)
	do(t, func() error { return p.c.StartRebuild(layers.Point{}) })
	require.Empty(t, p.c.keptMaps())
}

// The map of a point that a revert gave up is gone before the list follows the revert.
func TestARevertRemovesKeptMapsFirst(t *testing.T) {
	p := start(t)
	do(t, p.snapshot, func() error { return p.write(0, block) }, p.snapshot, func() error { return p.backup(1, "late") },
		func() error { return p.backup(0, "early") }, func() error { return p.remove(1) })
	early := p.ready()[0]
	line, err := p.line.Revert(early)
	require.NoError(t, err)
	require.Len(t, p.c.keptMaps(), 1)
	do(t, func() error { return p.c.followKept(line, p.c.Layers(), nil) })
	require.Empty(t, p.c.keptMaps())
}

// The target of a rebuild stores what its source knows.
func TestATargetKeepsTheChangesThatItsSourceKnows(t *testing.T) {
	p := start(t)
	base := layers.Point{Number: 1, Nonce: 77}
	p.line.Counter = 1
	ranges := func(yield func(fsys.Range, error) bool) {
		_ = yield(fsys.Range{Off: 2 * block, Length: block}, nil) && yield(fsys.Range{Off: 9 * block, Length: 512}, nil)
	}
	do(t, func() error { return p.c.KeepChanges(base, ranges) }, func() error { return p.write(0, 512) }, p.snapshot)
	require.Equal(t, []keptMap{{base, 1}}, p.c.keptMaps())
	for r, err := range p.c.Changed(base, p.ready()[0]) {
		require.NoError(t, err)
		require.Equal(t, fsys.Range{Length: testSize}, r)
	}
	require.Error(t, p.c.KeepChanges(base, func(yield func(fsys.Range, error) bool) { yield(fsys.Range{Length: testSize + 1}, nil) }))
}

// askedContext calls a function when a merge asks it.
type askedContext struct {
	context.Context
	asked func()
}

func (c askedContext) Err() error {
	c.asked()
	return nil
}

// The context of a merge may wait for long. A deletion does not wait for it.
func TestAMergeWaitsWithoutALockOfTheKeptMaps(t *testing.T) {
	p, base := withKeptMap(t)
	do(t, func() error { return p.write(3*block, block) }, p.snapshot)
	asked, held := 0, 0
	_, _, err := p.c.Merge(askedContext{context.Background(), func() {
		asked++
		for _, lock := range []interface {
			TryLock() bool
			Unlock()
		}{&p.c.keeping, &p.c.lane, &p.c.flushing, &p.c.changes, &p.c.reads} {
			if !lock.TryLock() {
				held++
				continue
			}
			lock.Unlock()
		}
	}})
	require.NoError(t, err)
	require.Equal(t, []keptMap{{base, 3}}, p.c.keptMaps(), "it has taken up file 2")
	assert.Positive(t, asked)
	assert.Zero(t, held)
	do(t, p.check)
}

// A member that was away finds that the base is no longer in the line. It keeps a map before it joins the border.
func TestAReplicaThatFollowsKeepsTheMapOfABase(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, testSize) }, p.snapshot, func() error { return p.backup(0, "a") },
		func() error { return p.write(block, block) })
	base := p.ready()[0]
	line, err := p.line.Delete(base)
	require.NoError(t, err)
	p.line, err = line.Forget(base)
	require.NoError(t, err)
	followed, err := p.c.Follow(p.line)
	require.NoError(t, err)
	require.Equal(t, []layers.Point{base}, followed.Joined)
	require.Equal(t, []keptMap{{base, 2}}, p.c.keptMaps())
	do(t, p.snapshot, p.check)
}

// The members have switched, and the file is not flushed yet. Its blocks are in memory only.
func TestAKeptMapTakesUpBlocksInMemory(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, 3*block) }, p.snapshot, func() error { return p.backup(0, "a") },
		func() error { return p.remove(0) }, func() error { return p.write(8*block, block) }, p.prepare, p.doSwitch,
		func() error { return p.merge(1 << 30) })
	require.Equal(t, []layers.File{1, 3}, fileNumbers(p.c.Layers()))
	do(t, p.seal, p.check)
}
