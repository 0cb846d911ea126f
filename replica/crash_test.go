package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/membership"
	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys/memfs"
)

func yield() { runtime.Gosched() }

const (
	crashDir   = "/disk/replicas/r"
	crashSize  = 32 * mib // 8 regions
	crashSeeds = 12       // ways to lose what was not synced, for each step
)

// writtenBlocks are the offsets that life writes.
var writtenBlocks = []int64{0, 512, 9 * mib, 30 * mib}

// acknowledged is what the replica has promised by the time of the crash.
type acknowledged struct {
	created    bool
	generation int64
	epoch      membership.Epoch
	rebuilding bool           // a rebuild was begun; rebuiltEpoch ends it
	flushed    map[int64]byte // block offset → content that a flush covered
	touched    map[int64]bool // regions that a change was begun in since they were last cleared
	settled    map[int64]byte // block offset → content when its region was last cleared
	removed    bool
}

// rebuiltEpoch is the first that lists the replica after its rebuild.
var rebuiltEpoch = membership.NewEpoch(2, 2, []string{"a", "b", "vol-r-1"})

func newAcknowledged() *acknowledged {
	return &acknowledged{flushed: map[int64]byte{}, touched: map[int64]bool{}, settled: map[int64]byte{}}
}

// life takes a replica through everything, and notes each promise when it is given. It ends at the first error.
func life(f *memfs.FS, a *acknowledged) error {
	ctx := context.Background()
	spec := testSpec("uid-1", crashSize)
	if err := Create(f, crashDir, spec); err != nil {
		return err
	}
	a.created = true
	for generation := int64(1); generation <= 2; generation++ {
		r, err := Open(f, crashDir, spec, Options{BootID: testBoot})
		if err != nil {
			return err
		}
		err = errors.Join(serve(ctx, r, generation, a), r.Close(ctx))
		if err != nil {
			return err
		}
	}
	a.removed = true // from here on it may be gone
	return Remove(f, crashDir, spec.UID)
}

func serve(ctx context.Context, r *Replica, generation int64, a *acknowledged) error {
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
	written := map[int64]byte{}
	for i, off := range writtenBlocks {
		stamp := byte(generation*16) + byte(i)
		a.touched[off/(4*mib)] = true
		delete(a.flushed, off) // may be old or new until the next flush
		if err := s.WriteAt(ctx, bytes.Repeat([]byte{stamp}, 512), off, i == 1); err != nil {
			return err
		}
		written[off] = stamp
		if i == 1 {
			a.flushed[off] = stamp
		}
	}
	a.touched[5] = true
	if err := s.Zero(ctx, 20*mib, 1024, nbd.ZeroFUA); err != nil {
		return err
	}
	if err := s.Flush(ctx); err != nil {
		return err
	}
	for off, stamp := range written {
		a.flushed[off] = stamp
	}
	if a.rebuilding {
		if err := s.recordEpoch(rebuiltEpoch); err != nil {
			return err
		}
		a.epoch = rebuiltEpoch
	}
	for _, region := range []int64{0, 2} {
		delete(a.touched, region) // a mark may be there or not from here on
	}
	a.settled[0], a.settled[512], a.settled[9*mib] = written[0], written[512], written[9*mib]
	return r.clearIntents([]int64{0, 2})
}

// After a crash at any step, with any part of what was not synced lost, the replica opens and has kept all its promises.
func TestACrashAtAnyStepKeepsEveryPromise(t *testing.T) {
	f := memfs.New()
	f.MkdirAll("/disk/replicas")
	must(t, life(f, newAcknowledged()))
	steps := f.Steps()
	if steps < 60 {
		t.Fatalf("only %d steps: the life is not what it was", steps)
	}
	for at := 1; at <= steps; at++ {
		for seed := range uint64(crashSeeds) {
			name := fmt.Sprintf("step %d, seed %d", at, seed)
			f := memfs.New()
			f.MkdirAll("/disk/replicas")
			a := newAcknowledged()
			f.Before(func(op memfs.Op) error {
				if op.N == at {
					return memfs.ErrCrashed
				}
				return nil
			})
			if err := life(f, a); !errors.Is(err, memfs.ErrCrashed) {
				t.Fatalf("%s: %v", name, err)
			}
			f.Crash(rand.New(rand.NewPCG(uint64(at), seed)))
			if err := checkPromises(f, a); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := checkGoesOn(f, a); err != nil {
				t.Fatalf("%s: afterwards: %v", name, err)
			}
		}
	}
}

func checkPromises(f *memfs.FS, a *acknowledged) error {
	ctx := context.Background()
	r, err := Open(f, crashDir, testSpec("uid-1", crashSize), Options{BootID: otherBoot})
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
	if marked := r.intents.marked(); r.meta.Clean && len(marked) > 0 {
		return fmt.Errorf("clean with marks %v", marked)
	}
	for region := range a.touched {
		if slices.Contains(r.intents.marked(), region) {
			continue
		}
		for _, off := range writtenBlocks { // no mark is right only if nothing has changed since it was cleared
			if err := checkBlock(r, off, a.settled[off]); off/(4*mib) == region && err != nil {
				return fmt.Errorf("region %d changed without a mark: %w", region, err)
			}
		}
	}
	for off, want := range a.flushed {
		if err := checkBlock(r, off, want); err != nil {
			return fmt.Errorf("what was flushed is lost: %w", err)
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

// checkGoesOn: whatever was interrupted can be done again, and a removal leaves nothing.
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
