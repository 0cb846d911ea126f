package chain

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// Users write and read while snapshots are taken, deleted and merged. Each user has its own blocks, because the engine
// allows one change of a block at a time.
func TestUsersDoNotNoticeMerges(t *testing.T) {
	f := memfs.New()
	f.MkdirAll(testDir)
	d, err := f.OpenDir(testDir)
	require.NoError(t, err)
	useConcurrently(t, d, 60)
}

// The same on a real file system.
func TestUsersDoNotNoticeMergesOnARealDisk(t *testing.T) {
	d, err := fsys.Host{}.OpenDir(t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	useConcurrently(t, d, 20)
}

func useConcurrently(t *testing.T, d fsys.Dir, rounds int) {
	t.Helper()
	const users, each = 4, 40
	data, err := d.OpenFile(lowestName, fsys.CreateNew)
	require.NoError(t, err)
	require.NoError(t, errors.Join(data.Truncate(users*each*block), data.Sync(), data.Close(), Create(d, testUID)))
	c, err := Open(d, Options{UID: testUID, BootID: "boot-1", SameSuperblock: true, Cache: NewCache(mapPageBytes), recentEntries: 32, indexLayers: 1})
	require.NoError(t, err)

	// gate is the engine's gate: users hold it for a change.
	var gate sync.RWMutex
	var group sync.WaitGroup
	var over atomic.Bool
	contents := make([][]byte, users)
	for u := range users {
		contents[u] = make([]byte, each*block)
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(u), 1))
			for !over.Load() {
				if err := useOnce(c, &gate, rng, int64(u)*each*block, contents[u]); err != nil {
					t.Errorf("user %d: %v", u, err)
					return
				}
			}
		})
	}
	err = snapshotsAndMerges(c, &gate, rounds, contents)
	over.Store(true)
	group.Wait()
	require.NoError(t, err)
	require.NoError(t, c.Datasync())
	require.NoError(t, c.Close())

	c, err = Open(d, Options{UID: testUID, BootID: "boot-2"})
	require.NoError(t, err)
	for u := range users {
		got := make([]byte, each*block)
		require.NoError(t, c.ReadAt(got, int64(u)*each*block))
		require.True(t, slices.Equal(contents[u], got), "user %d after the end", u)
	}
	require.NoError(t, c.Close())
}

// useOnce does one change and compares what it reads.
func useOnce(c *Chain, gate *sync.RWMutex, rng *rand.Rand, base int64, content []byte) error {
	off := rng.Int64N(int64(len(content))/testSector) * testSector
	length := min(int64(len(content))-off, (1+rng.Int64N(20))*testSector)
	gate.RLock()
	err := func() error {
		if rng.IntN(5) == 0 {
			clear(content[off : off+length])
			return c.Punch(base+off, length)
		}
		stamp := byte(1 + rng.IntN(255))
		for i := off; i < off+length; i++ {
			content[i] = stamp
		}
		return c.WriteAt(content[off:off+length], base+off)
	}()
	gate.RUnlock()
	if err != nil {
		return err
	}
	if rng.IntN(8) == 0 {
		if err := c.Datasync(); err != nil {
			return err
		}
	}
	off = rng.Int64N(int64(len(content))/block) * block
	got := make([]byte, min(int64(len(content))-off, 8*block))
	if err := c.ReadAt(got, base+off); err != nil {
		return err
	}
	if !slices.Equal(got, content[off:off+int64(len(got))]) {
		return errors.New("it reads something else than it wrote")
	}
	return nil
}

// snapshotsAndMerges takes a snapshot in each round, and deletes an older one. It compares each view with the content
// at its point, before and after the merges.
func snapshotsAndMerges(c *Chain, gate *sync.RWMutex, rounds int, contents [][]byte) error {
	line := layers.Line{}
	copies := map[layers.Point][]byte{}
	for round := range rounds {
		next, p, err := line.Intend(uint64(round+1), "")
		if err != nil {
			return err
		}
		line = next
		if err := c.Prepare(p, layers.MostFiles); err != nil {
			return err
		}
		gate.Lock()
		err = c.Switch(p)
		copies[p] = slices.Concat(contents...)
		gate.Unlock()
		if err := errors.Join(err, c.Seal(p)); err != nil {
			return err
		}
		if line, err = line.Ready(p); err != nil {
			return err
		}
		if len(copies) > 3 {
			gone := line.Points[round%3].Point
			if line, err = line.Delete(gone); err != nil {
				return err
			}
			delete(copies, gone)
			if err := c.Join(gone, line, nil); err != nil {
				return err
			}
			if line, err = line.Forget(gone); err != nil {
				return err
			}
		}
		for more := true; more; {
			if more, _, err = c.Merge(context.Background()); err != nil {
				return err
			}
			if err := compareViews(c, copies); err != nil {
				return err
			}
		}
	}
	return nil
}

func compareViews(c *Chain, copies map[layers.Point][]byte) error {
	for p, want := range copies {
		v, err := c.View(p)
		if err != nil {
			return err
		}
		got := make([]byte, len(want))
		if err := errors.Join(v.ReadAt(got, 0), v.Close()); err != nil {
			return err
		}
		if !slices.Equal(want, got) {
			return errors.New("the view at a point has changed")
		}
	}
	return nil
}
