package layers

// Verdict is the decision about one block's checksum on one member. Checksums are of the view at a point, not of a
// layer: members merge at different times, so their layers differ. An absent block, a hole and written zeroes have the
// same checksum.
type Verdict int

const (
	// Waits: too few members have computed it. It does not count yet.
	Waits Verdict = iota
	// Counts: the checksum is right. From now on each copy of the block checks it first and takes it along.
	Counts
	// Repair: this member's block is wrong and is repaired in place, from a member with the checksum that counts.
	Repair
	// Unclear: the members differ, and nothing says which one is right. The snapshot must say so.
	Unclear
)

// JudgeSum decides about a member's checksum. counted is the checksum that counted before, if known says that there is
// one. others are those that other members have computed for the same view. members is the number of members of the
// volume.
//
//	equal to the one that counted                Counts
//	not equal to it                              Repair, if another member's is equal to it; else Unclear
//	none counted, all members agree              Counts
//	none counted, this one against all others    Repair, if there are two others or more
//	none counted, one of others differs          Counts, if two others or more were asked and all but one agree
//	otherwise, when all have computed it         Unclear
//
// In a volume with one member, the first checksum counts without a comparison.
func JudgeSum(mine, counted uint32, known bool, others []uint32, members int) Verdict {
	same := 0
	for _, o := range others {
		if o == mine {
			same++
		}
	}
	if known {
		switch {
		case mine == counted:
			return Counts
		case contains(others, counted):
			return Repair
		}
		return Unclear
	}
	switch {
	case len(others)+1 < members:
		return Waits
	case same == len(others), same >= 1 && same == len(others)-1:
		return Counts
	case len(others) >= 2 && same == 0 && allEqual(others):
		return Repair
	}
	return Unclear
}

func contains(sums []uint32, sum uint32) bool {
	for _, s := range sums {
		if s == sum {
			return true
		}
	}
	return false
}

func allEqual(sums []uint32) bool {
	for _, s := range sums {
		if s != sums[0] {
			return false
		}
	}
	return true
}
