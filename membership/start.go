package membership

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Why an engine may not start. Each is wrapped in an error that names the replicas.
var (
	// ErrMemberMissing: a member of the recorded epoch did not admit the engine.
	ErrMemberMissing = errors.New("a member is missing")
	// ErrRolledBack: a replica shows a newer epoch than the API object, so the object is older than the data.
	ErrRolledBack = errors.New("the cluster's record is older than the data")
	// ErrNotEmpty: the volume was never started, yet a replica shows an epoch.
	ErrNotEmpty = errors.New("a replica of a new volume is not new")
	// ErrNoMembers: there is no replica to start with.
	ErrNoMembers = errors.New("the volume has no replica")
)

// Shown is what a replica that admitted the engine says of itself.
type Shown struct {
	Epoch Epoch
}

// PlanStart decides with which epoch an engine of the given generation starts.
//
// recorded is the epoch in the API object (zero before the first start), wanted names
// all replicas of the volume, shown has an entry for each replica that admitted the
// engine. At the first start all wanted replicas become members. Later starts need
// every member of the recorded epoch; a replica outside of it is never a source and
// is left out.
//
// Rules: a replica with a newer epoch than the recorded one stops everything
// (ErrRolledBack), whether it is a member or not.
func PlanStart(recorded Epoch, generation int64, wanted []string, shown map[string]Shown) (Epoch, error) {
	var newer []string
	for name, s := range shown {
		if s.Epoch.Compare(recorded) > 0 {
			newer = append(newer, name+" shows "+s.Epoch.String())
		}
	}
	slices.Sort(newer)
	switch {
	case len(newer) > 0 && recorded.IsZero():
		return Epoch{}, fmt.Errorf("%w: %s", ErrNotEmpty, strings.Join(newer, ", "))
	case len(newer) > 0:
		return Epoch{}, fmt.Errorf("%w: recorded %s, but %s", ErrRolledBack, recorded, strings.Join(newer, ", "))
	}

	members := recorded.Members
	if recorded.IsZero() {
		members = wanted
	}
	if len(members) == 0 {
		return Epoch{}, ErrNoMembers
	}
	var missing []string
	for _, name := range members {
		if _, ok := shown[name]; !ok {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return Epoch{}, fmt.Errorf("%w: %s", ErrMemberMissing, strings.Join(missing, ", "))
	}
	return NewEpoch(generation, 1, members), nil
}
