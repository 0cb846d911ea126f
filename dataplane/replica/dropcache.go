package replica

import (
	"errors"
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// After a failed sync the kernel shows bytes that the disk does not have. An opening that relies on the content first
// makes cache and disk equal (dropCache):
//
//  1. it writes the marked regions out in pieces, and syncs the data. Now the kernel has no data left that it will
//     write out
//  2. the kernel drops all of the data from its cache. The opening asks the kernel which parts of the marked regions it
//     has kept
//  3. some parts may remain cached, because a program reads or locks them at this moment. The opening writes these
//     parts as they read, past the cache, and syncs them
//
// The opening asks only about marked regions, because in all others the cache equals the disk:
//
//   - A region is marked durably before it is changed, by any kind of change: writes, zeroes, trims, copies of a
//     rebuild. If the mark cannot be made durable, nothing is changed.
//   - A mark is cleared after a flush that succeeded, and after a second opening of the data has reported no failure
//     (clearIntents). A failure from before both openings concerns marked regions. For these regions the opening has
//     done the steps above.
//   - The map in the kernel has a mark wherever the map on the disk has one, except for marks that were cleared in this
//     way. If the map could not be written out, the map in the kernel has more marks.
//   - If a replica was closed in order, nothing failed between its opening and its close, and no marks remain.
//
// Releases that cleared marks without asking a second opening are an exception (docs/dataplane/CRASHES.md).
//
// Step 3 gives the disk the content of the cache. In a marked region both contents are correct, sector by sector. Each
// is either the content of the disk, or a later change that was never reported as durable. The marks cause a check
// whether the other members have that change. So trust does not depend on this step: the changes that a replica may
// lack are those that the kernel has dropped.

// errStaysCached means that a part of the data stays cached and could not be made equal to the disk.
var errStaysCached = errors.New("the kernel does not drop the data from its cache")

// dropCache ensures that reads of the data return the content of the disk; otherwise it fails. The kernel may still
// report an error from before this opening. Then the replica may lack writes, but its content is known all the same.
func (r *Replica) dropCache() error {
	// An error from before this opening does not end the opening.
	data, marked := r.out.File, r.markedRanges()
	lost := r.syncInPieces(data, marked)
	if lost != nil {
		if err := errors.Join(r.recordLoss(lost), data.Datasync()); err != nil {
			return err
		}
	}
	kept, err := data.DropCache(marked, r.progress)
	if err != nil {
		return err
	}
	if len(kept) > 0 {
		err := data.WriteThrough(kept, r.progress)
		if err == nil {
			err = data.Datasync()
		}
		if err != nil {
			return fmt.Errorf("%w: write %d parts directly to the disk: %w", errStaysCached, len(kept), err)
		}
	}
	if err := r.errors.WriteError(); err != nil {
		return r.recordLoss(err)
	}
	return nil
}

// recordLoss records that writes from before this opening are lost. The kernel has reported this for the last time. The
// opening may still be refused, or its process killed, and the next opening must know of the loss. If the disk lacks
// the space for the record, the opening is not refused. A refusal would not inform the next process either. And an
// admission needs the same space: it stores the record together with the engine's generation, or admits no engine.
func (r *Replica) recordLoss(cause error) error {
	r.mu.Lock()
	again, recorded := r.isLossReported, r.meta.BootID == ""
	r.cacheKept, r.isLossReported = false, true
	r.mu.Unlock()
	if !again && r.opts.Log != nil {
		r.opts.Log.WithError(cause).Warn("Writes that were made before the replica was opened are lost")
	}
	if recorded {
		return nil
	}
	err := r.update(func(m *Meta) { m.BootID = "" })
	if err != nil && (!errors.Is(err, nbd.ENOSPC) || errors.Is(err, fsys.ErrUncertain)) {
		return fmt.Errorf("record that writes are lost: %w", err)
	}
	return nil
}

// markedRanges returns the marked regions; adjacent regions are joined to one range. Nothing was written beyond the
// replica's size.
func (r *Replica) markedRanges() []fsys.Range {
	ranges := []fsys.Range{}
	for _, i := range r.intents.marked() {
		off := i * r.regionBytes
		length := min(r.regionBytes, r.Size()-off)
		n := len(ranges)
		switch {
		case length <= 0:
		case n > 0 && ranges[n-1].Off+ranges[n-1].Length == off:
			ranges[n-1].Length += length
		default:
			ranges = append(ranges, fsys.Range{Off: off, Length: length})
		}
	}
	return ranges
}

// writePiece is the amount that is written out before progress is reported to the host. Even this may need many seeks
// on a slow disk.
const writePiece = 4 << 20

// syncInPieces is like Datasync, for data that has nothing to be written out beyond the ranges. It writes all ranges,
// even if some of them fail.
func (r *Replica) syncInPieces(data fsys.File, ranges []fsys.Range) (err error) {
	for _, p := range ranges {
		for end := p.Off + p.Length; p.Off < end; p.Off += writePiece {
			err = errors.Join(err, data.WriteBackPart(fsys.Range{Off: p.Off, Length: min(writePiece, end-p.Off)}))
			r.progress()
		}
	}
	return errors.Join(err, data.Datasync())
}

func (r *Replica) progress() {
	if r.opts.OnProgress != nil {
		r.opts.OnProgress()
	}
}
