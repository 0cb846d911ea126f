package membership

import "slices"

// Standing is how a replica stands to the volume at the moment of a judgement.
type Standing int

const (
	// Serving: it is a member of the epoch in force, or of the one that is proposed, and has not failed.
	Serving Standing = iota
	// Leaving: it has failed, and an epoch in force or proposed still lists it.
	Leaving
	// Joining: it is being rebuilt, and no epoch lists it.
	Joining
	// Left: no epoch lists it, nor ever will without a rebuild.
	Left
)

// Result is what one replica did with one change.
type Result int

const (
	// Missed: it was not asked, or has not answered.
	Missed Result = iota
	// Stored: it has the change.
	Stored
	// NoSpace: it is healthy but full. Any part of the range may have changed.
	NoSpace
	// Unsupported: it does not offer this kind of change and did nothing.
	Unsupported
	// Broken: everything else, unknown outcomes included: it may or may not have the change.
	Broken
)

// Part is one replica's part in a change. There must be one for every replica that is Serving or Leaving.
type Part struct {
	Standing Standing
	Result   Result
}

// Answer is what to tell the user of a change.
type Answer int

const (
	// Acknowledge: the change is done.
	Acknowledge Answer = iota
	// WaitForEpoch: the change is done as soon as an epoch is in force that lists none of the replicas that did not store it:
	// recorded in the API object, and stored by its members.
	WaitForEpoch
	// RefuseNoSpace: no space; the members may differ in the range.
	RefuseNoSpace
	// RefuseUnsupported: no replica did anything.
	RefuseUnsupported
	// RefuseBroken: an I/O error; the members may differ in the range.
	RefuseBroken
)

// Judgement is what to do when all have answered a change, or are not waited for.
type Judgement struct {
	Answer Answer
	// Expel are the parts, by index, whose replicas must be treated as failed from now on: a member leaves by a new epoch, a
	// joining one ends its rebuild. It never names the last that serves. The caller must judge again after acting on it, for
	// others may have failed at the same time.
	Expel []int
	// Uneven says that several serving replicas may hold different data in the range: it must stay marked until it was made equal.
	Uneven bool
}

// Judge is the rule of acknowledgement: a change is acknowledged only when every replica that a successor might start from has
// stored it, and that is every member of the epoch in force and of one that is proposed, for the object may hold it already.
//
//	serving                   leaving             answer
//	all stored                all stored          Acknowledge
//	all stored                some did not        WaitForEpoch
//	some stored, some not     any                 WaitForEpoch; those that did not are expelled
//	all full                  any                 RefuseNoSpace, all go on; a rebuild ends
//	all refuse the kind       any                 RefuseUnsupported, all go on
//	anything else             any                 RefuseBroken; the broken ones are expelled, but for the last
//
// A joining replica never changes the answer; one that did other than the members ends its rebuild. So does one that was full like
// them: each may hold another part of the change, and the rebuild does not copy again what it has copied.
func Judge(parts []Part) Judgement {
	var serving [Broken + 1]int
	total := 0
	for _, p := range parts {
		if p.Standing == Serving {
			serving[p.Result]++
			total++
		}
	}
	switch {
	case serving[Stored] > 0:
		return judgeStored(parts)
	case total > 0 && serving[NoSpace] == total:
		return Judgement{Answer: RefuseNoSpace, Uneven: total > 1, Expel: joining(parts)}
	case total > 0 && serving[Unsupported] == total:
		return Judgement{Answer: RefuseUnsupported, Expel: joining(parts, Unsupported)}
	}
	j := Judgement{Answer: RefuseBroken, Uneven: total > 1, Expel: joining(parts)}
	left := total
	for i, p := range parts {
		if p.Standing == Serving && (p.Result == Broken || p.Result == Missed) && left > 1 {
			j.Expel = append(j.Expel, i)
			left--
		}
	}
	return j
}

// judgeStored judges a change that at least one serving replica has stored.
func judgeStored(parts []Part) Judgement {
	j := Judgement{Answer: Acknowledge}
	for i, p := range parts {
		if p.Result == Stored || p.Standing == Left {
			continue
		}
		if p.Standing != Joining {
			j.Answer = WaitForEpoch
		}
		if p.Standing != Leaving {
			j.Expel = append(j.Expel, i)
		}
	}
	return j
}

// joining returns the joining replicas but those with one of these results.
func joining(parts []Part, but ...Result) []int {
	var out []int
	for i, p := range parts {
		if p.Standing == Joining && !slices.Contains(but, p.Result) {
			out = append(out, i)
		}
	}
	return out
}
