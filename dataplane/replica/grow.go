package replica

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// A replica grows while it is open, with or without an engine inside:
//
//  1. metadata: growsTo is the new size. From here on, data and map may have any length from the old size's to the new
//     size's
//  2. the data is lengthened, by a hole, and synced
//  3. the intent map of the new size, with the marks of the old map, is written next to the old map, synced, and
//     renamed over it
//  4. metadata: the new size, and no growsTo: the commit point
//
// Before step 4 the replica has the old size, whatever length its files have. Nothing was ever written beyond it, so
// that part reads as zeroes later. A crash leaves either the old or the new size. The next opening, which requests the
// new size, starts again at step 1. If step 2 or 3 finds no space, it is undone.

// checkGrowth returns the reason why a replica of a size and region size cannot get another size; nil if it can.
func checkGrowth(sizeBytes, regionBytes, to int64) error {
	switch {
	case to <= sizeBytes || to%BlockBytes != 0:
		return fmt.Errorf("a replica of %d bytes cannot grow to %d bytes: the size must be larger and a multiple of %d bytes", sizeBytes, to, BlockBytes)
	case RegionBytes(to) != regionBytes:
		return fmt.Errorf("regions of %d bytes are not valid for a size of %d bytes", regionBytes, to)
	}
	return nil
}

// Grow increases the size of the replica, durably. A size that the replica already has is a success. After an error the
// replica has its previous size and serves it; the usual cause is lack of space. If ctx ends first, the error is a
// *HangError. A size that was already shown stays.
func (r *Replica) Grow(ctx context.Context, sizeBytes int64) error {
	err := r.lane.run(ctx, call{what: "grow", work: func() error { return r.grow(sizeBytes) }})
	if err != nil {
		return fmt.Errorf("grow replica %s to %d bytes: %w", r.name, sizeBytes, err)
	}
	return nil
}

// grow is Grow. The caller is in the lane.
func (r *Replica) grow(to int64) error {
	from := r.Size()
	if to <= from {
		return nil
	}
	err := r.unusable()
	if err == nil {
		err = checkGrowth(from, r.regionBytes, to)
	}
	if err == nil && r.attempt.isPending() {
		err = fmt.Errorf("a snapshot is prepared: %w", layers.ErrBusy)
	}
	if started := r.growsTo(); err == nil && to < started {
		err = fmt.Errorf("the replica has already started to grow to %d bytes", started)
	}
	if err == nil {
		err = r.growFrom(from, to)
	}
	r.mu.Lock()
	r.growFailure = err
	r.mu.Unlock()
	r.changed()
	return err
}

func (r *Replica) unusable() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unusableLocked()
}

func (r *Replica) growsTo() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.meta.GrowsTo
}

func (r *Replica) growFrom(from, to int64) error {
	if regionCount(to, r.regionBytes) != regionCount(from, r.regionBytes) {
		if err := r.since.drop(); err != nil { // it has no bits for the new regions
			r.fail(err) // also for lack of space: the file may be believed later, and is no longer updated
			return err
		}
	}
	if err := r.update(func(m *Meta) { m.GrowsTo = to }); err != nil {
		return fmt.Errorf("record that the replica grows: %w", err)
	}
	replaced, err := r.lengthen(to)
	if err != nil {
		err = r.failUnlessNoSpace(err)
		if r.unusable() == nil && !replaced {
			r.undoGrowth(from)
		}
		return err
	}
	if err := r.update(func(m *Meta) { m.SizeBytes, m.GrowsTo = to, 0 }); err != nil {
		return fmt.Errorf("record the new size: %w", err)
	}
	r.size.Store(to)
	if r.opts.Log != nil {
		r.opts.Log.WithField("sizeBytes", to).Info("Replica has grown")
	}
	return nil
}

// lengthen gives data and intent map the length for a size. replaced reports whether the map has it.
func (r *Replica) lengthen(to int64) (replaced bool, err error) {
	if err := r.data.Truncate(to); err != nil {
		return false, fmt.Errorf("extend the data file: %w", err)
	}
	if err := r.syncs.do(); err != nil { // an error ends the replica: earlier writes may be lost
		return false, err
	}
	regions := regionCount(to, r.regionBytes)
	if regions <= r.intents.regions() {
		return false, nil
	}
	return r.lengthenIntents(regions)
}

// lengthenIntents replaces the intent map. No change starts during this time, so no mark is set that the new map lacks.
func (r *Replica) lengthenIntents(regions int64) (replaced bool, err error) {
	r.writing.lock()
	defer r.writing.unlock()
	image := r.intents.longer(r.meta.UID, regions)
	if err := r.dir.Unlink(intentTempName); err != nil && !errors.Is(err, syscall.ENOENT) {
		return false, fmt.Errorf("write the intent map: %w", err)
	}
	if err := fsys.WriteNew(r.dir, intentTempName, image.b); err != nil {
		_ = r.dir.Unlink(intentTempName) // best effort: the next attempt removes it again
		return false, fmt.Errorf("write the intent map: %w", err)
	}
	r.files.Lock()
	defer r.files.Unlock()
	if err := r.replaceIntents(image); err != nil {
		return true, fmt.Errorf("%w: replace the intent map: %w", fsys.ErrUncertain, err)
	}
	return true, nil
}

func (r *Replica) replaceIntents(image intentImage) error {
	if err := r.dir.Rename(intentTempName, intentName); err != nil {
		return err
	}
	if err := r.dir.Sync(); err != nil {
		return err
	}
	f, err := r.dir.OpenFile(intentName, fsys.ReadWrite)
	if err != nil {
		return err
	}
	if r.held.intents, err = f.ID(); err != nil {
		return errors.Join(err, f.Close())
	}
	old := r.imap
	r.imap = f
	r.intents.replace(f, image)
	return old.Close()
}

// undoGrowth frees the space that an attempt to grow took, after the attempt ran out of space. It may fail.
func (r *Replica) undoGrowth(from int64) {
	if r.intents.regions() != regionCount(from, r.regionBytes) || r.data.Truncate(from) != nil || r.syncs.do() != nil {
		return // an earlier attempt replaced the map
	}
	_ = r.update(func(m *Meta) { m.GrowsTo = 0 })
}
