package membership

import (
	"slices"
	"time"
)

// Role is the relation of a replica to the volume at the moment of a judgement.
type Role int

const (
	// Serving: the replica is a member of the epoch in force, or of the proposed one, and has not failed.
	Serving Role = iota
	// Leaving: it has failed, and an epoch in force or proposed still lists it.
	Leaving
	// Joining: it is being rebuilt, and no epoch lists it.
	Joining
	// Left: no epoch lists it, and none ever will without a rebuild.
	Left
)

// Result is the outcome of one change on one replica.
type Result int

const (
	// Missed: it did not get the change, or has not answered.
	Missed Result = iota
	// Stored: it has the change.
	Stored
	// NoSpace: it is healthy but full. Any part of the range may have changed.
	NoSpace
	// Unsupported: it does not offer this kind of change and did nothing.
	Unsupported
	// Broken: everything else, including unknown outcomes: it may or may not have the change.
	Broken
)

// Part is one replica's part in a change. Every replica that is Serving or Leaving must have one.
type Part struct {
	Role   Role
	Result Result
}

// Answer is the reply to the user who requested a change.
type Answer int

const (
	// Acknowledge: the change is done.
	Acknowledge Answer = iota
	// WaitForEpoch: the change is done as soon as an epoch is in force that lists only replicas that stored it. In
	// force means: recorded in the API object, and stored by its members.
	WaitForEpoch
	// RefuseNoSpace: no space; the members may differ in the range.
	RefuseNoSpace
	// RefuseUnsupported: no replica did anything.
	RefuseUnsupported
	// RefuseBroken: an I/O error; the members may differ in the range.
	RefuseBroken
)

// Judgement is the decision about a change, after all replicas have answered or are no longer waited for.
type Judgement struct {
	Answer Answer
	// Expel are the parts, by index, with replicas that must be treated as failed from now on. A member leaves by a new
	// epoch. A joining replica ends its rebuild. Expel never names the last serving replica. After acting on it the
	// caller must judge again, because other replicas may have failed at the same time.
	Expel []int
	// Unequal says that several serving replicas may hold different data in the range. It must stay marked until it was
	// made equal.
	Unequal bool
}

// Judge is the rule of acknowledgement: a change is acknowledged only when every replica that a successor might start
// from has stored it. These are all members of the epoch in force and of a proposed epoch, because the object may
// already hold the proposed epoch.
//
//	serving                   leaving             answer
//	all stored                all stored          Acknowledge
//	all stored                some did not        WaitForEpoch
//	some stored, some not     any                 WaitForEpoch; the replicas that did not are expelled
//	all full                  any                 RefuseNoSpace, all continue; a rebuild ends
//	all refuse the kind       any                 RefuseUnsupported, all continue
//	anything else             any                 RefuseBroken; the broken ones are expelled, except the last
//
// A joining replica never changes the answer. If its result differs from that of the members, its rebuild ends. If it
// was full like the members, its rebuild ends too: each replica may hold another part of the change, and the rebuild
// does not copy a range twice.
func Judge(parts []Part) Judgement {
	var serving [Broken + 1]int
	total := 0
	for _, p := range parts {
		if p.Role == Serving {
			serving[p.Result]++
			total++
		}
	}
	switch {
	case serving[Stored] > 0:
		return judgeStored(parts)
	case total > 0 && serving[NoSpace] == total:
		return Judgement{Answer: RefuseNoSpace, Unequal: total > 1, Expel: joining(parts)}
	case total > 0 && serving[Unsupported] == total:
		return Judgement{Answer: RefuseUnsupported, Expel: joining(parts, Unsupported)}
	}
	j := Judgement{Answer: RefuseBroken, Unequal: total > 1, Expel: joining(parts)}
	left := total
	for i, p := range parts {
		if p.Role == Serving && (p.Result == Broken || p.Result == Missed) && left > 1 {
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
		if p.Result == Stored || p.Role == Left {
			continue
		}
		if p.Role != Joining {
			j.Answer = WaitForEpoch
		}
		if p.Role != Leaving {
			j.Expel = append(j.Expel, i)
		}
	}
	return j
}

// joining returns the joining replicas, except those with one of these results.
func joining(parts []Part, except ...Result) []int {
	var out []int
	for i, p := range parts {
		if p.Role == Joining && !slices.Contains(except, p.Result) {
			out = append(out, i)
		}
	}
	return out
}

const (
	// SlowAfter is the time after which an unanswered request makes a member slow. It counts from another member's
	// answer to the same request.
	SlowAfter = 8 * time.Second
	// CheckInterval is how often an engine checks the requests that some members have answered and others have not.
	CheckInterval = SlowAfter / 8
)

// SlowRule decides which members are slow. It is relative: without another member's answer there is no wait. So an
// engine that was paused expels no member, and neither does an engine with members that are all equally slow.
type SlowRule struct {
	// After is SlowAfter, except for callers without patience. The other times stay in proportion to it.
	After time.Duration
}

// CheckInterval is how often an engine checks: the constant CheckInterval if After is SlowAfter.
func (r SlowRule) CheckInterval() time.Duration { return r.After / (SlowAfter / CheckInterval) }

// ProbeAfter is how long a read may take before the engine sends a similar read to another member. The answer shows
// whether one member is slow or all members are.
func (r SlowRule) ProbeAfter() time.Duration { return 2 * r.CheckInterval() }

// AloneAfter is how long a replica under rebuild may take for a request that no other replica gets at that time, such
// as a flush of the copy.
func (r SlowRule) AloneAfter() time.Duration { return 8 * r.After }

// maxCheck is the most that one check may add to a wait. If the engine checks later than that, it was not running
// itself, and answers that arrived in the meantime are still unread.
func (r SlowRule) maxCheck() time.Duration { return 2 * r.CheckInterval() }

// Waited returns how long a member has kept a request waiting since another member answered it. It counts only the time
// in which the engine was running. before is the result of the last check, or zero at the first check. answered is when
// the engine saw the other member's answer. lastLook is the time of the last check.
func (r SlowRule) Waited(before time.Duration, answered, lastLook, now time.Time) time.Duration {
	since := lastLook
	if answered.After(lastLook) {
		since = answered
	}
	return before + max(0, min(now.Sub(since), r.maxCheck()))
}

// IsSlow reports whether a member that has kept a request waiting for this time is slow.
func (r SlowRule) IsSlow(waited time.Duration) bool { return waited >= r.After }
