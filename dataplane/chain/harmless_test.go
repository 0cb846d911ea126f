package chain

import (
	"context"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

func TestATooLargeFileIsALackOfSpace(t *testing.T) {
	p := mergeable(t)
	p.f.Before(func(op memfs.Op) error {
		if op.Kind == "write" && op.Name == "2.img" {
			return syscall.EFBIG
		}
		return nil
	})
	require.ErrorIs(t, p.c.WriteAt(make([]byte, block), 8*block), syscall.EFBIG)
	require.NoError(t, p.c.Err())
	p.f.Before(nil)
	do(t, p.check)
}

// One block of an old layer cannot be read. The merge ends, and the chain serves all other blocks.
func TestAReadErrorEndsOnlyTheMerge(t *testing.T) {
	for name, tc := range map[string]struct {
		lower, upper int64 // how many blocks the files have
		file         string
	}{"up": {2, 4, lowestName}, "down": {6, 1, "2.img"}} {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			do(t, func() error { return p.write(0, tc.lower*block) }, p.snapshot,
				func() error { return p.write(3*block, tc.upper*block) }, p.snapshot,
				func() error { return p.remove(0) }, p.flush, p.c.Close)
			p.f.Kill()
			bad := &badReads{}
			d, err := p.f.OpenDir(testDir)
			require.NoError(t, err)
			p.c, err = Open(badDir{d, bad}, Options{UID: testUID, BootID: p.bootID(), SameSuperblock: true})
			require.NoError(t, err)
			bad.name.Store(&tc.file)
			_, _, err = p.c.Merge(context.Background())
			require.ErrorIs(t, err, syscall.EIO)
			bad.name.Store(nil)
			require.NoError(t, p.c.Err())
			do(t, p.check, func() error { return p.write(0, block) }, p.flush, func() error { return p.merge(1 << 30) }, p.check)
		})
	}
}

// badReads makes reads of one file fail, as a disk with an unreadable sector does.
type badReads struct{ name atomic.Pointer[string] }

type badDir struct {
	fsys.Dir
	bad *badReads
}

func (d badDir) OpenFile(name string, mode fsys.Mode) (fsys.File, error) {
	f, err := d.Dir.OpenFile(name, mode)
	if err != nil {
		return nil, err
	}
	return badFile{f, name, d.bad}, nil
}

type badFile struct {
	fsys.File
	name string
	bad  *badReads
}

func (f badFile) ReadAt(p []byte, off int64) error {
	if name := f.bad.name.Load(); name != nil && *name == f.name {
		return syscall.EIO
	}
	return f.File.ReadAt(p, off)
}

// The entry of a write finds no space. Its data must go as well: a file that becomes the lowest one has every block.
func TestAWriteWhoseEntryFailsLeavesNoData(t *testing.T) {
	for name, change := range map[string]func(p *player) error{
		"write": func(p *player) error { return p.c.WriteAt(slices.Repeat([]byte{7}, block), 8*block) },
		"zero":  func(p *player) error { return p.c.Zero(8*block, block) },
	} {
		t.Run(name, func(t *testing.T) {
			p := mergeable(t)
			head := p.c.state.Load().active()
			p.f.Before(func(op memfs.Op) error {
				if op.Kind == "write" && op.Name == recentName(head.n) {
					return syscall.ENOSPC
				}
				return nil
			})
			before, err := head.data.AllocatedBytes()
			require.NoError(t, err)
			require.ErrorIs(t, change(p), syscall.ENOSPC)
			after, err := head.data.AllocatedBytes()
			require.NoError(t, err)
			require.Equal(t, before, after)
			p.f.Before(nil)
			do(t, p.check, func() error { return p.merge(1 << 30) }, p.check)
		})
	}
}

func TestNothingOpensFilesAfterClose(t *testing.T) {
	p := start(t)
	do(t, p.snapshot, p.c.Close)
	_, err := p.c.ID()
	require.ErrorIs(t, err, ErrClosed)
	_, err = p.c.AllocatedBytes()
	require.ErrorIs(t, err, ErrClosed)
	for _, f := range p.c.state.Load().files {
		require.False(t, f.isOpen)
	}
}

// The upper file of a merge up is below the head, and has entries that no flush has made durable.
func TestAMergeBelowAnUnsealedBorderFlushes(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, testSize) }, p.snapshot, func() error { return p.write(0, 2*block) },
		p.prepare, p.doSwitch, func() error { return p.write(0, 4*block) }, p.giveUp, // the head has files 2 and 3
		p.prepare, p.doSwitch)
	_, _, err := p.c.Merge(context.Background())
	require.NoError(t, err)
	require.Equal(t, []layers.File{1, 3, 4}, fileNumbers(p.c.Layers()))
	do(t, p.seal, p.check)
}
