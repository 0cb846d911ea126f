package replica

import (
	"errors"
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// After a failed sync the kernel shows bytes that the disk does not have. An opening that relies on what it reads first
// makes the two equal (dropCache):
//
//  1. the marked regions are written out in pieces, and the data is synced. From here on the kernel has nothing that it
//     still will write out
//  2. the kernel drops all of the data from its cache, and is asked what it has kept of the marked regions
//  3. what it has kept, because a program reads or locks it at this moment, is written as it reads, past the cache, and
//     synced
//
// Only marked regions are asked about, because in all others the cache equals the disk:
//
//   - A region is marked durably before it is changed, by whatever change: writes, zeroes, trims, copies of a rebuild.
//     Where the mark cannot be made durable nothing is changed.
//   - A mark is cleared after a flush that succeeded, and after a second opening of the data has reported no failure
//     (clearIntents). A failure from before both openings concerns marked regions, and for these the steps above were
//     done in the opening.
//   - What the kernel shows of the map has a mark wherever the disk's has one, except for marks that were cleared in this way. A
//     map that could not be written out has more of them.
//   - A replica that was closed in order has had no failure since it was opened, and no marks are left.
//
// Releases that cleared marks without asking a second opening are an exception (docs/DATAPLANE.md).
//
// Step 3 makes the disk have what the cache shows. In a marked region either is right, sector by sector: it is what the
// disk had, or a later change that nobody was told is durable. Whether the other members have that change is the
// question that marks answer. So trust does not depend on this: a replica that may lack changes lacks those which the
// kernel has dropped.

// errStaysCached says that a part of the data stays cached, and could not be made equal to the disk.
var errStaysCached = errors.New("the kernel does not drop the data from its cache")

// dropCache makes reads of the data return what the disk has, or fails. The kernel may still report an error from
// before this opening: the replica may lack writes then, but what it has is known all the same.
func (r *Replica) dropCache() error {
	data, marked := r.out.File, r.markedRanges() // an error from before is not the end of this opening
	lost := r.syncInPieces(data, marked)
	if lost != nil {
		if err := errors.Join(r.hearOfLoss(lost), data.Datasync()); err != nil {
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
			return fmt.Errorf("%w: write %d parts through: %w", errStaysCached, len(kept), err)
		}
	}
	if err := r.errors.WriteError(); err != nil {
		return r.hearOfLoss(err)
	}
	return nil
}

// hearOfLoss records that writes of before this opening are lost. The kernel has told it for the last time, and this
// opening may be refused yet, or its process killed: then the next one must know. A disk without space does not get the
// opening refused. A refusal would not tell the next process either, and an admission needs the same space: it stores
// the record together with the engine's generation, or lets no engine in.
func (r *Replica) hearOfLoss(cause error) error {
	r.mu.Lock()
	again, recorded := r.heardOfLoss, r.meta.BootID == ""
	r.cacheKept, r.heardOfLoss = false, true
	r.mu.Unlock()
	if !again && r.opts.Log != nil {
		r.opts.Log.WithError(cause).Warn("Writes of before this opening are lost")
	}
	if recorded {
		return nil
	}
	err := r.update(func(m *Meta) { m.BootID = "" })
	if err != nil && (!errors.Is(err, nbd.ENOSPC) || errors.Is(err, errUncertain)) {
		return fmt.Errorf("record that writes are lost: %w", err)
	}
	return nil
}

// markedRanges are the marked regions, with those that follow each other in one range. Beyond the replica's size
// nothing was written.
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

// writePiece is how much is written out before the host hears that the disk has answered. A slow disk has many seeks to
// do for it.
const writePiece = 4 << 20

// syncInPieces is Datasync for data that has nothing to be written out beyond the ranges. All of it is written,
// whatever fails.
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
