package membership

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

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
