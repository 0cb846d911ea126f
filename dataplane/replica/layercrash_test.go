package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// layerLife records the promises of a replica with snapshots. The line is what the Engine object has.
type layerLife struct {
	*acknowledged
	r     *Replica
	s     *Session
	line  layers.Line
	nonce uint64
	snaps map[layers.Point]map[int64]byte // content of writtenBlocks at the sealed points
	size  int64                           // promised
	full  bool                            // the disk has no space
}

const grownSize = crashSize + 8*mib

func newLayerLife() *layerLife {
	return &layerLife{acknowledged: newAcknowledged(), snaps: map[layers.Point]map[int64]byte{}, size: crashSize}
}

func (l *layerLife) writeAll(stamp byte) func() error {
	return func() error {
		for i, off := range writtenBlocks {
			if err := l.write(l.s, off, stamp+byte(i), i == 1); err != nil {
				return err
			}
		}
		return nil
	}
}

func (l *layerLife) flush() error {
	if err := l.s.Flush(context.Background()); err != nil {
		return err
	}
	maps.Copy(l.flushed, l.written)
	return nil
}

// snapshot takes a snapshot, with a write between the preparation and the switch.
func (l *layerLife) snapshot() error {
	l.nonce++
	line, p, err := l.line.Intend(l.nonce, "")
	if err != nil {
		return err
	}
	l.line = line
	for _, step := range []func() error{
		func() error { return prepare(l.s, p) },
		func() error { return l.write(l.s, 9*mib, byte(100+l.nonce), false) },
		func() error { return control(l.s, points.OpSwitch, p, nil) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	content := maps.Clone(l.written)
	if err := l.write(l.s, 512, byte(110+l.nonce), false); err != nil {
		return err
	}
	if err := control(l.s, points.OpSeal, p, nil); err != nil {
		return err
	}
	maps.Copy(l.flushed, l.written)
	l.line, err = l.line.Ready(p)
	l.snaps[p] = content
	return err
}

// deleteFirst deletes the oldest snapshot, and merges as the goroutine of the replica does.
func (l *layerLife) deleteFirst() error {
	p := l.line.Points[0].Point
	line, err := l.line.Delete(p)
	if err != nil {
		return err
	}
	l.line = line
	delete(l.snaps, p)
	l.r.merger.line = points.Line{Line: line}
	l.r.merger.work()
	if l.r.State().Failure != nil {
		return l.r.State().Failure
	}
	if hasMerge(l.r.layers.Layers()) && l.r.layers.Layers().Border(p) >= 0 {
		return errMergeWaits
	}
	return nil
}

// revert returns to the newest snapshot. From the record of the object on, the volume has its content.
func (l *layerLife) revert() error {
	p := l.line.Points[len(l.line.Points)-1].Point
	line, err := l.line.Revert(p)
	if err != nil {
		return err
	}
	l.line = line
	l.returnTo(l.snaps[p])
	var got points.Followed
	if err := control(l.s, points.OpFollow, points.Follow{Line: line}, &got); err != nil {
		return err
	}
	if got.Short {
		return errors.New("the replica lacks the point of the revert")
	}
	return nil
}

func (l *layerLife) returnTo(content map[int64]byte) {
	l.written, l.flushed, l.settled = maps.Clone(content), maps.Clone(content), maps.Clone(content)
}

// stage rebuilds the replica with one stage and the head.
func (l *layerLife) stage() error {
	l.nonce++
	line, p, err := l.line.Intend(l.nonce, "")
	if err == nil {
		line, err = line.Ready(p)
	}
	if err != nil {
		return err
	}
	base := l.line.Points[len(l.line.Points)-1].Point
	for _, step := range []func() error{
		l.s.beginRebuild,
		func() error { l.rebuilding = true; return nil },
		func() error { return control(l.s, points.OpStartRebuild, points.StartRebuild{Base: base}, nil) },
		l.writeAll(0x60),
		func() error {
			l.line = line
			return control(l.s, points.OpSealStage, points.SealStage{Line: line, Point: p}, nil)
		},
		func() error {
			maps.Copy(l.flushed, l.written)
			l.snaps[p] = maps.Clone(l.written)
			return l.write(l.s, 0, 0x70, false)
		},
		func() error { return control(l.s, points.OpEndRebuild, points.EndRebuild{Line: line}, nil) },
		l.flush,
		func() error { return l.s.recordEpoch(stagedEpoch) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// stagedEpoch is the first epoch that lists the replica after its rebuild by stages.
var stagedEpoch = membership.NewEpoch(3, 2, []string{"a", "vol-r-1"})

// play takes a replica through all of it. It stops at the first error.
func (l *layerLife) play(f *memfs.FS) error {
	if err := Create(f, crashDir, testSpec("uid-1", crashSize)); err != nil {
		return err
	}
	l.created, l.clean = true, true
	for i, chapter := range [][]func() error{
		{ // ends with marks
			l.writeAll(0x10), l.flush, l.snapshot, l.writeAll(0x20),
			func() error { return l.clear(l.r, 1) },
			l.snapshot, l.writeAll(0x30), l.flush, l.deleteFirst,
			func() error { return l.write(l.s, 30*mib, 0x3f, false) },
		},
		{ // closed in order
			l.writeAll(0x40), l.snapshot,
			func() error {
				err := l.r.Grow(context.Background(), grownSize)
				if err == nil {
					l.size = grownSize
				}
				return err
			},
			l.writeAll(0x50), l.flush, l.revert, l.writeAll(0x54), l.flush,
			func() error { return l.clear(l.r, 0, 2, 7) },
		},
		{l.stage, func() error { return l.clear(l.r, 0, 2, 7) }},
	} {
		if err := l.chapter(f, int64(i+1), chapter); err != nil {
			return err
		}
	}
	l.removed = true
	return Remove(f, crashDir, "uid-1")
}

func (l *layerLife) chapter(f *memfs.FS, generation int64, steps []func() error) (err error) {
	ctx := context.Background()
	l.boot = fmt.Sprint("boot-", generation)
	if l.r, err = Open(f, crashDir, testSpec("uid-1", l.size), Options{BootID: l.boot}); err != nil {
		return err
	}
	closing := func() error { return l.r.Close(ctx) }
	l.clean = false
	if l.s, err = l.r.Admit(ctx, generation, fmt.Sprint("s", generation)); err != nil {
		return errors.Join(err, closing())
	}
	l.generation = generation
	err = control(l.s, points.OpState, struct{}{}, nil) // as each start of an engine with points
	if err == nil {
		err = l.s.recordEpoch(membership.NewEpoch(generation, 1, []string{"a"}))
	}
	if err != nil {
		return errors.Join(err, closing())
	}
	err = control(l.s, points.OpFollow, points.Follow{Line: l.line}, nil)
	for _, step := range steps {
		if err == nil {
			err = step()
		}
	}
	if err := errors.Join(err, l.s.Close(), closing()); err != nil {
		return err
	}
	maps.Copy(l.flushed, l.written)
	l.clean = len(l.touched) == 0
	return nil
}

// check opens the replica after a stop, follows the line as a start does, and compares it with the promises.
func (l *layerLife) check(f *memfs.FS) error {
	ctx := context.Background()
	r, err := Open(f, crashDir, testSpec("uid-1", grownSize), Options{BootID: "boot-9"})
	switch {
	case ReasonOf(err) == ReplicaMissing && (!l.created || l.removed):
		return nil
	case ReasonOf(err) == SizeMismatch:
		return err
	case err != nil:
		return err
	}
	defer r.Close(ctx)
	if got := r.State(); got.Generation < l.generation || got.SizeBytes < l.size || l.rebuilding && got.Rebuilding == got.Epoch.Equal(stagedEpoch) {
		return fmt.Errorf("%+v, but generation %d and %d bytes were promised", got, l.generation, l.size)
	}
	if r.meta.Layers == 0 && len(l.snaps) > 0 {
		return errors.New("it has format 1 and had a snapshot")
	}
	s, err := r.Admit(ctx, 9, "s9")
	if err != nil {
		return err
	}
	line := l.line
	for _, m := range line.Points {
		if m.State == layers.Intended { // the start gives it up
			if line, err = line.GiveUp(m.Point); err != nil {
				return err
			}
		}
	}
	marked := r.intents.marked()
	if err := control(s, points.OpFollow, points.Follow{Line: line}, nil); err != nil {
		if l.full && isNoSpace(err) {
			return nil // a revert needs a new file
		}
		return err
	}
	if err := checkBlocks(r, l.flushed); err != nil {
		return fmt.Errorf("what was flushed is lost: %w", err)
	}
	for region := range l.touched {
		known := false
		for _, m := range marked {
			known = known || m == region
		}
		for _, off := range writtenBlocks {
			if off/(4*mib) == region && !known {
				if err := checkBlock(r, off, l.settled[off]); err != nil {
					return fmt.Errorf("region %d changed without a mark: %w", region, err)
				}
			}
		}
	}
	if err := l.checkSnapshots(s); err != nil || l.full {
		return err
	}
	return goOn(s, line)
}

func (l *layerLife) checkSnapshots(s *Session) error {
	for p, want := range l.snaps {
		for off, stamp := range want {
			b, err := s.readView(context.Background(), points.ReadView{Point: p, Offset: off, Length: 512})
			if err != nil {
				return fmt.Errorf("snapshot %d: %w", p.Number, err)
			}
			if !bytes.Equal(b, bytes.Repeat([]byte{stamp}, 512)) {
				return fmt.Errorf("snapshot %d: the block at %d begins with %d, not %d", p.Number, off, b[0], stamp)
			}
		}
	}
	return nil
}

// goOn takes one more snapshot, and merges what is left.
func goOn(s *Session, line layers.Line) error {
	line, p, err := line.Intend(77, "")
	if err != nil {
		return err
	}
	if err := takeSnapshot(s, p); err != nil {
		return fmt.Errorf("take another snapshot: %w", err)
	}
	if line, err = line.Ready(p); err != nil {
		return err
	}
	s.replica.merger.line = points.Line{Line: line}
	if wait := s.replica.merger.work(); wait != layers.NoWait {
		return fmt.Errorf("a merge waits: %d", wait)
	}
	return s.replica.State().Failure
}

// A loss of power, or a kill and then a loss of power, at any step of a life with snapshots keeps every promise.
func TestAStopAtAnyStepOfALifeWithSnapshotsKeepsEveryPromise(t *testing.T) {
	f := memfs.New()
	f.MkdirAll("/disk/replicas")
	require.NoError(t, newLayerLife().play(f))
	steps := f.Steps()
	require.GreaterOrEqual(t, steps, 300, "the life is not what it was")
	stride := 1
	if testing.Short() || raceEnabled {
		stride = 23
	}
	for at := 1; at <= steps; at += stride {
		for _, killed := range []bool{false, true} {
			f, l := memfs.New(), newLayerLife()
			f.MkdirAll("/disk/replicas")
			f.Before(func(op memfs.Op) error {
				if op.N == at {
					return memfs.ErrCrashed
				}
				return nil
			})
			name := fmt.Sprintf("step %d of %d, killed %t", at, steps, killed)
			require.ErrorIs(t, l.play(f), memfs.ErrCrashed, name)
			if killed {
				f.Kill()
				r, err := Open(f, crashDir, testSpec("uid-1", grownSize), Options{BootID: l.boot})
				if err == nil {
					err = r.Close(context.Background())
				} else if ReasonOf(err) == ReplicaMissing {
					err = nil
				}
				require.NoError(t, err, name)
			}
			f.Crash(rand.New(rand.NewPCG(uint64(at), 5)))
			require.NoError(t, l.check(f), name)
			require.NoError(t, Remove(f, crashDir, "uid-1"), name)
		}
	}
}

// hasMerge reports whether a layer has several files.
func hasMerge(c layers.Chain) bool {
	for _, l := range c.Layers {
		if len(l.Files) > 1 {
			return true
		}
	}
	return false
}

// lives plays a life with a hook for each step, and calls then. The life may end early.
func lives(t *testing.T, hook func(f *memfs.FS, op memfs.Op), then func(f *memfs.FS, l *layerLife, err error) error) {
	t.Helper()
	f := memfs.New()
	f.MkdirAll("/disk/replicas")
	require.NoError(t, newLayerLife().play(f))
	steps, stride := f.Steps(), 1
	if testing.Short() || raceEnabled {
		stride = 23
	}
	for at := 1; at <= steps; at += stride {
		f, l := memfs.New(), newLayerLife()
		f.MkdirAll("/disk/replicas")
		f.Before(func(op memfs.Op) error {
			if op.N == at {
				hook(f, op)
			}
			return nil
		})
		err := l.play(f)
		f.Before(nil)
		require.NoError(t, then(f, l, err), "step %d of %d", at, steps)
	}
}

// After a sync that failed, and lost the data that it should have made durable, the replica has ended. What was durable
// before is there.
func TestAFailedSyncAtAnyStepOfALifeWithSnapshotsLosesNothingElse(t *testing.T) {
	failed := 0
	lives(t, func(f *memfs.FS, op memfs.Op) {
		if op.Kind == "datasync" || op.Kind == "sync" {
			f.LoseUnsynced(op.Name)
		}
	}, func(f *memfs.FS, l *layerLife, err error) error {
		if err == nil {
			return nil // no sync, or one without which the life continues
		}
		failed++
		f.Kill()
		return l.check(f)
	})
	if !testing.Short() && !raceEnabled { // they try few steps
		require.Greater(t, failed, 3)
	}
}

// When the disk is full from any step on, changes, snapshots and merges may fail, and no replica ends.
func TestAFullDiskAtAnyStepOfALifeWithSnapshotsEndsNoReplica(t *testing.T) {
	lives(t, func(f *memfs.FS, _ memfs.Op) { f.Fill() }, func(f *memfs.FS, l *layerLife, err error) error {
		if err != nil && !isNoSpace(err) && !errors.Is(err, errMergeWaits) {
			return err
		}
		if !l.created || l.removed {
			return nil
		}
		if l.r != nil && l.r.State().Failure != nil {
			return l.r.State().Failure
		}
		l.full = true
		f.Crash(rand.New(rand.NewPCG(1, 2)))
		return l.check(f)
	})
}

// errMergeWaits ends a life on a full disk.
var errMergeWaits = errors.New("the border is still there")
