package chain

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

func TestAPageOfTheIndexIsReadAsItWasWritten(t *testing.T) {
	x := layers.NewIndex(indexPageBlocks)
	x.Reach = 1 << 40
	for b := range x.Slots {
		x.Slots[b] = layers.File(b % 256)
		if x.Slots[b] > 0 {
			x.Slots[b] += 1 << 39
		}
	}
	p, err := encodeIndexPage(testUID, 3, 17, x)
	require.NoError(t, err)
	require.Len(t, p, indexPageBytes)
	require.True(t, p.isOf(testUID, 3))
	assert.Equal(t, x, p.decode())
	assert.EqualValues(t, 17, p.generation())
	assert.False(t, p.isOf("another", 3))
	assert.False(t, p.isOf(testUID, 4))
	for at := 0; at < indexPageBytes; at += 61 {
		bad := slices.Clone(p)
		bad[at] ^= 4
		assert.False(t, bad.isOf(testUID, 3), "byte %d", at)
	}
	assert.False(t, make(indexPage, indexPageBytes).isOf(testUID, 0))

	x.Slots[5] = 1 << 38
	_, err = encodeIndexPage(testUID, 3, 17, x)
	require.ErrorIs(t, err, errNoIndex, "256 files")
}

// layered returns a replica with n sealed layers. Block 0 is in the lowest layer only, and block i in layer i.
func layered(t testing.TB, n int64) *player {
	t.Helper()
	p, err := newReplica(1 << 20)
	require.NoError(t, err)
	p.now = make([]byte, 1<<20)
	p.settle()
	require.NoError(t, p.open())
	require.NoError(t, p.write(0, block))
	for i := range n {
		require.NoError(t, errors.Join(p.write((i+1)%256*block, block), p.snapshot()))
	}
	return p
}

// reopenBad closes a replica, and opens it so that reads of a file can fail.
func (p *player) reopenBad(t *testing.T) *badReads {
	t.Helper()
	require.NoError(t, errors.Join(p.flush(), p.c.Close()))
	p.f.Kill()
	d, err := p.f.OpenDir(testDir)
	require.NoError(t, err)
	bad := &badReads{}
	p.dir = d
	p.c, err = Open(badDir{d, bad}, Options{UID: testUID, BootID: p.bootID(), SameSuperblock: true})
	require.NoError(t, err)
	return bad
}

func TestAReadAsksOnlyTheLayerThatTheIndexNames(t *testing.T) {
	p := layered(t, 6)
	between := mapName(4)
	readOne := func() error { return p.c.ReadAt(make([]byte, block), 0) }
	_ = p.reopenBad(t)
	do(t, readOne)

	bad := p.reopenBad(t)
	bad.name.Store(&between)
	do(t, readOne)

	// A damaged page is not believed. It is made again from the maps.
	f, err := p.dir.OpenFile(indexName, fsys.ReadWrite)
	require.NoError(t, err)
	require.NoError(t, f.WriteAt([]byte{99}, indexSlots))
	bad = p.reopenBad(t)
	bad.name.Store(&between)
	require.ErrorIs(t, readOne(), syscall.EIO)
	require.NoError(t, p.c.Err())
	bad.name.Store(nil)
	do(t, readOne, p.check)
	bad = p.reopenBad(t)
	bad.name.Store(&between)
	do(t, readOne)
}

// After a snapshot, the page asks the new layer only.
func TestAPageTakesUpTheNewLayers(t *testing.T) {
	p := layered(t, 6)
	do(t, p.check)
	bad := p.reopenBad(t)
	old := mapName(3)
	bad.name.Store(&old)
	do(t, func() error { return p.write(0, block) }, p.snapshot)
	for _, b := range []int64{0, 1, 2, 5, 6, 9} { // file 3 has block 3
		got := make([]byte, block)
		do(t, func() error { return p.c.ReadAt(got, b*block) })
		assert.Equal(t, p.now[b*block:(b+1)*block], got, "block %d", b)
	}
}

// A page from after the present list belongs to a directory that was restored.
func TestAPageFromTheFutureIsNotBelieved(t *testing.T) {
	p := layered(t, 6)
	s := p.c.state.Load()
	x := layers.NewIndex(indexPageBlocks) // it says that no sealed layer has any block
	x.Reach = 99
	for generation, want := range map[int64]bool{s.list.generation: true, s.list.generation + 1: false} {
		page, err := encodeIndexPage(testUID, 0, generation, x)
		require.NoError(t, err)
		require.NoError(t, s.index.file.WriteAt(page, 0))
		assert.Equal(t, want, s.index.readLocked(0, s.list.generation) != nil)
	}
}

// Without its file, the index is in memory only. A full disk or an error of the disk does not matter.
func TestTheIndexNeedsNoFile(t *testing.T) {
	for _, errno := range []error{syscall.ENOSPC, syscall.EIO} {
		p := layered(t, 6)
		require.NoError(t, p.c.Close())
		p.f.Kill()
		d, err := p.f.OpenDir(testDir)
		require.NoError(t, err)
		require.NoError(t, d.Unlink(indexName))
		p.f.Before(func(op memfs.Op) error {
			if op.Name == indexName {
				return errno
			}
			return nil
		})
		require.NoError(t, p.open())
		do(t, p.check, func() error { return p.write(0, block) }, p.snapshot, p.check)
		require.NoError(t, p.c.Err())
	}
}

// Layers are read through the index while they are merged.
func TestReadsThroughTheIndexDuringMerges(t *testing.T) {
	p := layered(t, 8)
	do(t, p.check)
	for _, i := range []int{1, 3, 0, 2} {
		do(t, func() error { return p.remove(i) }, p.check, func() error { return p.merge(4) }, p.check,
			func() error { return p.merge(1 << 30) }, p.check)
	}
	do(t, func() error { return p.revert(1) }, p.check, func() error { return p.write(5*block, block) }, p.snapshot, p.check)
}

func BenchmarkRead4KiB(b *testing.B) {
	for _, n := range []int64{1, 10, 100, 250} {
		p := layered(b, n-1) // and the head
		require.NoError(b, p.c.Close())
		p.f.Kill()
		d, err := p.f.OpenDir(testDir)
		require.NoError(b, err)
		p.c, err = Open(d, Options{UID: testUID, BootID: p.bootID(), SameSuperblock: true})
		require.NoError(b, err)
		s := p.c.state.Load()
		for name, content := range map[string]content{"index": s.volume(), "walk": {chain: s.list.chain, index: s.list.chain.Head(), files: s.files}} {
			b.Run(fmt.Sprintf("layers=%d/%s", n, name), func(b *testing.B) {
				buf := make([]byte, block)
				for b.Loop() {
					if err := content.readAt(buf, 0); err != nil { // the lowest layer has it
						b.Fatal(err)
					}
				}
			})
		}
	}
}
