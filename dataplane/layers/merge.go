package layers

// Merging has two parts. Join is a decision about borders, and one replacement of the list. After it, files of one
// layer become one file, piece by piece, at any speed. No view changes in the second part.

// Busy has the present work of a replica that keeps borders in place.
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

// Pairs returns the neighbouring files of each layer, the lowest first. A merge makes one file of a pair (see NextAct).
// active is the file that takes changes, and local is the last local head. The blocks are not counted yet.
func (c Chain) Pairs(active, local File) (pairs []Pair) {
	for n, l := range c.Layers {
		for i := range len(l.Files) - 1 {
			upper := l.Files[i+1]
			pairs = append(pairs, Pair{
				Lower: l.Files[i], Upper: upper, Lowest: n == 0 && i == 0,
				UpperDurable: true, UserWrites: upper == active, LocalHead: upper == active && upper == local,
			})
		}
	}
	return pairs
}

// Direction is the direction in which the content of one file moves.
type Direction int

const (
	// Up copies blocks of the lower file that the upper one lacks.
	Up Direction = iota
	// Down copies the blocks of the upper file over the blocks of the lower one.
	Down
)

// Cheaper returns the direction that copies less. upper counts the blocks that the upper file has. lowerOnly counts the
// blocks of the lower file that the upper one lacks. A file that users write to is not merged down: local says that an
// empty local head must be put on it first.
func Cheaper(upper, lowerOnly int64, userWrites bool) (d Direction, local bool) {
	if upper < lowerOnly {
		return Down, userWrites
	}
	return Up, false
}

// MergeStep is one indivisible step of a piece.
type MergeStep int

// Each step names the file whose data or map it changes, in the piece. SetBits and ClearBits write to the map without
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
	// ShowUpperBits lets the copied blocks count as present in memory. Not earlier: a user's write to a present block has
	// no entry, so its flush would not sync the map, and would rely on a bit that the disk does not have.
	ShowUpperBits
	PunchUpper // frees space; what the upper map no longer has
	PunchLower // frees space; only blocks whose upper bit is durable

	FlushUpper   // all steps of a flush of the upper file
	RemoveRecent // of the upper file, with a sync of the directory
	PunchAbsent  // blocks of the upper file without a bit, where a crash may have left data
)

// BeforePieces are the steps after the list has joined the files, and before the first piece. A file that goes down is
// flushed and loses its recent. Otherwise an opening in the same boot believes entries in recent although the merge
// has cleared the bits and punched the data.
func BeforePieces(d Direction) []MergeStep {
	if d == Up {
		return nil
	}
	return []MergeStep{FlushUpper, RemoveRecent}
}

// AfterPieces are the steps before the list without the lower file, or without the upper one after Down. lowest says
// that the upper file becomes the lowest of the chain, which has no map. Then nothing hides the data that a crash left
// in a block without a bit.
func AfterPieces(d Direction, lowest bool) []MergeStep {
	if d == Up && lowest {
		return []MergeStep{PunchAbsent, SyncUpperData}
	}
	return nil
}

// PieceSteps is the order of the steps of one piece. A crash may come between any two of them, and each step is safe to
// repeat. If users write to the upper file, the copy of a piece takes the replica's lock for 128 KiB at a time, and
// looks at the upper bits under that lock. The two syncs in the middle are a flush of that file: a block that a user
// wrote by then is left out of the copy, and its old content below is punched only when the user's bit is durable.
func PieceSteps(d Direction) []MergeStep {
	if d == Up {
		return []MergeStep{CopyUp, SyncUpperData, SetUpperBits, SyncUpperMap, ShowUpperBits, PunchLower}
	}
	return []MergeStep{CopyDown, SyncLowerData, SetLowerBits, SyncLowerMap, ClearUpperBits, SyncUpperMap, PunchUpper}
}

// HiddenSteps free the blocks of the lower file that a durable bit of the upper file hides. They copy nothing, change no
// bit and need no space. So they come first, also while users write to the upper file, while a kept map ends between the
// two files, and on a full disk. What a deletion gives back is free after them. The copies that follow only make one
// file of two.
func HiddenSteps() []MergeStep { return []MergeStep{PunchLower} }

// Presence tells which blocks a file has: Has counts entries in memory, Durable only the durable bits of its map.
type Presence interface {
	Has(block int64) bool
	Durable(block int64) bool
}

// Merged reports which of two neighbouring files of one layer can be taken out of the list. After Up it is the lower
// one: each block of it is durable in the upper one. After Down it is the upper one: it has no block. Both may be true.
// The upper file is not removed while users write to it.
func Merged(upper, lower Presence, blocks int64, userWrites bool) (removeUpper, removeLower bool) {
	removeUpper, removeLower = !userWrites, true
	for b := range blocks {
		removeUpper = removeUpper && !upper.Has(b)
		removeLower = removeLower && (upper.Durable(b) || !lower.Has(b))
	}
	return removeUpper, removeLower
}
