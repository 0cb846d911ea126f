package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

func yield() { runtime.Gosched() }

const (
	crashDir  = "/disk/replicas/r"
	crashSize = 32 * mib // 8 regions
)

// worlds are the possible states at the start of a life, after the creation.
var worlds = map[string]func(f *memfs.FS) error{
	"with space":                      func(*memfs.FS) error { return nil },
	"on a full disk":                  takeAllSpace,
	"as the first release left it":    asFirstRelease,
	"where names are never exchanged": func(f *memfs.FS) error { f.RefuseExchange(); return nil },
}

// seedsIn returns in how many ways unsynced data is lost, for each step.
func seedsIn(world string) uint64 {
	if world == "with space" {
		return 12
	}
	return 3 // most of the steps are the same
}

// takeAllSpace leaves space only for the replica's data blocks.
func takeAllSpace(f *memfs.FS) error {
	d, err := f.OpenDir(crashDir)
	if err != nil {
		return err
	}
	data, err := d.OpenFile(dataName, fsys.ReadWrite)
	if err != nil {
		return err
	}
	for _, off := range writtenBlocks {
		if err := data.WriteAt(make([]byte, 512), off); err != nil {
			return err
		}
	}
	if err := errors.Join(data.Sync(), d.Close()); err != nil {
		return err
	}
	f.Fill()
	return nil
}

// asFirstRelease replaces the metadata as the first release did: without blanks and with a new file, so that no spare
// remains.
func asFirstRelease(f *memfs.FS) error {
	d, err := f.OpenDir(crashDir)
	if err != nil {
		return err
	}
	m, err := readMeta(d)
	if err != nil {
		return err
	}
	if err := replaceAsFirstRelease(d, m); err != nil {
		return err
	}
	return d.Close()
}

func replaceAsFirstRelease(d fsys.Dir, m Meta) error {
	b, err := m.encode()
	if err != nil {
		return err
	}
	payload := bytes.TrimRight(b[metaHeaderBytes:len(b)-4], " ")
	b = append(b[:metaHeaderBytes:metaHeaderBytes], payload...)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if err := d.Unlink(metaTempName); err != nil && !errors.Is(err, syscall.ENOENT) {
		return err
	}
	if err := fsys.WriteNew(d, metaTempName, b); err != nil {
		return err
	}
	if err := d.Rename(metaTempName, metaName); err != nil {
		return err
	}
	return d.Sync()
}

// writtenBlocks are the offsets that life writes to.
var writtenBlocks = []int64{0, 512, 9 * mib, 30 * mib}

// acknowledged records the promises that the replica has given before the crash.
type acknowledged struct {
	boot       string // of the current opening
	created    bool
	generation int64
	epoch      membership.Epoch
	rebuilding bool           // a rebuild was started; rebuiltEpoch ends it
	written    map[int64]byte // block offset → content of the last change that was started
	flushed    map[int64]byte // block offset → content that a flush covered
	touched    map[int64]bool // regions in which a change was started since they were last cleared
	settled    map[int64]byte // block offset → content when its region was last cleared
	clean      bool           // closed in order, and no engine was admitted since
	removed    bool
}

// rebuiltEpoch is the first epoch that lists the replica after its rebuild.
var rebuiltEpoch = membership.NewEpoch(2, 2, []string{"a", "b", "vol-r-1"})

func newAcknowledged() *acknowledged {
	return &acknowledged{written: map[int64]byte{}, flushed: map[int64]byte{}, touched: map[int64]bool{}, settled: map[int64]byte{}}
}

// write writes a block. Until the next flush it may be old or new.
func (a *acknowledged) write(s *Session, off int64, stamp byte, fua bool) error {
	a.touched[off/(4*mib)], a.written[off] = true, stamp
	delete(a.flushed, off)
	if err := s.WriteAt(context.Background(), bytes.Repeat([]byte{stamp}, 512), off, fua); err != nil {
		return err
	}
	if fua {
		a.flushed[off] = stamp
	}
	return nil
}

// clear clears marks. From then on a mark may be present or not.
func (a *acknowledged) clear(r *Replica, regions ...int64) error {
	for _, region := range regions {
		delete(a.touched, region)
	}
	for off, stamp := range a.written {
		if slices.Contains(regions, off/(4*mib)) {
			a.settled[off] = stamp
		}
	}
	return r.clearIntents(regions)
}

// life takes a replica through all operations, and records each promise when it is given. It stops at the first error.
func life(f *memfs.FS, world string, a *acknowledged) error {
	spec := testSpec("uid-1", crashSize)
	if err := Create(f, crashDir, spec); err != nil {
		return err
	}
	a.created, a.clean = true, true
	if err := worlds[world](f); err != nil {
		return err
	}
	for _, chapter := range []struct {
		boot string
		use  func(r *Replica, a *acknowledged) error
	}{
		{testBoot, func(r *Replica, a *acknowledged) error { return serve(r, 1, a) }},  // closed with marks
		{otherBoot, func(r *Replica, a *acknowledged) error { return serve(r, 2, a) }}, // closed in order
		{otherBoot, fenceTwice},
	} {
		a.boot = chapter.boot
		r, err := Open(f, crashDir, spec, Options{BootID: a.boot})
		if err != nil {
			return err
		}
		if err := errors.Join(chapter.use(r, a), r.Close(context.Background())); err != nil {
			return err
		}
		maps.Copy(a.flushed, a.written)
		a.clean = len(a.touched) == 0
	}
	a.removed = true // from here on it may no longer exist
	return Remove(f, crashDir, spec.UID)
}

func serve(r *Replica, generation int64, a *acknowledged) error {
	ctx := context.Background()
	a.clean = false
	s, err := r.Admit(ctx, generation, fmt.Sprint("s", generation))
	if err != nil {
		return err
	}
	defer s.Close()
	a.generation = generation
	e := membership.NewEpoch(generation, 1, []string{"a", "b"})
	if err := s.recordEpoch(e); err != nil {
		return err
	}
	a.epoch = e
	if generation == 2 {
		if err := s.beginRebuild(); err != nil {
			return err
		}
		a.rebuilding = true
	}
	for i, off := range writtenBlocks {
		if err := a.write(s, off, byte(generation*16)+byte(i), i == 1); err != nil {
			return err
		}
	}
	a.touched[5] = true
	if err := s.Zero(ctx, 20*mib, 1024, nbd.ZeroFUA); err != nil {
		return err
	}
	if err := s.Flush(ctx); err != nil {
		return err
	}
	maps.Copy(a.flushed, a.written)
	if generation == 1 {
		if err := a.clear(r, 0, 2); err != nil {
			return err
		}
		return a.write(s, 9*mib, 0x18, false) // the close must make it durable
	}
	if err := s.recordEpoch(rebuiltEpoch); err != nil {
		return err
	}
	a.epoch = rebuiltEpoch
	return a.clear(r, 0, 2, 5, 7)
}

// fenceTwice shuts engines out: first of a replica without an engine, then of a replica with an engine inside.
func fenceTwice(r *Replica, a *acknowledged) error {
	ctx := context.Background()
	if err := r.Fence(ctx, 3); err != nil {
		return err
	}
	a.generation, a.clean = 3, false
	s, err := r.Admit(ctx, 4, "s4")
	if err != nil {
		return err
	}
	defer s.Close()
	a.generation = 4
	if err := a.write(s, 0, 0x40, false); err != nil {
		return err
	}
	if err := r.Fence(ctx, 5); err != nil {
		return err
	}
	a.generation = 5
	return nil
}

// stopAt runs life up to a step at which the machine or the process stops.
func stopAt(t *testing.T, world string, at int) (*memfs.FS, *acknowledged) {
	t.Helper()
	f := memfs.New()
	f.MkdirAll("/disk/replicas")
	f.Before(func(op memfs.Op) error {
		if op.N == at {
			return memfs.ErrCrashed
		}
		return nil
	})
	a := newAcknowledged()
	require.ErrorIs(t, life(f, world, a), memfs.ErrCrashed, "step %d", at)
	return f, a
}

// atAnyStep stops a life at each step and runs then. Afterwards it cuts the power in several ways and checks the
// promises.
func atAnyStep(t *testing.T, then func(f *memfs.FS, a *acknowledged) error) {
	t.Helper()
	for world := range worlds {
		t.Run(world, func(t *testing.T) {
			f := memfs.New()
			f.MkdirAll("/disk/replicas")
			require.NoError(t, life(f, world, newAcknowledged()))
			steps := f.Steps()
			require.GreaterOrEqual(t, steps, 100, "the life is not what it was")
			for at := 1; at <= steps; at++ {
				atStep(t, world, at, then)
			}
		})
	}
}

func atStep(t *testing.T, world string, at int, then func(f *memfs.FS, a *acknowledged) error) {
	t.Helper()
	for seed := range seedsIn(world) {
		name := fmt.Sprintf("step %d, seed %d", at, seed)
		f, a := stopAt(t, world, at)
		require.NoError(t, then(f, a), name)
		f.Crash(rand.New(rand.NewPCG(uint64(at), seed)))
		require.NoError(t, checkPromises(f, a), name)
		require.NoError(t, checkGoesOn(f, a), name)
	}
}

// After a crash at any step, with any part of the unsynced data lost, the replica opens and has kept all its promises.
func TestACrashAtAnyStepKeepsEveryPromise(t *testing.T) {
	atAnyStep(t, func(*memfs.FS, *acknowledged) error { return nil })
}

// A process that is killed at any step leaves the next process the data in the kernel, durable or not. The data that
// the next process relies on must also survive a loss of power.
func TestWritesOfAKilledProcessAreSyncedBeforeUse(t *testing.T) {
	atAnyStep(t, func(f *memfs.FS, a *acknowledged) error {
		f.Kill()
		r, err := Open(f, crashDir, testSpec("uid-1", crashSize), Options{BootID: a.boot})
		switch {
		case ReasonOf(err) == ReplicaMissing && (!a.created || a.removed):
			return nil
		case err != nil:
			return err
		}
		return relyOn(r, a)
	})
}

// relyOn requests everything that is granted without a write because it is already recorded. These grants are promises
// too.
func relyOn(r *Replica, a *acknowledged) error {
	ctx := context.Background()
	found := r.meta
	a.created, a.removed = true, false
	if found.Generation == 0 {
		return nil
	}
	if err := r.Fence(ctx, found.Generation); err != nil {
		return err
	}
	a.generation = found.Generation
	if found.Session == fenceSession {
		return nil
	}
	a.clean = false
	s, err := r.Admit(ctx, found.Generation, found.Session)
	if err != nil {
		return err
	}
	if !found.Epoch.IsZero() && !(found.Rebuilding && found.Epoch.Has(r.name)) {
		if err := s.recordEpoch(found.Epoch); err != nil {
			return err
		}
		a.epoch = found.Epoch
	}
	if found.Rebuilding {
		if err := s.beginRebuild(); err != nil {
			return err
		}
		a.rebuilding = true
	}
	marked := r.intents.marked()
	for _, off := range writtenBlocks {
		if !slices.Contains(marked, off/(4*mib)) {
			continue
		}
		if err := a.write(s, off, 0xee, true); err != nil {
			return err
		}
	}
	return nil
}

func checkPromises(f *memfs.FS, a *acknowledged) error {
	ctx := context.Background()
	r, err := Open(f, crashDir, testSpec("uid-1", crashSize), Options{BootID: "boot-3"})
	switch {
	case ReasonOf(err) == ReplicaMissing && (!a.created || a.removed):
		return nil
	case err != nil:
		return err
	}
	defer r.Close(ctx)
	if got := r.State(); got.Generation < a.generation || got.Epoch.Compare(a.epoch) < 0 {
		return fmt.Errorf("generation %d, epoch %s, but %d and %s were promised", got.Generation, got.Epoch, a.generation, a.epoch)
	}
	if got := r.State(); a.rebuilding && got.Rebuilding == got.Epoch.Equal(rebuiltEpoch) {
		return fmt.Errorf("rebuilding %t with epoch %s", got.Rebuilding, got.Epoch)
	}
	marked := r.intents.marked()
	if r.meta.Clean {
		if len(marked) > 0 {
			return fmt.Errorf("clean with marks %v", marked)
		}
		if err := checkBlocks(r, a.written); err != nil {
			return fmt.Errorf("clean, but not all is there: %w", err)
		}
	} else if a.clean {
		return errors.New("closed in order, but not clean")
	}
	for region := range a.touched {
		if slices.Contains(marked, region) {
			continue
		}
		for _, off := range writtenBlocks { // a missing mark is right only if nothing has changed since it was cleared
			if err := checkBlock(r, off, a.settled[off]); off/(4*mib) == region && err != nil {
				return fmt.Errorf("region %d changed without a mark: %w", region, err)
			}
		}
	}
	if err := checkBlocks(r, a.flushed); err != nil {
		return fmt.Errorf("what was flushed is lost: %w", err)
	}
	return nil
}

func checkBlocks(r *Replica, want map[int64]byte) error {
	for off, stamp := range want {
		if err := checkBlock(r, off, stamp); err != nil {
			return err
		}
	}
	return nil
}

func checkBlock(r *Replica, off int64, want byte) error {
	got := make([]byte, 512)
	if err := r.data.ReadAt(got, off); err != nil {
		return err
	}
	if !bytes.Equal(got, bytes.Repeat([]byte{want}, 512)) {
		return fmt.Errorf("block at %d begins with %d, not %d", off, got[0], want)
	}
	return nil
}

// checkGoesOn checks that every interrupted operation can be repeated, and that a removal leaves nothing.
func checkGoesOn(f *memfs.FS, a *acknowledged) error {
	spec := testSpec("uid-1", crashSize)
	if !a.created {
		if err := Create(f, crashDir, spec); err != nil {
			return err
		}
	}
	if err := Remove(f, crashDir, spec.UID); err != nil {
		return err
	}
	d, err := f.OpenDir("/disk/replicas")
	if err != nil {
		return err
	}
	if names, err := d.Names(); err != nil || len(names) > 0 {
		return fmt.Errorf("left after the removal: %v, %w", names, err)
	}
	return nil
}
