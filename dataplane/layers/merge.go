package layers

// Merging has two parts. Join is a decision about borders, and one replacement of the list. After it, files of one
// layer become one file, piece by piece, at any speed. No view changes in the second part.

// Busy is what a replica does at the moment.
type Busy struct {
	// Barrier: the replica has prepared a head, and the attempt has neither become ready nor ended.
	Barrier bool
	// Needed are the borders that a rebuild in progress needs: the newest one of the target, and all that the target
	// lacks. Empty below the disk's reserve, where the rebuild pays.
	Needed []Point
}

// MayJoin decides whether a border may be taken away now.
func (l Line) MayJoin(p Point, b Busy) bool {
	st := l.State(p)
	if b.Barrier || st == Intended || st == Ready {
		return false
	}
	if i := l.index(p.Number); st == Deleted && len(l.Points[i].Holds) > 0 {
		return false
	}
	for _, n := range b.Needed {
		if n == p {
			return false
		}
	}
	return true
}

// Direction is the direction in which the content of one file moves.
type Direction int

const (
	// Up copies blocks of the lower file that the upper one lacks.
	Up Direction = iota
	// Down copies the blocks of the upper file, over those of the lower one.
	Down
)

// Cheaper returns the direction that copies less. upper counts the blocks that the upper file has, lowerOnly those of
// the lower one that the upper one lacks. A file that users write to is not merged down: local says that an empty local
// head must be put on it first.
func Cheaper(upper, lowerOnly int64, userWrites bool) (d Direction, local bool) {
	if upper < lowerOnly {
		return Down, userWrites
	}
	return Up, false
}

// MergeStep is one indivisible step of a piece.
type MergeStep int

// Data and map are those of the upper or the lower file, in the piece. SetBits and ClearBits write to the map without
// a sync.
const (
	CopyUp   MergeStep = iota // data of the lower file to the upper one, except blocks that the upper one has
	CopyDown                  // data of the upper file to the lower one
	SyncUpperData
	SyncLowerData
	SetUpperBits
	SetLowerBits
	ClearUpperBits
	SyncUpperMap
	SyncLowerMap
	PunchUpper // frees space; what the upper map no longer has
	PunchLower // frees space; only blocks whose upper bit is durable

	FlushUpper   // all steps of a flush of the upper file
	RemoveRecent // of the upper file, with a sync of the directory
	PunchAbsent  // blocks of the upper file without a bit, where a crash may have left data
)

// BeforePieces are the steps after the list has joined the files, and before the first piece. A file that goes down is
// flushed and loses its recent. Otherwise an opening in the same boot finds blocks in recent whose bits were cleared
// and whose data was punched.
func BeforePieces(d Direction) []MergeStep {
	if d == Up {
		return nil
	}
	return []MergeStep{FlushUpper, RemoveRecent}
}

// AfterPieces are the steps before the list without the lower file, or without the upper one after Down. lowest says
// that the upper file becomes the lowest of the chain, which has no map. Then nothing hides what a crash left in a
// block without a bit.
func AfterPieces(d Direction, lowest bool) []MergeStep {
	if d == Up && lowest {
		return []MergeStep{PunchAbsent, SyncUpperData}
	}
	return nil
}

// PieceSteps is the order of the steps of one piece. A crash may come between any two of them, and each step is safe to
// repeat. The copy of a piece whose upper file users write to takes the replica's lock for 128 KiB at a time, and looks
// at the upper bits under that lock. The two syncs in the middle are a flush of that file: a block that a user wrote
// meanwhile is left out of the copy, and its old content below is punched only when the user's bit is durable.
func PieceSteps(d Direction) []MergeStep {
	if d == Up {
		return []MergeStep{CopyUp, SyncUpperData, SetUpperBits, SyncUpperMap, PunchLower}
	}
	return []MergeStep{CopyDown, SyncLowerData, SetLowerBits, SyncLowerMap, ClearUpperBits, SyncUpperMap, PunchUpper}
}

// Blocks is a set of block numbers, as one file's map has them.
type Blocks interface{ Has(block int64) bool }

// Merged reports which of two neighbouring files of one layer can be taken out of the list, by their durable bits.
// After Up it is the lower one: the upper one has every block of it. After Down it is the upper one: it has no block.
// Both may be true. The upper file is not removed while users write to it.
func Merged(upper, lower Blocks, blocks int64, userWrites bool) (removeUpper, removeLower bool) {
	removeUpper, removeLower = !userWrites, true
	for b := range blocks {
		if upper.Has(b) {
			removeUpper = false
		} else if lower.Has(b) {
			removeLower = false
		}
	}
	return removeUpper, removeLower
}

// KeptMap is the map of the interval above a point that was merged away. It says what may have changed since the point,
// in units that may be coarser than a block. It has no data. It is written before the merge starts, because a merge
// changes maps.
type KeptMap struct {
	From Point // matched by number and nonce: names are used again
	To   Number
	Has  func(block int64) bool
}

// Changed returns which of the first n blocks may differ between the views at two points: perhaps more than differ,
// never less. from must be a border of the chain, or of a kept map. It returns false if the chain does not know: then
// the caller must compare all.
func (c Chain) Changed(from, to Point, n int64, has Has, kept []KeptMap) ([]bool, bool) {
	end := c.Border(to)
	if end < 0 {
		return nil, false
	}
	out := make([]bool, n)
	start := c.Border(from) + 1 // the lowest layer above from
	if start == 0 {
		for _, k := range kept {
			if k.From == from {
				for b := range n {
					out[b] = k.Has(b)
				}
				start = c.above(k.To)
			}
		}
		if start == 0 {
			return nil, false
		}
	}
	for i := start; i <= end; i++ {
		for _, f := range c.Layers[i].Files {
			for b := range n {
				out[b] = out[b] || has(f, b)
			}
		}
	}
	return out, true
}

// above returns the lowest layer that ends above a number; it includes everything after that number.
func (c Chain) above(n Number) int {
	for i, l := range c.Layers {
		if l.Top.isZero() || l.Top.Number > n {
			return i
		}
	}
	return c.Head()
}
