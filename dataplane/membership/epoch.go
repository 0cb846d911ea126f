package membership

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Epoch names the replicas that hold every acknowledged write. The zero Epoch means "none yet".
type Epoch struct {
	Generation int64    `json:"generation"`
	Counter    int64    `json:"counter"`
	Members    []string `json:"members"` // replica names, sorted, no duplicates
}

// NewEpoch returns an epoch with its members sorted and made unique.
func NewEpoch(generation, counter int64, members []string) Epoch {
	m := slices.Clone(members)
	slices.Sort(m)
	return Epoch{Generation: generation, Counter: counter, Members: slices.Compact(m)}
}

// IsZero reports whether there is no epoch yet.
func (e Epoch) IsZero() bool { return e.Generation == 0 && e.Counter == 0 }

// Compare orders epochs by generation, then counter: -1, 0 or 1.
func (e Epoch) Compare(o Epoch) int {
	switch {
	case e.Generation != o.Generation:
		return sign(e.Generation - o.Generation)
	default:
		return sign(e.Counter - o.Counter)
	}
}

// Equal reports whether both are the same epoch with the same members.
func (e Epoch) Equal(o Epoch) bool {
	return e.Compare(o) == 0 && slices.Equal(e.Members, o.Members)
}

// Foreign reports whether e is neither the recorded epoch nor before it: it is newer, or its number was given twice.
func (e Epoch) Foreign(recorded Epoch) bool { return e.Compare(recorded) >= 0 && !e.Equal(recorded) }

// Has reports whether a replica is a member.
func (e Epoch) Has(replica string) bool { return slices.Contains(e.Members, replica) }

// String returns the form for messages: 4.1[a b c].
func (e Epoch) String() string {
	if e.IsZero() {
		return "none"
	}
	return fmt.Sprintf("%d.%d[%s]", e.Generation, e.Counter, strings.Join(e.Members, " "))
}

func sign(n int64) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}

// The reasons why an engine may not start. Each is wrapped in an error that names the replicas.
var (
	// ErrMemberMissing says that no member of the recorded epoch has admitted the engine.
	ErrMemberMissing = errors.New("no replica with all data is available")
	// ErrRolledBack says that the API object is older than the data: a replica shows an epoch that cannot precede the
	// object's epoch.
	ErrRolledBack = errors.New("the cluster's record is older than the data")
	// ErrNotEmpty says that a replica shows an epoch although the volume was never started.
	ErrNotEmpty = errors.New("a replica of a new volume already has data")
	// ErrNoMembers says that there is no replica to start with.
	ErrNoMembers = errors.New("the volume has no replica")
)

// Shown is the information that a replica which admitted the engine gives about itself.
type Shown struct {
	Epoch Epoch
	// Rebuilding says that a copy to it was started and, as far as it knows, not finished.
	Rebuilding bool
}

// PlanStart decides with which epoch an engine of the given generation starts.
//
// recorded is the epoch in the API object (zero before the first start). wanted names all replicas of the volume. shown
// has an entry for each replica that admitted the engine. Any members of the recorded epoch suffice, at least one,
// because each holds every acknowledged write. At the first start nothing was ever written, so any wanted replicas
// suffice. The new epoch leaves absent replicas out. It is recorded before the first acknowledgement, so they cannot
// come back with less data than the others.
//
// Rules:
//
//   - If a replica shows an epoch that is neither before the recorded one nor equal to it, nothing starts
//     (ErrRolledBack), whether the replica is a member or not. The epoch is newer, or its number was given a second
//     time after the record was restored from a backup.
//   - A replica outside the recorded epoch is never taken.
//   - A replica under rebuild is taken only if the record lists it. In that case the copy was finished and flushed
//     before the epoch was recorded.
func PlanStart(recorded Epoch, generation int64, wanted []string, shown map[string]Shown) (Epoch, error) {
	var foreign []string
	for name, s := range shown {
		if s.Epoch.Foreign(recorded) {
			foreign = append(foreign, "replica "+name+" has epoch "+s.Epoch.String())
		}
	}
	slices.Sort(foreign)
	switch {
	case len(foreign) > 0 && recorded.IsZero():
		return Epoch{}, fmt.Errorf("%w: %s", ErrNotEmpty, strings.Join(foreign, ", "))
	case len(foreign) > 0:
		return Epoch{}, fmt.Errorf("%w: the Engine object records epoch %s, but %s", ErrRolledBack, recorded, strings.Join(foreign, ", "))
	}

	may := recorded.Members
	if recorded.IsZero() {
		may = wanted
	}
	if len(may) == 0 {
		return Epoch{}, ErrNoMembers
	}
	var present []string
	for _, name := range may {
		if s, ok := shown[name]; ok && (!s.Rebuilding || !recorded.IsZero()) {
			present = append(present, name)
		}
	}
	if len(present) == 0 {
		missing := slices.Sorted(slices.Values(may))
		return Epoch{}, fmt.Errorf("%w: %s", ErrMemberMissing, strings.Join(missing, ", "))
	}
	return NewEpoch(generation, 1, present), nil
}

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
