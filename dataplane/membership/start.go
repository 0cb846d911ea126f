package membership

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Why an engine may not start. Each is wrapped in an error that names the replicas.
var (
	// ErrMemberMissing: no member of the recorded epoch has admitted the engine.
	ErrMemberMissing = errors.New("every member is missing")
	// ErrRolledBack: a replica shows an epoch that the API object does not lead to, so the object is older than the data.
	ErrRolledBack = errors.New("the cluster's record is older than the data")
	// ErrNotEmpty: the volume was never started, yet a replica shows an epoch.
	ErrNotEmpty = errors.New("a replica of a new volume is not new")
	// ErrNoMembers: there is no replica to start with.
	ErrNoMembers = errors.New("the volume has no replica")
)

// Shown is what a replica that admitted the engine says of itself.
type Shown struct {
	Epoch Epoch
	// Rebuilding: a copy to it was begun and, as far as it knows, not finished.
	Rebuilding bool
}

// PlanStart decides with which epoch an engine of the given generation starts.
//
// recorded is the epoch in the API object (zero before the first start), wanted names
// all replicas of the volume, shown has an entry for each replica that admitted the
// engine. Any members of the recorded epoch will do, at least one, for each holds every
// acknowledged write; at the first start, when nothing was ever written, any of the
// wanted replicas. Those that are absent are left out of the new epoch: it is recorded
// before the first acknowledgement, so they cannot come back with less than the others.
//
// Rules: a replica with an epoch that is not before the recorded one, nor is it, stops
// everything (ErrRolledBack), whether it is a member or not: it is newer, or its number
// was given a second time, after the record was restored from a backup. One outside the
// recorded epoch is never taken. One that is being rebuilt is taken only if the record
// lists it: then the copy was finished and flushed before that was recorded.
func PlanStart(recorded Epoch, generation int64, wanted []string, shown map[string]Shown) (Epoch, error) {
	var foreign []string
	for name, s := range shown {
		if s.Epoch.Foreign(recorded) {
			foreign = append(foreign, name+" shows "+s.Epoch.String())
		}
	}
	slices.Sort(foreign)
	switch {
	case len(foreign) > 0 && recorded.IsZero():
		return Epoch{}, fmt.Errorf("%w: %s", ErrNotEmpty, strings.Join(foreign, ", "))
	case len(foreign) > 0:
		return Epoch{}, fmt.Errorf("%w: recorded %s, but %s", ErrRolledBack, recorded, strings.Join(foreign, ", "))
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
