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

// NextMerge returns the lowest two neighbouring files of one layer that a merge makes one. active is the file that takes
// changes. local is the last local head: a merge leaves it until its layer has a border. Otherwise the merge of a head
// into a large layer, which puts a local head on top, would be followed by the same merge of that local head, without
// end.
func (c Chain) NextMerge(active, local File) (lower, upper File, ok bool) {
	for _, l := range c.Layers {
		for i := range len(l.Files) - 1 {
			if upper := l.Files[i+1]; upper != active || upper != local {
				return l.Files[i], upper, true
			}
		}
	}
	return 0, 0, false
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

// KeptMap is the map of the interval above a point that was merged away. It says which blocks may have changed since
// the point, and has no data. A block of it may stand for several blocks of the volume.
type KeptMap struct {
	From   Point // matched by number and nonce: names are used again
	To     Number
	Blocks []bool
}

// Keep returns the kept maps as they must be durable before the border p is joined: a merge changes the maps. wanted
// says that p is the base of a target's last backup, or the last point of a member that is away. A map that ends at p
// takes up the layer above.
//
// It returns false if the layer above p is the head and a map is needed: the head still changes. A local head does not
// help, because a later merge would mix its map with the map of the layer below. The border then stays until the next
// point is ready.
func (c Chain) Keep(p Point, wanted bool, n int64, has Has, kept []KeptMap) ([]KeptMap, bool) {
	i := c.Border(p) + 1
	if i == 0 {
		return kept, true
	}
	above := c.Layers[i]
	if wanted {
		kept = append(kept[:len(kept):len(kept)], KeptMap{From: p, To: p.Number, Blocks: make([]bool, n)})
	}
	out := make([]KeptMap, 0, len(kept))
	for _, k := range kept {
		if k.To == p.Number {
			if above.Top.isZero() {
				return nil, false
			}
			blocks := make([]bool, n)
			for b := range n {
				blocks[b] = k.Blocks[b] || hasAny(above, b, has)
			}
			k.To, k.Blocks = above.Top.Number, blocks
		}
		out = append(out, k)
	}
	return out, true
}

func hasAny(l Layer, b int64, has Has) bool {
	for _, f := range l.Files {
		if has(f, b) {
			return true
		}
	}
	return false
}

// DropKept removes the kept maps that a revert makes wrong: maps of points above the one to which the volume returns,
// and those that end above it.
func DropKept(kept []KeptMap, r Interval) (out []KeptMap) {
	for _, k := range kept {
		if k.From.Number <= r.To && k.To <= r.To {
			out = append(out, k)
		}
	}
	return out
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
				copy(out, k.Blocks)
				start = c.above(k.To)
			}
		}
		if start == 0 {
			return nil, false
		}
	}
	for i := start; i <= end; i++ {
		for b := range n {
			out[b] = out[b] || hasAny(c.Layers[i], b, has)
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
