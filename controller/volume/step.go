package volume

import (
	"maps"
	"slices"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// Step brings the replicas of a volume that is served nearer to the target, as far as that
// can be done now. Its parts are independent of each other, except for GiveUp, which comes
// only when there is nothing else to do.
type Step struct {
	Replicas  []*longhorn.Replica // whose spec changes
	Engine    *longhorn.Engine    // that is asked for other replicas; nil: for the same
	Make      *longhorn.Replica   // nil: none
	GiveUp    *Surplus            // nil: none
	Scheduled scheduling
	// BeginsOn is the node of the replica whose rebuild begins; "": none.
	BeginsOn string
	// MakesLocal: Make is there just because the volume has no replica where it is used.
	MakesLocal bool
	// AwaitsTurn: a rebuild could begin, but its node has none to spare.
	AwaitsTurn bool
	// After is when to look again though nothing changed; 0: never.
	After time.Duration
}

// nextStep is called only with known replicas. degradedSince is the stored time since when
// there have been too few good ones.
//
//	target               what is                       step
//	one more replica     -                             it is made, if there is a place; one beyond the count waits
//	                                                   until those that are dropped have gone
//	keep, build          member                        the engine is asked to have it
//	build                on its way to membership      the engine is asked to have it
//	build                serves, its time has come     the engine is asked to have it, one at a time
//	drop                 member                        the engine is asked to do without it, one at a time
//	drop                 the recorded epoch lacks it   it is given up, one at a time
func nextStep(in Input, c copies, degradedSince string) Step {
	c = record(in, c)
	f := factsOf(in, c, degradedSince)
	t := targetOf(f)
	s := Step{Scheduled: allPlaced, After: t.After}
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
	// A replica whose rebuild is about to be ended leaves its turn to another one.
	if !slices.ContainsFunc(f.list, func(v copyView) bool { return isBeingRebuilt(v) && (v.member || asked[v.Name] != "") }) {
		v, wait, waits := nextRebuild(in, f, t, !hasPlace)
		s.After, s.AwaitsTurn = sooner(s.After, wait), waits
		if v != nil {
			asked[v.Name], s.BeginsOn = address(v.Replica), v.Spec.NodeID
			f.begins(v.Name)
		}
	}
	if !maps.Equal(asked, in.Engine.Spec.ReplicaAddressMap) {
		s.Engine = in.Engine.DeepCopy()
		s.Engine.Spec.ReplicaAddressMap = asked
	}
	s.Replicas = changed(in.Replicas, f.list)
	if s.Engine == nil && s.Make == nil && len(s.Replicas) == 0 {
		s.GiveUp = giveUp(in, f, t)
	}
	return s
}

// drops tells whether a replica is to go that is there still, with its data: one more beyond the count would be the second. Its end is an event.
func drops(f facts, t Target) bool {
	return slices.ContainsFunc(f.list, func(v copyView) bool { return t.Copies[v.Name].Fate == fateDrop && v.DeletionTimestamp == nil })
}

// askedFor returns the replicas that the engine shall have, except one whose rebuild begins:
// all members but one that leaves, and the one that is being rebuilt. A member whose object
// cannot be seen stays: that proves nothing.
func askedFor(in Input, f facts, t Target) map[string]string {
	asked := map[string]string{}
	leaving := nextToLeave(f, t)
	for name, at := range in.Engine.Spec.ReplicaAddressMap {
		if slices.Contains(in.Engine.Status.Epoch.Members, name) && name != leaving {
			asked[name] = at
		}
	}
	for _, v := range f.list {
		switch {
		case v.member && v.Name != leaving && asked[v.Name] == "" && v.Status.IP != "":
			asked[v.Name] = address(v.Replica)
		case v.underway && t.Copies[v.Name].Fate == fateBuild:
			asked[v.Name] = in.Engine.Spec.ReplicaAddressMap[v.Name]
		}
	}
	return asked
}

// nextToLeave picks the member that the engine shall do without now: first one that is no
// good, then the good one that is needed least. "": none.
func nextToLeave(f facts, t Target) string {
	isDropped := func(v copyView) bool { return v.member && t.Copies[v.Name].Fate == fateDrop }
	var good []copyView
	for _, v := range f.list {
		switch {
		case v.isHealthy():
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

// begins notes that a replica's rebuild is about to start: until it succeeds it holds nothing.
func (f facts) begins(name string) {
	for i, v := range f.list {
		if v.Name == name && v.Spec.HealthyAt != "" {
			f.list[i].Replica = v.DeepCopy()
			f.list[i].Spec.HealthyAt = ""
		}
	}
}

// changed lists the replicas whose spec is not what it was.
func changed(was []*longhorn.Replica, list []copyView) []*longhorn.Replica {
	var replicas []*longhorn.Replica
	for i, v := range list {
		if v.Spec != was[i].Spec {
			replicas = append(replicas, v.Replica)
		}
	}
	return replicas
}

// giveUp picks a replica to delete: the recorded epoch lacks it, and the engine has let go
// of it.
func giveUp(in Input, f facts, t Target) *Surplus {
	for _, v := range f.list {
		holds := v.member || v.asked || v.mode == longhorn.ReplicaModeWO || v.mode == longhorn.ReplicaModeRW
		if t.Copies[v.Name].Fate == fateDrop && !holds && v.DeletionTimestamp == nil && f.hasProvenOther(v) {
			return &Surplus{Replica: v.Replica, Engine: in.Engine, Why: t.Copies[v.Name].Why}
		}
	}
	return nil
}
