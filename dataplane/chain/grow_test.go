package chain

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

const mib = 1 << 20

// The maps of the older files have one page, and the map of the grown head has several.
const (
	smallSize = 100 * mib
	largeSize = 300 * mib
	farBlock  = 200 * mib / block // a block that the older maps do not cover
)

// startGrown returns a replica without a model: file 2 has count blocks from block 10 on, and the head, file 3, has
// grown. want has the first byte of each sector that is not zero.
func startGrown(t *testing.T, count int64) (p *player, want map[int64]byte) {
	t.Helper()
	p, err := newReplica(smallSize)
	require.NoError(t, err)
	want = map[int64]byte{}
	do(t, p.open, func() error { return p.fill(want, 5*block, block, 1) }, p.snapshot,
		func() error { return p.fill(want, 10*block, count*block, 2) }, p.snapshot,
		func() error { return p.c.Truncate(largeSize) })
	return p, want
}

// fill writes a byte, and notes it in want.
func (p *player) fill(want map[int64]byte, off, length int64, b byte) error {
	buf := make([]byte, length)
	for i := range buf {
		buf[i] = b
	}
	for s := off / testSector; s*testSector < off+length; s++ {
		want[s] = b
	}
	return p.c.WriteAt(buf, off)
}

// sectorsAre compares the first 32 blocks, and 32 blocks around farBlock.
func sectorsAre(read func(p []byte, off int64) error, want map[int64]byte) error {
	for _, first := range []int64{0, farBlock - 16} {
		got := make([]byte, 32*block)
		if err := read(got, first*block); err != nil {
			return err
		}
		for i, b := range got {
			if s := (first*block + int64(i)) / testSector; b != want[s] {
				return fmt.Errorf("sector %d (block %d) is %d, not %d", s, s*testSector/block, b, want[s])
			}
		}
	}
	return nil
}

// A block past the end of an older layer is absent there, even if the map of that layer has no page for the block.
func TestAVolumeGrowsPastThePagesOfOlderMaps(t *testing.T) {
	p, want := startGrown(t, 1)
	same := func() error { return sectorsAre(p.c.ReadAt, want) }
	do(t, same,
		func() error { return p.fill(want, farBlock*block+512, 512, 3) }, same,
		func() error { return p.c.Punch((farBlock-3)*block, 2*block) }, same,
		func() error { return p.fill(want, (farBlock+2)*block, block, 4) },
		func() error { return p.c.Punch((farBlock+2)*block+512, 512) },
		func() error { return p.c.Zero((farBlock+4)*block, 512) })
	delete(want, ((farBlock+2)*block+512)/testSector)
	extents, err := p.c.Extents(0, largeSize)
	require.NoError(t, err)
	assert.Len(t, extents, 13)
	do(t, same, p.snapshot, same)

	ready := p.ready()
	require.Len(t, ready, 3)
	v, err := p.c.View(ready[2])
	require.NoError(t, err)
	require.EqualValues(t, largeSize, v.Size())
	do(t, func() error { return sectorsAre(v.ReadAt, want) }, v.Close)
	v, err = p.c.View(ready[1])
	require.NoError(t, err)
	require.EqualValues(t, smallSize, v.Size())
	do(t, v.Close)
	for to, named := range map[layers.Point][]fsys.Range{
		ready[1]: {{Off: 10 * block, Length: block}},
		ready[2]: {
			{Off: 10 * block, Length: block},
			{Off: farBlock * block, Length: block},
			{Off: (farBlock + 2) * block, Length: block},
			{Off: (farBlock + 4) * block, Length: block},
		},
	} {
		var found []fsys.Range
		for r, err := range p.c.Changed(ready[0], to) {
			require.NoError(t, err)
			found = append(found, r)
		}
		assert.Equal(t, named, found, "point %d", to.Number)
	}
}

func TestFilesWithMapsOfDifferentLengthsAreMerged(t *testing.T) {
	for name, tc := range map[string]struct {
		count  int64 // blocks of the lower file
		sealed bool  // the upper file takes no changes
		files  []layers.File
	}{
		"up":                          {1, true, []layers.File{1, 3, 4}},
		"up into the file of users":   {1, false, []layers.File{1, 3}},
		"down":                        {9, true, []layers.File{1, 2, 4}},
		"down from the file of users": {9, false, []layers.File{1, 2, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			p, want := startGrown(t, tc.count)
			do(t, func() error { return p.fill(want, farBlock*block+512, 512, 3) },
				func() error { return p.fill(want, (farBlock+3)*block, block, 4) })
			if tc.sealed {
				do(t, p.snapshot)
			}
			same := func() error { return sectorsAre(p.c.ReadAt, want) }
			do(t, func() error { return p.remove(1) }, func() error { return p.merge(1 << 30) }, same)
			require.Equal(t, tc.files, fileNumbers(p.c.Layers()))
			do(t, p.c.Datasync)
			p.f.Kill()
			do(t, p.open, same)
			p.f.Crash(rand.New(rand.NewPCG(1, 1)))
			do(t, p.open, same)
		})
	}
}
