package layers

// A block of a layer is present, or a reader looks below. One bit in <n>.map says which. <n>.recent lists blocks that
// became present since the map was last synced, and the boot in which it was written. The extents that a file system
// reports decide nothing.

// BlockBytes is the unit of presence, on every file system.
const BlockBytes = 4096

// Covered returns the blocks that a change of [off, off+length) touches. The engine must lock all of them as a whole: a
// write that is smaller than a block fills the rest from the view below, so two such writes to one block must not run
// at the same time.
func Covered(off, length int64) (first, end int64) {
	return off / BlockBytes, (off + length + BlockBytes - 1) / BlockBytes
}

// Entry is the effect of a change on one block.
type Entry struct {
	Fill  bool // read the rest of the block from the view below, and write the whole block
	Punch bool // make the block of this file a hole; leftovers of a crash may be there even without a bit
	Enter bool // write the block into recent, after the data and before the answer
}

// OnWrite decides about a write. whole says that it covers the block completely.
func OnWrite(headHas, whole bool) Entry { return Entry{Fill: !headHas && !whole, Enter: !headHas} }

// OnDiscard decides about a discard, or a write of zeroes that may punch, of a whole block. below says that any lower
// layer has it; the lowest file counts where it has data. A discard of a block that no layer has does nothing. So a
// trim of an empty volume leaves no change behind.
func OnDiscard(headHas, below bool) Entry {
	return Entry{Punch: headHas || below, Enter: !headHas && below}
}

// OnFailedWrite decides about a block of a write that failed for lack of space. What it has left in a block that the file
// does not have is punched: a discard of a block that no layer has does nothing, and a file that becomes the lowest one
// has every block. copied says that a merge has copied the block into the file, and that it does not count yet. Such a
// block is left alone: its bit may be durable already, and a punch would remove the old content.
func OnFailedWrite(headHas, copied bool) Entry { return Entry{Punch: !headHas && !copied} }

// FlushStep is one step of a flush. FUA, the clearing of marks and the sealing of a layer use the same steps.
type FlushStep int

const (
	NoteEntries FlushStep = iota // the blocks that are in recent now; later ones are not part of this flush
	SyncData                     // of every unsealed file, not only of the head
	WriteBits                    // the noted blocks, in the maps
	SyncMaps
)

// FlushSteps is their order. The data is durable before a bit is, and a block that became present after the sync of the
// data started gets no bit by this flush. A flush without entries needs only SyncData.
func FlushSteps() []FlushStep { return []FlushStep{NoteEntries, SyncData, WriteBits, SyncMaps} }

// Recent is what an opening knows about the recent of one unsealed file.
type Recent struct {
	SameBoot bool // it was last started in the present boot
	Active   bool // of the file that takes changes
	Empty    bool // it has no entries
}

// SameBoot reports whether nothing was written in an earlier boot that only a recent records. An opening starts the
// recent of the active file last. So if that recent is of the present boot, an opening of this boot was complete, and an
// empty recent of another file is a remainder: the file was sealed when the recent was written. It says nothing. In all
// other cases, files of different boots mean that an opening of this boot was interrupted.
func SameBoot(recents []Recent) bool {
	for _, r := range recents {
		if !r.SameBoot && (r.Active || !r.Empty) {
			return false
		}
	}
	return true
}

// Opening is what an opening knows about the time since recent was written.
type Opening struct {
	SameBoot       bool // the boot id in recent is the present one
	FailedSync     bool // a sync of an unsealed file failed, as far as is known
	SameSuperblock bool // the disk was provably held all the time, so it has lost no page of the cache
}

// Trust is what an opening does with the unsealed files.
type Trust struct {
	Recent    bool // recent counts as well as the maps
	DropCache bool // drop the pages of all unsealed files, so that reads return what the disk has
	Distrust  bool // the replica may lack writes; other members are preferred as the source
}

// Believe decides which records of written blocks count. The opening must have synced the maps: otherwise a later flush
// could rely on bits that only the cache has.
//
//	another boot                       only the maps: the cache is empty. The replica may lack writes
//	same boot, nothing can be lost     the maps and recent
//	same boot, something can be lost   only the maps: the cache is dropped. The replica may lack writes
func Believe(o Opening) Trust {
	switch {
	case o.FailedSync || o.SameBoot && !o.SameSuperblock:
		return Trust{DropCache: true, Distrust: true}
	case !o.SameBoot:
		return Trust{Distrust: true}
	}
	return Trust{Recent: true}
}
