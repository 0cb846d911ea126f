package membership

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

var (
	// ErrLastMember: the last member is never expelled. Its errors go to the volume's users.
	ErrLastMember = errors.New("the last member is never expelled")
	// ErrOvertaken: the API object belongs to another generation or session than the proposal.
	ErrOvertaken = errors.New("the object belongs to another start of the engine")
	// ErrOutOfOrder: the proposal does not follow the epoch that the API object holds.
	ErrOutOfOrder = errors.New("the epoch does not follow the recorded one")
)

// PlanExpel returns the epoch after current without those of its members that failed; current itself when none of them has.
// Without any member left it is ErrLastMember: the caller must choose one to stay.
func PlanExpel(current Epoch, failed []string) (Epoch, error) {
	rest := slices.DeleteFunc(slices.Clone(current.Members), func(name string) bool { return slices.Contains(failed, name) })
	switch len(rest) {
	case len(current.Members):
		return current, nil
	case 0:
		return Epoch{}, fmt.Errorf("expel %v from %s: %w", failed, current, ErrLastMember)
	}
	return NewEpoch(current.Generation, current.Counter+1, rest), nil
}

// PlanJoin returns the epoch after current with one more member; current itself if it is one. The replica must have been given,
// and have flushed, all that the members hold, and must be given every change from before this epoch is proposed: the object may
// hold the epoch as soon as it is proposed.
func PlanJoin(current Epoch, name string) Epoch {
	if current.Has(name) {
		return current
	}
	return NewEpoch(current.Generation, current.Counter+1, append(slices.Clone(current.Members), name))
}

// Object is the part of the API object that decides what may be recorded in it.
type Object struct {
	Generation int64
	Session    string // of the engine that was started with Generation
	Epoch      Epoch
}

// CanRecord says whether the API object may take a proposed epoch; it must be written under the resourceVersion that was read. The
// same epoch again may be (nothing needs to be written then).
//
//	generation, session   those of the object, else ErrOvertaken
//	counter               1 at the start of a generation, then each the next of the one before, else ErrOutOfOrder
//	members               at least one, and one that was a member before, else ErrOutOfOrder
func CanRecord(o Object, session string, proposed Epoch) error {
	first := proposed.Counter == 1 && o.Epoch.Generation < proposed.Generation
	next := o.Epoch.Generation == proposed.Generation && proposed.Counter == o.Epoch.Counter+1
	kept := o.Epoch.IsZero() || slices.ContainsFunc(proposed.Members, o.Epoch.Has)
	switch {
	case proposed.Generation != o.Generation || session != o.Session:
		return fmt.Errorf("record epoch %s of session %q while the object is at generation %d of session %q: %w",
			proposed, session, o.Generation, o.Session, ErrOvertaken)
	case proposed.Equal(o.Epoch):
		return nil
	case !first && !next, len(proposed.Members) == 0, !kept:
		return fmt.Errorf("record epoch %s after %s: %w", proposed, o.Epoch, ErrOutOfOrder)
	}
	return nil
}

const (
	// SlowAfter is how long after another member's answer to the same request a member that has not answered counts as slow.
	SlowAfter = 8 * time.Second
	// LookEvery is how often an engine looks at the requests that some members have answered and others have not.
	LookEvery = SlowAfter / 8
)

// SlowRule is the slow rule. It is relative: without another member's answer there is no wait, so an engine that was paused, or
// whose members are all slow alike, expels no member.
type SlowRule struct {
	// After is SlowAfter, but for those that have no patience; the other times keep their relation to it.
	After time.Duration
}

// LookEvery is how often an engine looks: LookEvery when After is SlowAfter.
func (r SlowRule) LookEvery() time.Duration { return r.After / (SlowAfter / LookEvery) }

// ProbeAfter is how long a read may take before the engine asks another member the like, to see whether one member is slow or all
// are.
func (r SlowRule) ProbeAfter() time.Duration { return 2 * r.LookEvery() }

// AloneAfter is how long a replica that is being rebuilt may take for what no other is asked at the time, as a flush of the copy.
func (r SlowRule) AloneAfter() time.Duration { return 8 * r.After }

// maxLook is what one look may add to a wait. An engine that looks later than that was not running itself, and answers that came
// meanwhile are still to be read.
func (r SlowRule) maxLook() time.Duration { return 2 * r.LookEvery() }

// Waited returns for how long a member has kept a request waiting since another one answered it, as far as the engine was running
// to see: before is what the last look gave (zero at the first), answered when the other's answer was seen, lastLook when the
// engine looked last.
func (r SlowRule) Waited(before time.Duration, answered, lastLook, now time.Time) time.Duration {
	since := lastLook
	if answered.After(lastLook) {
		since = answered
	}
	return before + max(0, min(now.Sub(since), r.maxLook()))
}

// IsSlow says whether a member that has kept a request waiting for so long is slow.
func (r SlowRule) IsSlow(waited time.Duration) bool { return waited >= r.After }
