package copies

import (
	"maps"
	"slices"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Step moves the replicas of a volume that is served towards the target, as far as this is possible now. Its parts
// do not depend on each other, except GiveUp: a step that does anything else deletes no replica.
type Step struct {
	Replicas  []*longhorn.Replica // their specs change
	Engine    *longhorn.Engine    // its replica addresses change; nil: they do not
	Make      *longhorn.Replica   // nil: none
	GiveUp    *Surplus            // nil: none
	Scheduled Scheduling
	// BeginsOn is the node where the rebuild of a replica starts; "": none starts.
	BeginsOn string
	// MakesLocal: the only reason for Make is that the volume has no replica where it is used.
	MakesLocal bool
	// AwaitsTurn: a rebuild could start, but its node already runs as many as it may.
	AwaitsTurn bool
	// After is the time until the next sync although nothing changed; 0: none is needed.
	After time.Duration
}

// Surplus is a replica to be deleted, and the engine as the plan saw it, which runs without the replica. The replica
// must be deleted only if the API server shows the volume, the engine and the replica in the same state.
type Surplus struct {
	Replica *longhorn.Replica
	Engine  *longhorn.Engine
	Why     Reason
}

// NextStep requires that the replicas are known. degradedSince is the stored time since when there have been too
// few good replicas.
//
//	target               current state                 step
//	one more replica     -                             create it, if there is a place; one beyond the count waits
//	                                                   until the dropped replicas are gone
//	keep, build          member                        the engine's spec lists it
//	build                being rebuilt                 the engine's spec lists it
//	build                serves, its time has come     add it to the engine's spec, one at a time
//	drop                 member                        remove it from the engine's spec, one at a time
//	drop                 the recorded epoch lacks it   delete it, one at a time
func NextStep(in Facts, c State, degradedSince string) Step {
	c = record(in, c)
	f := policyFactsOf(in, c, degradedSince)
	t := targetOf(f)
	s := Step{Scheduled: AllPlaced, After: t.After}
	hasPlace := true
	if t.Add != nil {
		s.Make, s.Scheduled = place(in, f, *t.Add)
		if hasPlace = s.Make != nil; t.Add.Why != whyCount && drops(f, t) {
			s.Make = nil
		}
		s.MakesLocal = s.Make != nil && t.Add.Why == whyLocal
	} else if f.consumer != "" && f.localCopy() == "" && f.movedSinceLocal() && f.untilSettled() > 0 {
		s.Scheduled = settles(f)
	}
	asked := askedFor(in, f, t)
	// If the rebuild of a replica is about to be canceled, its turn is free for another replica.
	if !slices.ContainsFunc(f.List, func(v View) bool { return isBeingRebuilt(v) && (v.member || asked[v.Name] != "") }) {
		v, wait, waits := nextRebuild(in, f, t, !hasPlace)
		s.After, s.AwaitsTurn = Sooner(s.After, wait), waits
		if v != nil {
			asked[v.Name], s.BeginsOn = types.ReplicaAddress(v.Replica), v.Spec.NodeID
			f.begins(v.Name)
		}
	}
	if !maps.Equal(asked, in.Engine.Spec.ReplicaAddressMap) {
		s.Engine = in.Engine.DeepCopy()
		s.Engine.Spec.ReplicaAddressMap = asked
	}
	s.Replicas = changed(in.Replicas, f.List)
	if s.Engine == nil && s.Make == nil && len(s.Replicas) == 0 {
		s.GiveUp = giveUp(in, f, t)
	}
	return s
}

// drops reports whether a replica must go, and its object is not being deleted yet. It still has its data, so a new
// replica would be the second one beyond the count. The deletion of its object is an event that causes a new plan.
func drops(f policyFacts, t Target) bool {
	return slices.ContainsFunc(f.List, func(v View) bool { return t.Copies[v.Name].Fate == fateDrop && v.DeletionTimestamp == nil })
}

// askedFor returns the replicas that the engine must have, except the one that is about to start its rebuild. These
// are all members except one that leaves, and the replica that is being rebuilt. A member stays in the list even if
// its object is not found: a missing object proves nothing.
func askedFor(in Facts, f policyFacts, t Target) map[string]string {
	asked := map[string]string{}
	leaving := nextToLeave(f, t)
	for name, at := range in.Engine.Spec.ReplicaAddressMap {
		if slices.Contains(in.Engine.Status.Epoch.Members, name) && name != leaving {
			asked[name] = at
		}
	}
	for _, v := range f.List {
		switch {
		case v.member && v.Name != leaving && asked[v.Name] == "" && v.Status.IP != "":
			asked[v.Name] = types.ReplicaAddress(v.Replica)
		case v.Underway && t.Copies[v.Name].Fate == fateBuild:
			asked[v.Name] = in.Engine.Spec.ReplicaAddressMap[v.Name]
		}
	}
	return asked
}

// nextToLeave picks the member that the engine must exclude now. A member that is not healthy comes first, then the
// least needed healthy member. "": none.
func nextToLeave(f policyFacts, t Target) string {
	isDropped := func(v View) bool { return v.member && t.Copies[v.Name].Fate == fateDrop }
	var good []View
	for _, v := range f.List {
		switch {
		case v.IsHealthy():
			good = append(good, v)
		case isDropped(v):
			return v.Name
		}
	}
	if i := f.leastNeeded(good, isDropped); i >= 0 {
		return good[i].Name
	}
	return ""
}

// begins resets the stored healthy time of a replica whose rebuild is about to start. It does not count as healthy
// until the rebuild succeeds.
func (f policyFacts) begins(name string) {
	for i, v := range f.List {
		if v.Name == name && v.Spec.HealthyAt != "" {
			f.List[i].Replica = v.DeepCopy()
			f.List[i].Spec.HealthyAt = ""
		}
	}
}

// changed lists the replicas with a changed spec.
func changed(was []*longhorn.Replica, list []View) []*longhorn.Replica {
	var replicas []*longhorn.Replica
	for i, v := range list {
		if v.Spec != was[i].Spec {
			replicas = append(replicas, v.Replica)
		}
	}
	return replicas
}

// giveUp picks a replica to delete: the recorded epoch lacks it, and the engine no longer uses it.
func giveUp(in Facts, f policyFacts, t Target) *Surplus {
	for _, v := range f.List {
		holds := v.member || v.asked || v.mode == longhorn.ReplicaModeWO || v.mode == longhorn.ReplicaModeRW
		if t.Copies[v.Name].Fate == fateDrop && !holds && v.DeletionTimestamp == nil && f.hasProvenOther(v) {
			return &Surplus{Replica: v.Replica, Engine: in.Engine, Why: t.Copies[v.Name].Why}
		}
	}
	return nil
}
