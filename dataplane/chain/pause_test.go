package chain

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// pause stops the next read of one file.
type pause struct {
	armed            atomic.Pointer[string]
	entered, release chan struct{}
}

type pausingDir struct {
	fsys.Dir
	pause *pause
}

func (d pausingDir) OpenFile(name string, mode fsys.Mode) (fsys.File, error) {
	f, err := d.Dir.OpenFile(name, mode)
	if err != nil {
		return nil, err
	}
	return pausingFile{f, name, d.pause}, nil
}

type pausingFile struct {
	fsys.File
	name  string
	pause *pause
}

func (f pausingFile) ReadAt(p []byte, off int64) error {
	if name := f.pause.armed.Load(); name != nil && *name == f.name && f.pause.armed.CompareAndSwap(name, nil) {
		close(f.pause.entered)
		<-f.pause.release
	}
	return f.File.ReadAt(p, off)
}

// A read has found a block in one file. Before it reads the data, a merge moves the block to the other file. The merge
// must not punch the block until the read has ended.
func TestAMergeWaitsForReadsBeforeItPunches(t *testing.T) {
	for name, tc := range map[string]struct {
		lower, upper int64 // how many blocks the files have; block 0 moves
		from, to     string
	}{
		"up":   {1, 4, "data.img", "2.img"},
		"down": {6, 1, "2.img", "data.img"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			first := int64(0)
			if name == "up" {
				first = 3 // the upper file lacks block 0
			}
			do(t, func() error { return p.write(0, tc.lower*block) }, p.snapshot, func() error { return p.write(first*block, tc.upper*block) },
				p.snapshot, func() error { return p.remove(0) })
			want := p.now[0]
			require.NoError(t, p.c.Close())
			p.f.Kill()

			d, err := p.f.OpenDir(testDir)
			require.NoError(t, err)
			stop := &pause{entered: make(chan struct{}), release: make(chan struct{})}
			c, err := Open(pausingDir{d, stop}, Options{UID: testUID, BootID: "boot-1", SameSuperblock: true})
			require.NoError(t, err)
			// The read starts when the block is copied, and does not count in the other file yet.
			got, read, started := make([]byte, 1), make(chan error, 1), make(chan struct{})
			var once sync.Once
			var punched atomic.Bool
			p.f.Before(func(op memfs.Op) error {
				if op.Kind == "datasync" && op.Name == tc.to {
					once.Do(func() {
						stop.armed.Store(&tc.from)
						go func() { read <- c.ReadAt(got, 0) }()
						<-stop.entered
						close(started)
					})
				}
				if op.Kind == "punch" && op.Name == tc.from {
					punched.Store(true)
				}
				return nil
			})
			merged := make(chan error, 1)
			go func() {
				_, _, err := c.Merge(context.Background())
				merged <- err
			}()
			<-started
			for !punched.Load() && c.reads.TryRLock() { // until the merge waits for the read
				c.reads.RUnlock()
				runtime.Gosched()
			}
			early := punched.Load()
			close(stop.release)
			require.NoError(t, <-read)
			require.NoError(t, <-merged)
			require.False(t, early, "the block was punched before the read had ended")
			require.True(t, punched.Load())
			require.Equal(t, want, got[0])
			require.NoError(t, c.Close())
		})
	}
}

// A merge has read a block of the lower file. Before it writes the block to the head, a user writes it there.
func TestACopyIntoTheHeadLeavesOutWhatUsersWrote(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, block) }, p.snapshot, func() error { return p.write(3*block, 4*block) },
		func() error { return p.remove(0) })
	require.NoError(t, p.c.Close())
	p.f.Kill()
	d, err := p.f.OpenDir(testDir)
	require.NoError(t, err)
	stop := &pause{entered: make(chan struct{}), release: make(chan struct{})}
	p.c, err = Open(pausingDir{d, stop}, Options{UID: testUID, BootID: p.bootID(), SameSuperblock: true})
	require.NoError(t, err)

	lower := lowestName
	stop.armed.Store(&lower)
	merged := make(chan error, 1)
	go func() { merged <- p.merge(1 << 30) }()
	<-stop.entered
	require.NoError(t, p.write(0, block))
	close(stop.release)
	require.NoError(t, <-merged)
	require.Len(t, fileNumbers(p.c.Layers()), 1, "the merge went up, into the file that users write to")
	do(t, p.check, p.flush)
	require.NoError(t, p.again(powerLost, rand.New(rand.NewPCG(1, 1))))
}

// A block is written while a flush syncs the data. Its bit does not become durable by this flush, and a kill does not
// lose it.
func TestABlockWrittenDuringAFlushIsNotPartOfIt(t *testing.T) {
	for seed := range uint64(30) {
		p := start(t)
		do(t, func() error { return p.write(0, testSize) }, p.snapshot, func() error { return p.write(block, block) })
		before := slices.Clone(p.now)
		var once sync.Once
		var written error
		p.f.Before(func(op memfs.Op) error {
			if op.Kind == "datasync" && op.Name == "2.map" { // the data is synced, and the bits are written
				once.Do(func() { written = p.write(5*block, block) })
			}
			return nil
		})
		require.NoError(t, p.c.Datasync())
		require.NoError(t, written)
		p.settle()
		for i, b := range before {
			p.sets[i/testSector].add(b)
		}
		if seed == 0 {
			require.NoError(t, p.again(killed, nil))
		}
		require.NoError(t, p.again(powerLost, rand.New(rand.NewPCG(seed, 1))))
	}
}
