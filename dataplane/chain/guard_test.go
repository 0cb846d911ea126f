package chain

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// Another call on the data has received the report of lost data. The flush still fails.
func TestAFlushFailsWhenAnotherCallReceivedTheReport(t *testing.T) {
	p := mergeable(t)
	do(t, func() error { return p.write(3*block, block) })
	p.f.LoseUnsynced("2.img")
	require.ErrorIs(t, p.c.state.Load().active().data.WriteBack(), syscall.EIO)
	require.ErrorIs(t, p.c.Datasync(), syscall.EIO)
	require.Error(t, p.c.Err())
}

// A user's write fails for lack of space in a block that a merge has just copied. The copy must stay.
func TestAFailedWriteLeavesACopiedBlock(t *testing.T) {
	ctx := context.Background()
	for name, after := range map[string]layers.MergeStep{
		"copied": layers.CopyUp, "its bit is written": layers.SetUpperBits, "its bit is durable": layers.SyncUpperMap,
	} {
		t.Run(name, func(t *testing.T) {
			p := mergeable(t)
			m := mergeUp(t, p)
			moved := overlay{}
			for _, step := range layers.PieceSteps(layers.Up) {
				require.NoError(t, m.step(ctx, step, 0, m.blocks(), moved))
				if step != after {
					continue
				}
				p.f.Before(func(op memfs.Op) error {
					if op.Kind == "write" && op.Name == "2.img" {
						return syscall.ENOSPC
					}
					return nil
				})
				require.NoError(t, p.write(0, block))
				p.f.Before(nil)
			}
			m.forgetCopied()
			do(t, p.check, p.flush, func() error { return p.again(powerLost, rand.New(rand.NewPCG(1, 1))) })
		})
	}
}

// waits reports whether do waits for a lock that the caller holds for reading. It returns a function that waits for do
// after the caller has released the lock.
func waits(lock *sync.RWMutex, do func()) (waiting bool, wait func()) {
	var done atomic.Bool
	over := make(chan struct{})
	go func() {
		do()
		done.Store(true)
		close(over)
	}()
	for !done.Load() && lock.TryRLock() { // until a writer waits for the lock
		lock.RUnlock()
		runtime.Gosched()
	}
	return !done.Load(), func() { <-over }
}

func TestASwitchWaitsForChangesUnderWay(t *testing.T) {
	p := start(t)
	do(t, p.prepare)
	ch, err := p.c.begin(1)
	require.NoError(t, err)
	waiting, wait := waits(&p.c.changes, func() { assert.NoError(t, p.c.Switch(p.attempt)) })
	ch.end()
	wait()
	assert.True(t, waiting)
}

func TestAFileIsRemovedAfterTheReadsThatMayUseIt(t *testing.T) {
	p := start(t)
	do(t, p.snapshot, p.snapshot, p.snapshot, func() error { return p.remove(1) })
	s := p.c.state.Load()
	next, err := s.list.chain.RemoveFile(2)
	require.NoError(t, err)
	p.c.reads.RLock() // a read
	waiting, wait := waits(&p.c.reads, func() {
		p.c.lane.Lock()
		defer p.c.lane.Unlock()
		assert.NoError(t, p.c.commit(next, false))
	})
	_, err = p.dir.Lookup("2.img")
	p.c.reads.RUnlock()
	wait()
	require.NoError(t, err)
	assert.True(t, waiting)
	_, err = p.dir.Lookup("2.img")
	require.ErrorIs(t, err, syscall.ENOENT)
}

// On a file system that cannot exchange names, the list is renamed.
func TestALifeWithoutExchangedNames(t *testing.T) {
	ended := false
	for at := 1; !ended; at += 11 {
		p := start(t)
		p.f.RefuseExchange()
		first := p.f.Steps()
		p.f.Before(func(op memfs.Op) error {
			assert.NotEqual(t, "exchange", op.Kind)
			if op.N == first+at {
				return memfs.ErrCrashed
			}
			return nil
		})
		err := life(p)
		if ended = err == nil && p.f.Steps() < first+at; ended {
			require.NoError(t, p.check())
			continue
		}
		require.NoError(t, lives(p, powerLost, rand.New(rand.NewPCG(uint64(at), 1))), "step %d: %v", at, err)
	}
}

// The process records in recent that a sync has failed. The kernel reports it to no later opening.
func TestAnOpeningKnowsAFailedSyncFromRecent(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, 9*block) }, p.snapshot, func() error { return p.write(block, block) })
	p.f.FailSync("2.img", 1)
	require.ErrorIs(t, p.c.Datasync(), syscall.EIO)
	require.NoError(t, p.again(failed, nil))
	assert.Equal(t, layers.Trust{DropCache: true, Distrust: true}, p.c.Trust())
}

// A part of a file stays cached, and the disk has other content there. The opening writes it to the disk as it reads.
func TestAnOpeningWritesWhatStaysCached(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, 9*block) }, p.snapshot, func() error { return p.write(block, block) }, p.flush,
		func() error { return p.write(block, block) })
	want := slices.Clone(p.now)
	p.f.LoseUnsynced("2.img")
	p.f.KeepCached("2.img", fsys.Range{Off: block, Length: block})
	require.NoError(t, p.again(failed, nil))
	require.Equal(t, want, p.now, "the block is still in the cache")
	require.NoError(t, p.again(powerLost, rand.New(rand.NewPCG(1, 1))))
	require.Equal(t, want, p.now)
}

// A view that closes waits for its reads. A switch, which happens while no user is served, must not wait for them.
func TestAViewThatClosesDoesNotDelayASwitch(t *testing.T) {
	p := start(t)
	do(t, p.snapshot)
	v, err := p.c.View(p.ready()[0])
	require.NoError(t, err)
	do(t, p.prepare)
	v.beginRead()
	waiting, wait := waits(&v.reading, func() { assert.NoError(t, v.Close()) })
	free := p.c.lane.TryLock()
	if free {
		p.c.lane.Unlock()
	}
	v.endRead()
	wait()
	assert.True(t, waiting)
	assert.True(t, free)
	require.Empty(t, p.c.views)
	do(t, p.doSwitch, p.seal)
}

// A write hangs in the disk, and so does a read of another view. A view that closes waits for neither, and stops no
// other read.
func TestAViewThatClosesWaitsOnlyForItsOwnReads(t *testing.T) {
	p := start(t)
	do(t, p.snapshot)
	v, err := p.c.View(p.ready()[0])
	require.NoError(t, err)
	other, err := p.c.View(p.ready()[0])
	require.NoError(t, err)
	ch, err := p.c.begin(1)
	require.NoError(t, err)
	other.beginRead()
	waiting, wait := waits(&p.c.reads, func() { assert.NoError(t, v.Close()) })
	free := p.c.reads.TryRLock()
	if free {
		p.c.reads.RUnlock()
	}
	other.endRead()
	ch.end()
	wait()
	assert.False(t, waiting)
	assert.True(t, free, "a read must not wait for the view")
	require.ErrorIs(t, v.ReadAt(make([]byte, 512), 0), ErrClosed)
	do(t, other.Close)
}
