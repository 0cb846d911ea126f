package layers

// A merge frees space in the end, and needs some before. It must not use the space that the disk reserves for the
// writes of users.

// Space describes a disk, in bytes.
type Space struct {
	Available int64
	Reserve   int64 // from storage-minimal-available-percentage; no snapshot is allowed below it
	Piece     int64 // the most that one piece copies
	Head      int64 // for the map and recent of a new file
}

// allows reports whether the reserve is untouched after so many bytes.
func (s Space) allows(bytes int64) bool { return s.Available-bytes >= s.Reserve }

// Pair has the facts about two neighbouring files of one layer. Blocks are counted from the maps.
type Pair struct {
	Lower, Upper File
	// Lowest says that the lower file is the lowest of the chain. The upper one loses its map when it becomes the lowest.
	Lowest bool
	// Hidden blocks take space in the lower file, although a durable bit of the upper file hides them.
	Hidden int64
	// UpperBlocks are the blocks that the upper file has. LowerOnly are those of the lower file that the upper one lacks.
	UpperBlocks, LowerOnly int64
	// UpperDurable says that each block that both files have is durable in the upper one. Then it stays so.
	UpperDurable bool
	// UserWrites says that users write to the upper file, or that a write to it is not answered yet. LocalHead says that
	// a merge added the file, so that the file below it could go down. It stays until the next snapshot seals it.
	// Otherwise the merge of a head into a large layer, which puts a local head on top, would be followed by the same merge
	// of that local head, without end.
	UserWrites, LocalHead bool
	// Wrong says that a block to copy does not have the checksum that counts.
	Wrong bool
}

// Count adds n blocks of the two files to the facts. takes reports whether a block of the lower file takes space.
func (p *Pair) Count(upper, lower Presence, takes func(block int64) bool, n int64) {
	for b := range n {
		low := lower.Has(b)
		switch {
		case !upper.Has(b):
			if low {
				p.LowerOnly++
			}
			continue
		case low && !upper.Durable(b):
			p.UpperDurable = false
		case low && takes(b):
			p.Hidden++
		}
		p.UpperBlocks++
	}
}

// MergeAct is the next thing that a replica does with a pair.
type MergeAct int

const (
	// MergeWaits: nothing now. The reason says until when.
	MergeWaits MergeAct = iota
	PunchHidden
	RemoveLower
	RemoveUpper
	TakeUpBits
	AddLocalHead
	MergeUp
	MergeDown
)

// MergeWait is the reason why a merge waits. Every reason ends without a user, except NeedsSpace. If several pairs of
// files wait, the last reason of this list counts.
type MergeWait int

const (
	NoWait MergeWait = iota
	// NeedsBarrier: a snapshot of the volume is in progress.
	NeedsBarrier
	// NeedsSnapshot: users write to the upper file, and its changes must stay apart. The next snapshot seals the file. The
	// space of hidden blocks is free already.
	NeedsSnapshot
	// NeedsRepair: a block has a wrong checksum, and another member has the right one.
	NeedsRepair
	// NeedsSpace: a copy would use the space that the disk keeps. The space of hidden blocks is free already. The replica
	// reports it as a condition.
	NeedsSpace
)

// String is the reason as a condition has it; empty for NoWait.
func (w MergeWait) String() string {
	switch w {
	case NeedsBarrier:
		return "NeedsBarrier"
	case NeedsSnapshot:
		return "NeedsSnapshot"
	case NeedsRepair:
		return "NeedsRepair"
	case NeedsSpace:
		return "NeedsSpace"
	}
	return ""
}

// NextAct returns the next act of a replica with a pair, whose files the list has joined. mayAdd says that the chain may
// have another file.
//
//	a barrier is under way                        waits, NeedsBarrier
//	hidden blocks take space                      punches them; below the reserve too, and while users write
//	the upper file hides the lower one            removes the lower one (AfterPieces, then the list), except where a kept
//	                                              map needs the bits of a file that becomes the lowest one
//	the upper file is empty, users do not write   removes the upper one
//	users write, and the file is a local head     waits, NeedsSnapshot
//	users write, and a kept map ends below it     waits, NeedsSnapshot
//	a copy has a wrong checksum                   waits, NeedsRepair
//	the disk would be below its reserve           waits, NeedsSpace
//	a kept map ends between the files             takes up the bits
//	down is cheaper, and users write              puts a local head on, or goes up if there is no room for a file
//	otherwise                                     copies in the cheaper direction
func NextAct(p Pair, kept []KeptMap, s Space, barrier, mayAdd bool) (MergeAct, MergeWait) {
	ends := EndsBetween(kept, p.Lower, p.Upper)
	d, local := Cheaper(p.UpperBlocks, p.LowerOnly, p.UserWrites)
	local = local && mayAdd && s.allows(s.Head+s.Piece)
	switch {
	case barrier:
		return MergeWaits, NeedsBarrier
	case p.Hidden > 0:
		return PunchHidden, NoWait
	case p.LowerOnly == 0 && p.UpperDurable && !(ends && p.Lowest):
		return RemoveLower, NoWait
	case p.UpperBlocks == 0 && !p.UserWrites:
		return RemoveUpper, NoWait
	case p.UserWrites && (p.LocalHead || ends):
		return MergeWaits, NeedsSnapshot
	case p.Wrong:
		return MergeWaits, NeedsRepair
	case !s.allows(s.Piece):
		return MergeWaits, NeedsSpace
	case ends:
		return TakeUpBits, NoWait
	case local:
		return AddLocalHead, NoWait
	case d == Up || p.UserWrites:
		return MergeUp, NoWait
	}
	return MergeDown, NoWait
}
