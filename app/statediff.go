package app

import (
	protobuf "google.golang.org/protobuf/proto"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// stateDiff has the differences between two consecutive states of the instance manager. A rebuild changes the state of
// one engine every second. Then only this engine must be synced: a node may have a thousand engines.
type stateDiff struct {
	all      bool     // every engine and replica may have changed
	engines  []string // that changed, appeared or disappeared
	replicas []string // the same
	// phases: the phase of a replica changed, or a replica appeared or disappeared. Engines depend on the phases of
	// replicas, including replicas with which they have not been started yet.
	phases bool
}

// diffStates compares two states; nil: the instance manager does not answer.
func diffStates(before, now *proto.State) stateDiff {
	if before == nil || now == nil || !protobuf.Equal(before.GetInfo(), now.GetInfo()) || !equalLists(before.GetDisks(), now.GetDisks()) {
		return stateDiff{all: true}
	}
	var d stateDiff
	d.engines = changedNames(before.GetEngines(), now.GetEngines(), nil)
	d.replicas = changedNames(before.GetReplicas(), now.GetReplicas(), func(before, now *proto.ReplicaState) {
		if before.GetPhase() != now.GetPhase() {
			d.phases = true
		}
	})
	return d
}

type named interface {
	comparable
	protobuf.Message
	GetName() string
}

// changedNames returns the names of the states that differ, in no particular order. differ is called with both states
// of each name; a state that is missing in one list is nil.
func changedNames[T named](before, now []T, differ func(before, now T)) []string {
	was, is := byName(before), byName(now)
	var none T
	var names []string
	for name, states := range is {
		old := was[name]
		if len(states) == 1 && len(old) == 1 && protobuf.Equal(old[0], states[0]) {
			continue
		}
		names = append(names, name)
		if differ == nil {
			continue
		}
		if len(old) == 0 {
			old = []T{none}
		}
		differ(old[0], states[0])
	}
	for name, old := range was {
		if len(is[name]) > 0 {
			continue
		}
		names = append(names, name)
		if differ != nil {
			differ(old[0], none)
		}
	}
	return names
}

// byName has the states of each name. A name may be twice in a list for a moment, while an engine takes over the device
// of a former process; such a name counts as changed.
func byName[T named](list []T) map[string][]T {
	m := make(map[string][]T, len(list))
	for _, s := range list {
		m[s.GetName()] = append(m[s.GetName()], s)
	}
	return m
}

func equalLists[T protobuf.Message](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !protobuf.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}
