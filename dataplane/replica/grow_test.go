package replica

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

func TestGrowWithAnAdmittedEngine(t *testing.T) {
	ctx := context.Background()
	top := t.TempDir()
	makeDisk(t, top, diskA)
	d := openDisk(t, fsys.Host{}, top, diskA)
	dir, spec := filepath.Join(top, "replicas/r"), testSpec("uid-1", 6*mib)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
	s := admit(t, r, 1, "s")
	old := bytes.Repeat([]byte{1}, 512)
	require.NoError(t, s.WriteAt(ctx, old, 6*mib-512, false))
	require.Error(t, s.WriteAt(ctx, old, 6*mib, false), "beyond the end")

	const size = 24 << 30 // the map gets another sector
	require.NoError(t, r.Grow(ctx, size))
	require.NoError(t, r.Grow(ctx, size), "again")
	require.NoError(t, r.Grow(ctx, 6*mib), "what it has more than")
	assert.Equal(t, int64(size), s.Size())
	assert.Equal(t, []int64{1}, r.intents.marked())
	got := make([]byte, 1024)
	require.NoError(t, s.ReadAt(ctx, got, 6*mib-512))
	assert.Equal(t, append(slices.Clone(old), make([]byte, 512)...), got)
	require.NoError(t, s.WriteAt(ctx, old, size-512, true))
	require.Equal(t, []int64{1, 6143}, r.intents.marked())
	require.NoError(t, r.clearIntents([]int64{1}))
	require.NoError(t, s.Close())

	lost, err := d.Check(r)
	require.NoError(t, err)
	require.Nil(t, lost, "its own new intent map is taken for a stranger's")
	require.NoError(t, r.Close(ctx))

	_, err = Open(fsys.Host{}, dir, spec, Options{})
	assert.Equal(t, SizeMismatch, ReasonOf(err), "it shrank")
	r = openReplica(t, fsys.Host{}, dir, testSpec("uid-1", size), testBoot)
	assert.Equal(t, []int64{6143}, r.intents.marked())
	require.NoError(t, r.data.ReadAt(got[:512], size-512))
	assert.Equal(t, old, got[:512])
}

// On a full disk, or with a size that the regions do not allow, the replica keeps its size and serves it.
func TestAReplicaThatCannotGrowServesItsSize(t *testing.T) {
	f := memfs.New()
	f.MkdirAll("/disk/replicas")
	require.NoError(t, Create(f, crashDir, testSpec("uid-1", crashSize)))
	f.Fill()
	r := openReplica(t, f, crashDir, testSpec("uid-1", 2*crashSize), testBoot)
	require.ErrorIs(t, r.State().GrowFailure, syscall.ENOSPC)
	require.NoError(t, r.State().Failure)
	require.Equal(t, int64(crashSize), r.State().SizeBytes)
	require.Zero(t, r.meta.GrowsTo, "an older release cannot open it any more")
	s := admit(t, r, 1, "s")
	require.NoError(t, s.Close())
	require.NoError(t, r.Close(context.Background()))

	f = memfs.New()
	f.MkdirAll("/disk/replicas")
	require.NoError(t, Create(f, crashDir, testSpec("uid-1", crashSize)))
	r = openReplica(t, f, crashDir, testSpec("uid-1", 2<<40), testBoot)
	require.Error(t, r.State().GrowFailure)
	require.Equal(t, int64(crashSize), r.Size())
	require.NoError(t, r.Grow(context.Background(), 2*crashSize))
	require.NoError(t, r.State().GrowFailure)
}

// growth records the promises of a replica that grows.
type growth struct {
	*acknowledged
	size, asked int64
}

// growLife grows a replica while an engine is inside, and at an opening. It stops at the first error.
func growLife(f *memfs.FS, g *growth) error {
	ctx := context.Background()
	open := func(boot string) (*Replica, error) {
		g.boot = boot
		r, err := Open(f, crashDir, testSpec("uid-1", g.asked), Options{BootID: boot})
		if err == nil {
			g.size = g.asked
		}
		return r, err
	}
	write := func(s *Session, stamp byte, blocks ...int64) error {
		for i, off := range blocks {
			if err := g.write(s, off, stamp+byte(i), i == 0); err != nil {
				return err
			}
		}
		return nil
	}
	g.asked = crashSize
	if err := Create(f, crashDir, testSpec("uid-1", crashSize)); err != nil {
		return err
	}
	g.created, g.size = true, crashSize
	r, err := open(testBoot)
	if err != nil {
		return err
	}
	s, err := r.Admit(ctx, 1, "s")
	if err != nil {
		return err
	}
	if err := write(s, 1, writtenBlocks...); err != nil {
		return err
	}
	g.asked = 2 * crashSize
	if err := r.Grow(ctx, g.asked); err != nil {
		return err
	}
	g.size = g.asked
	if err := write(s, 16, 2*crashSize-512, 0); err != nil {
		return err
	}
	if err := s.Flush(ctx); err != nil {
		return err
	}
	maps.Copy(g.flushed, g.written)
	if err := s.Close(); err != nil {
		return err
	}
	if err := r.Close(ctx); err != nil {
		return err
	}
	g.asked = 3 * crashSize
	if r, err = open(otherBoot); err != nil {
		return err
	}
	if s, err = r.Admit(ctx, 2, "s"); err != nil {
		return err
	}
	if err := write(s, 32, 3*crashSize-512, 512); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	return r.Close(ctx)
}

// check opens the replica after a crash with the requested size, and checks the promises.
func (g *growth) check(f *memfs.FS) error {
	// For a tool that only reads, nothing needs to be finished.
	spec, err := Inspect(f, crashDir)
	switch {
	case ReasonOf(err) == ReplicaMissing && !g.created:
		return nil
	case err != nil:
		return err
	case spec.SizeBytes < g.size:
		return fmt.Errorf("it has %d bytes, and %d were promised", spec.SizeBytes, g.size)
	}
	ro, err := OpenCopy(f, crashDir, spec, Options{})
	if err != nil {
		return fmt.Errorf("for reading alone: %w", err)
	}
	if err := ro.Close(context.Background()); err != nil {
		return err
	}
	r, err := Open(f, crashDir, testSpec("uid-1", g.asked), Options{BootID: "boot-3"})
	if err != nil {
		return err
	}
	defer r.Close(context.Background())
	marked := r.intents.marked()
	for off := range g.written {
		if slices.Contains(marked, off/(4*mib)) {
			continue
		}
		if err := checkBlock(r, off, 0); err != nil { // a missing mark is right only if nothing has changed
			return fmt.Errorf("changed, and not marked: %w", err)
		}
	}
	switch {
	case r.Size() != g.asked || r.meta.GrowsTo != 0 || r.meta.SizeBytes != g.asked:
		return fmt.Errorf("it has %d bytes, grows to %d, and %d were asked for", r.Size(), r.meta.GrowsTo, g.asked)
	case r.intents.regions() != regionCount(g.asked, r.regionBytes):
		return fmt.Errorf("a map for %d regions", r.intents.regions())
	}
	return checkBlocks(r, g.flushed)
}

// After a crash at any step of a growth, with any part of the unsynced data lost, the replica opens with the old or the
// new size. The opening then grows it. The same holds if the process was killed and another process has continued
// before the loss of power.
func TestACrashWhileAReplicaGrows(t *testing.T) {
	f := memfs.New()
	f.MkdirAll("/disk/replicas")
	require.NoError(t, growLife(f, &growth{acknowledged: newAcknowledged()}))
	for at := 1; at <= f.Steps(); at++ {
		for seed := range uint64(8) {
			f := memfs.New()
			f.MkdirAll("/disk/replicas")
			f.Before(func(op memfs.Op) error {
				if op.N == at {
					return memfs.ErrCrashed
				}
				return nil
			})
			g := &growth{acknowledged: newAcknowledged()}
			name := fmt.Sprintf("step %d, seed %d", at, seed)
			if err := growLife(f, g); err != nil {
				require.ErrorIs(t, err, memfs.ErrCrashed, name)
			}
			if seed%2 == 1 {
				f.Kill()
				if r, err := Open(f, crashDir, testSpec("uid-1", g.asked), Options{BootID: g.boot}); err == nil {
					g.created, g.size = true, g.asked
					_ = r // killed as well
				}
			}
			f.Crash(rand.New(rand.NewPCG(uint64(at), seed)))
			require.NoError(t, g.check(f), name)
			if g.created {
				require.NoError(t, Remove(f, crashDir, "uid-1"), name)
			}
		}
	}
}
