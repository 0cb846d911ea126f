package membership

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

var (
	// ErrLastMember says that the last member is never expelled. Its errors go to the volume's users.
	ErrLastMember = errors.New("the last member of a volume cannot be removed")
	// ErrOvertaken says that the API object belongs to another generation or session than the proposal.
	ErrOvertaken = errors.New("the Engine object belongs to another start of the engine")
	// ErrOutOfOrder says that the proposal does not follow the epoch that the API object holds.
	ErrOutOfOrder = errors.New("the epoch does not follow the recorded epoch")
)

// PlanExpel returns the epoch after current without those members that failed. If none of the members failed, it
// returns current. If no member would be left, it returns ErrLastMember: the caller must choose one to stay.
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

// PlanJoin returns the epoch after current with one more member. If the replica is a member already, it returns
// current. Before the call the replica must have received, and flushed, all data of the members. It must also receive
// every change from before the proposal on: the object may hold the epoch as soon as it is proposed.
func PlanJoin(current Epoch, name string) Epoch {
	if current.Has(name) {
		return current
	}
	return NewEpoch(current.Generation, current.Counter+1, append(slices.Clone(current.Members), name))
}

// Object is the part of the API object that decides which epochs may be recorded in it.
type Object struct {
	Generation int64
	Session    string // of the engine that was started with Generation
	Epoch      Epoch
}

// CanRecord checks whether the API object may take a proposed epoch. The caller must write the epoch under the
// resourceVersion that it has read. The recorded epoch is accepted again; then nothing needs to be written.
//
//	generation, session   equal to those of the object, else ErrOvertaken
//	counter               1 at the start of a generation, then one more than before, else ErrOutOfOrder
//	members               at least one, and one that was a member before, else ErrOutOfOrder
func CanRecord(o Object, session string, proposed Epoch) error {
	first := proposed.Counter == 1 && o.Epoch.Generation < proposed.Generation
	next := o.Epoch.Generation == proposed.Generation && proposed.Counter == o.Epoch.Counter+1
	kept := o.Epoch.IsZero() || slices.ContainsFunc(proposed.Members, o.Epoch.Has)
	switch {
	case proposed.Generation != o.Generation || session != o.Session:
		return fmt.Errorf("record epoch %s of session %q, but the Engine object has generation %d and session %q: %w",
			proposed, session, o.Generation, o.Session, ErrOvertaken)
	case proposed.Equal(o.Epoch):
		return nil
	case !first && !next, len(proposed.Members) == 0, !kept:
		return fmt.Errorf("record epoch %s after epoch %s: %w", proposed, o.Epoch, ErrOutOfOrder)
	}
	return nil
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
