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

// do runs steps that must succeed.
func do(t *testing.T, steps ...func() error) {
	t.Helper()
	for i, step := range steps {
		require.NoError(t, step(), "step %d", i)
	}
}

func TestAWholeLifeEqualsTheModel(t *testing.T) {
	p := start(t)
	require.NoError(t, life(p))
	require.NoError(t, p.again(killed, nil))
	require.NoError(t, p.c.Close())
}

// touch adds an empty file to the directory.
func (p *player) touch(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, fsys.WriteNew(p.dir, name, []byte{1}))
}

func TestAnOpeningComparesTheDirectoryWithTheList(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, p *player)
		want   error
		says   string
		gone   []string
	}{
		"a leftover of a file that was listed": {func(t *testing.T, p *player) { p.touch(t, "2.recent") }, nil, "", []string{"2.recent"}},
		"all parts of the next file": {func(t *testing.T, p *player) {
			p.touch(t, "4.img")
			p.touch(t, "4.map")
			p.touch(t, "4.recent")
		}, nil, "", []string{"4.img", "4.map", "4.recent"}},
		"a map of the lowest file": {func(t *testing.T, p *player) { p.touch(t, "1.map") }, nil, "", []string{"1.map"}},
		"checksums of a later release": {func(t *testing.T, p *player) {
			p.touch(t, "1.sums")
			p.touch(t, "2.sums")
			p.touch(t, "3.sums")
		}, nil, "", []string{"1.sums", "2.sums"}},
		"a file of another kind": {func(t *testing.T, p *player) { p.touch(t, "intent.map") }, nil, "", nil},
		"a number that was never given out": {func(t *testing.T, p *player) {
			p.touch(t, "4.img")
			p.touch(t, "5.map")
		}, ErrForeign, "5.map", nil},
		"no data":           {func(t *testing.T, p *player) { require.NoError(t, p.dir.Unlink("3.img")) }, ErrMissing, "3.img", nil},
		"no data of file 1": {func(t *testing.T, p *player) { require.NoError(t, p.dir.Unlink("data.img")) }, ErrMissing, "data.img", nil},
		"no map":            {func(t *testing.T, p *player) { require.NoError(t, p.dir.Unlink("3.map")) }, ErrMissing, "3.map", nil},
		"no list":           {func(t *testing.T, p *player) { require.NoError(t, p.dir.Unlink(listName)) }, ErrMissing, listName, nil},
		"the list of a directory that was not replaced": {func(t *testing.T, p *player) {
			require.NoError(t, p.dir.Exchange(listName, listTempName))
		}, ErrTorn, "generation", nil},
		"a map of another file": {func(t *testing.T, p *player) {
			require.NoError(t, p.dir.Unlink("3.map"))
			f, err := p.dir.OpenFile("3.map", fsys.CreateNew)
			require.NoError(t, err)
			require.NoError(t, writeEmptyMap(f, testUID, 2, 0, mapFileBytes(10)))
		}, ErrTorn, "3.map", nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			// Files 1 and 3 are listed, and file 2 was removed.
			do(t, func() error { return p.write(0, 9*block) }, p.snapshot, func() error { return p.write(block, block) }, p.snapshot,
				func() error { return p.remove(0) }, func() error { return p.merge(1 << 30) })
			require.Equal(t, []layers.File{1, 3}, fileNumbers(p.c.Layers()))
			generation := p.c.Generation()
			require.NoError(t, p.c.Close())
			tc.change(t, p)
			before, err := p.dir.Names()
			require.NoError(t, err)
			c, err := Open(p.dir, Options{UID: testUID, BootID: "boot-1", Generation: generation})
			after, errNames := p.dir.Names()
			require.NoError(t, errNames)
			if tc.want != nil {
				require.ErrorIs(t, err, tc.want)
				assert.Contains(t, err.Error(), tc.says)
				assert.Equal(t, before, after, "it has changed nothing")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, slices.DeleteFunc(before, func(n string) bool { return slices.Contains(tc.gone, n) }), after)
			require.NoError(t, c.Close())
		})
	}
}

// What counts after a stop: the table of layers.Believe, with real files.
func TestAnOpeningBelievesRecentOnlyIfNothingCanBeLost(t *testing.T) {
	for name, tc := range map[string]struct {
		opts    Options
		want    layers.Trust
		present bool
	}{
		"same boot, the disk was held":  {Options{BootID: "boot-1", SameSuperblock: true}, layers.Trust{Recent: true}, true},
		"another boot":                  {Options{BootID: "boot-2", SameSuperblock: true}, layers.Trust{Distrust: true}, false},
		"an unknown boot":               {Options{SameSuperblock: true}, layers.Trust{Distrust: true}, false},
		"the disk may have been away":   {Options{BootID: "boot-1"}, layers.Trust{DropCache: true, Distrust: true}, false},
		"the caller knows of a failure": {Options{BootID: "boot-1", SameSuperblock: true, FailedSync: true}, layers.Trust{DropCache: true, Distrust: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, readOnly := range []bool{true, false} {
				p := start(t)
				do(t, func() error { return p.write(0, block) }, p.snapshot, func() error { return p.write(0, block) })
				want, old := p.now[0], p.snaps[p.ready()[0]][0]
				p.f.Kill()
				d, err := p.f.OpenDir(testDir)
				require.NoError(t, err)
				tc.opts.UID, tc.opts.ReadOnly = testUID, readOnly
				c, err := Open(d, tc.opts)
				require.NoError(t, err)
				assert.Equal(t, tc.want, c.Trust())
				got := make([]byte, 1)
				require.NoError(t, c.ReadAt(got, 0))
				if tc.present {
					assert.Equal(t, want, got[0])
				} else {
					assert.Equal(t, old, got[0])
				}
				require.NoError(t, c.Close())
			}
		})
	}
}

func TestAnOpeningForReadingOnlyWritesNothing(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, 3*block) }, p.snapshot, func() error { return p.write(block, 512) })
	p.touch(t, "3.img")
	point := p.ready()[0]
	p.f.Kill()
	steps := p.f.Steps()
	d, err := p.f.OpenDir(testDir)
	require.NoError(t, err)
	c, err := Open(d, Options{UID: testUID, BootID: "boot-1", SameSuperblock: true, ReadOnly: true})
	require.NoError(t, err)
	p.c = c
	do(t, p.check)
	for _, err := range []error{
		c.WriteAt([]byte{1}, 0), c.Punch(0, block), c.Zero(0, block), c.Datasync(), c.Truncate(2 * testSize),
		c.Prepare(layers.Point{Number: 9, Nonce: 9}, layers.MostFiles), c.Seal(point), c.Join(point, layers.Line{}, nil),
	} {
		assert.ErrorIs(t, err, ErrReadOnly)
	}
	require.NoError(t, c.Close())
	assert.Equal(t, steps, p.f.Steps())
}

func TestADiscardLeavesAChangeOnlyWhereALayerHasData(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(2*block, 2*block) }, p.snapshot, func() error { return p.write(5*block, block) }, p.flush)
	present := func() (found []int64) {
		w, err := p.c.state.Load().active().window(0, 10)
		require.NoError(t, err)
		for b := range w.n {
			if w.Has(b) {
				found = append(found, b)
			}
		}
		return found
	}
	do(t, func() error { return p.punch(0, testSize) })
	assert.Equal(t, []int64{2, 3, 5}, present(), "blocks that were data of a layer, and no others")
	extents, err := p.c.Extents(0, testSize)
	require.NoError(t, err)
	assert.Len(t, extents, 1, "all of it is a hole")
	do(t, p.check)
}

func TestASmallWriteTakesTheRestFromTheViewBelow(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, testSize) }, p.snapshot)
	do(t, func() error { return p.write(block+1024, 512) }, func() error { return p.write(9*block+512, 512) }, p.check)
	do(t, p.flush, func() error { return p.again(powerLost, rand.New(rand.NewPCG(1, 1))) })
}

func TestRequestsPastTheEndAreRefused(t *testing.T) {
	p := start(t)
	for _, err := range []error{
		p.c.ReadAt(make([]byte, 512), testSize-511), p.c.ReadAt(make([]byte, 1), -1), p.c.WriteAt(make([]byte, 512), testSize-511),
		p.c.Punch(testSize-512, 513), p.c.Zero(0, testSize+1), p.c.WriteAt([]byte{1}, testSize+block),
	} {
		assert.Error(t, err)
	}
	require.NoError(t, p.c.Err())
	do(t, p.check)
}

// When the entries are used up, a change flushes first.
func TestRecentThatIsFullIsFlushed(t *testing.T) {
	p := start(t)
	do(t, p.snapshot)
	p.entries = 2
	do(t, p.snapshot, p.snapshot)
	require.NoError(t, p.c.Close())
	p.f.Kill()
	require.NoError(t, p.open())
	do(t, p.snapshot)
	for i := range int64(10) {
		do(t, func() error { return p.write((9-i)*block, 512) })
	}
	do(t, p.check, func() error { return p.punch(0, testSize) }, p.check, func() error { return p.again(killed, nil) })
}

func TestAPointIsPreparedSwitchedAndSealedInThisOrder(t *testing.T) {
	p := start(t)
	a, b := layers.Point{Number: 1, Nonce: 1}, layers.Point{Number: 2, Nonce: 2}
	assert.ErrorIs(t, p.c.Switch(a), layers.ErrNotPrepared)
	assert.ErrorIs(t, p.c.Seal(a), layers.ErrNoBorder)
	require.NoError(t, p.c.Prepare(a, layers.MostFiles))
	require.NoError(t, p.c.Prepare(a, layers.MostFiles), "it is safe to repeat")
	assert.ErrorIs(t, p.c.Prepare(b, layers.MostFiles), layers.ErrBusy)
	assert.ErrorIs(t, p.c.Seal(a), ErrNotSwitched)
	assert.ErrorIs(t, p.c.Truncate(2*testSize), layers.ErrBusy)
	require.NoError(t, p.c.Switch(a))
	require.NoError(t, p.c.Switch(a), "it is safe to repeat")
	assert.ErrorIs(t, p.c.Prepare(b, layers.MostFiles), layers.ErrBorderGiven)
	_, err := p.c.View(a)
	assert.ErrorIs(t, err, layers.ErrNoBorder, "it is not sealed")
	require.NoError(t, p.c.Seal(a))
	require.NoError(t, p.c.Seal(a), "it is safe to repeat")
	assert.ErrorIs(t, p.c.Prepare(b, 2), layers.ErrManyFiles)
	require.NoError(t, p.c.Prepare(b, 3))
	p.f.Kill()
	d, err := p.f.OpenDir(testDir)
	require.NoError(t, err)
	c, err := Open(d, Options{UID: testUID, BootID: "boot-1", SameSuperblock: true})
	require.NoError(t, err)
	assert.ErrorIs(t, c.Prepare(b, layers.MostFiles), layers.ErrBorderGiven, "the head may have changes")
	assert.ErrorIs(t, c.Switch(b), layers.ErrNotPrepared)
	require.NoError(t, c.Close())
}

func TestAViewStaysWhileOlderPointsAreMerged(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, 5*block) }, p.snapshot, func() error { return p.write(block, 6*block) }, p.snapshot,
		func() error { return p.write(3*block, block) }, p.snapshot, func() error { return p.write(0, 9*block) })
	point := p.ready()[2]
	want := slices.Clone(p.snaps[point])
	v, err := p.c.View(point)
	require.NoError(t, err)
	same := func() {
		t.Helper()
		got := make([]byte, len(want))
		require.NoError(t, v.ReadAt(got, 0))
		require.Equal(t, want, got)
		require.NoError(t, checkExtents(v.Extents, want))
	}
	for range 2 {
		do(t, func() error { return p.remove(0) }, func() error { return p.merge(5) })
		same()
		do(t, func() error { return p.merge(1 << 30) })
		same()
	}
	line, err := p.line.Delete(point)
	require.NoError(t, err)
	assert.ErrorIs(t, p.c.Join(point, line, nil), layers.ErrHeld)
	require.NoError(t, v.Close())
	assert.ErrorIs(t, v.ReadAt(make([]byte, 1), 0), ErrClosed)
	require.NoError(t, p.c.Join(point, line, nil))
}

func TestAViewEndsWhenItsPointIsReverted(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, block) }, p.snapshot, func() error { return p.write(0, block) }, p.snapshot)
	v, err := p.c.View(p.ready()[1])
	require.NoError(t, err)
	do(t, func() error { return p.revert(0) })
	assert.ErrorIs(t, v.ReadAt(make([]byte, 1), 0), layers.ErrNoBorder)
	require.NoError(t, v.Close())
	do(t, p.check)
}

// The usual case: one snapshot, a backup, a deletion. The merge copies the later writes, and not the volume.
func TestAMergeOfASmallHeadCopiesTheHead(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, testSize) }, p.snapshot, func() error { return p.write(2*block, block) },
		func() error { return p.remove(0) })
	head := p.c.state.Load().active()
	do(t, func() error { return p.merge(1 << 30) })
	assert.Equal(t, []layers.File{1, 3}, fileNumbers(p.c.Layers()), "the old head is in file 1, and a local head is on it")
	assert.NotSame(t, head, p.c.state.Load().active())
	do(t, func() error { return p.merge(1 << 30) })
	assert.Equal(t, []layers.File{1, 3}, fileNumbers(p.c.Layers()), "the local head stays")
	do(t, p.check, func() error { return p.write(block, block) }, p.snapshot, func() error { return p.merge(1 << 30) }, p.check)
	assert.Equal(t, []layers.File{1, 4}, fileNumbers(p.c.Layers()), "it goes down when it is sealed")
}

func TestABorderThatIsNeededIsNotJoined(t *testing.T) {
	p := start(t)
	do(t, p.snapshot, p.snapshot)
	point := p.ready()[0]
	assert.ErrorIs(t, p.c.Join(point, p.line, nil), layers.ErrBusy, "it is ready")
	line, err := p.line.Delete(point)
	require.NoError(t, err)
	assert.ErrorIs(t, p.c.Join(point, line, []layers.Point{point}), layers.ErrBusy, "a rebuild needs it")
	p.line = line
	do(t, p.prepare)
	assert.ErrorIs(t, p.c.Join(point, p.line, nil), layers.ErrBusy, "an attempt is under way")
	_, wait, err := p.c.Merge(context.Background())
	require.NoError(t, err, "there is nothing to merge")
	assert.Equal(t, layers.NoWait, wait)
	do(t, p.giveUp)
	require.NoError(t, p.c.Join(point, p.line, nil))
}

func TestNamesOfLayerFiles(t *testing.T) {
	for name, want := range map[string]layers.File{
		"data.img": 1, "2.img": 2, "17.map": 17, "17.recent": 17, "17.sums": 17, "1.map": 1, "0.img": 0, "-3.img": -3,
	} {
		n, _, ok := parseName(name)
		assert.True(t, ok, name)
		assert.Equal(t, want, n, name)
	}
	for _, name := range []string{
		"1.img", "02.img", "2.tmp", "2.img.tmp", ".img", "img", "intent.map", "changes.map", "replica.meta", "layers.list", "2", "99999999999999999999.img",
	} {
		_, _, ok := parseName(name)
		assert.False(t, ok, name)
	}
}
