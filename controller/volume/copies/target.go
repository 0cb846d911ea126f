package copies

import (
	"slices"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Target is the set of replicas that a served volume must have, with the reasons. The policies derive it from what
// is known of the replicas. A step is the difference between the target and the current state.
//
//	facts --policies----> a decision per replica --+
//	      \-additions---> one more replica --------+--> Target --> Step
type Target struct {
	// Copies has a decision on each existing replica, by name.
	Copies map[string]Decision
	// Add is a replica that must be created; nil: none. There is at most one at a time.
	Add *Addition
	// After is the time after which the target may change without an event; 0: never.
	After time.Duration
}

// Decision is the fate of a replica, and the reason.
type Decision struct {
	Fate Fate
	Why  Reason
}

// Fate is what must happen to a replica.
type Fate string

const (
	fateKeep  Fate = "keep"  // it stays; if it is a member, the engine's spec lists it
	fateBuild Fate = "build" // it must become a member, as soon as it can
	fateDrop  Fate = "drop"  // the engine must exclude it, then it is deleted
)

// Addition is a replica that must be created.
type Addition struct {
	Why Reason
	// Node is where it must be placed; empty: on any node.
	Node string
	// Near is the preferred node; empty: no preference.
	Near string
	// Moves is the replica that it replaces; empty: none. That replica stays until the new one is good.
	Moves string
}

// Reason is why a replica is needed or not needed.
type Reason string

// The reasons of decisions and additions.
const (
	whyMember     Reason = "member"     // it has all data, and counts
	whyLastGood   Reason = "last good"  // no other replica may have all data
	whyUnsettled  Reason = "unsettled"  // no epoch without it is recorded: only it may have an acknowledged write
	whyRebuilding Reason = "rebuilding" // it is being rebuilt
	whyAwaited    Reason = "awaited"    // it will be rebuilt
	whyAway       Reason = "away"       // it may come back
	whyLost       Reason = "lost"       // it cannot come back, and stays until there are enough other replicas
	whyLocal      Reason = "local"      // it is on the node where the volume is used
	whyEvicting   Reason = "evicting"   // it goes when its replacement is good
	whyBalance    Reason = "balance"    // the volume is better spread with it and without another one

	whyDeleted  Reason = "deleted"   // its object is being deleted
	whyNodeGone Reason = "node gone" // its node was removed
	whyStale    Reason = "stale"     // it failed longer ago than the volume's staleReplicaTimeout
	whyEvicted  Reason = "evicted"   // its replacement is good
	whySurplus  Reason = "surplus"   // there are enough other replicas

	whyCount Reason = "count" // there are fewer good replicas than requested
	whyEvict Reason = "evict" // a replica must leave its disk
)

// Explain returns the reason of a deletion in words for users.
func (r Reason) Explain() string {
	switch r {
	case whyEvicted:
		return "its disk is being evicted and the volume has enough healthy replicas"
	case whySurplus:
		return "the volume has enough other replicas"
	case whyStale:
		return "it failed longer ago than the volume's staleReplicaTimeout"
	case whyNodeGone:
		return "its node was removed from Kubernetes"
	case whyDeleted:
		return "it was deleted"
	}
	return "the volume no longer needs it (" + string(r) + ")"
}

// policyFacts are everything that the policies see. They are derived from the Facts.
type policyFacts struct {
	State
	prospects map[string]prospect // of replicas that are not members
	asked     int                 // the requested number of replicas
	spared    int                 // good replicas beyond it that are not deleted yet, since the count was lowered
	engine    string              // the node of the engine
	zones     map[string]string   // of nodes, by name; all nodes without a zone share one
	// consumer is the node that needs a local replica; empty: none does.
	consumer string
	// strict: the volume is strict-local. Its only replica may be copied only to another disk of the consumer's node.
	strict bool
	// attachedAt is the stored time since when the volume has been used on its node. localAt is the stored time at
	// which the last local replica was created; empty: none was.
	attachedAt, localAt string
	// degradedSince is the stored time since when there have been too few replicas; empty: there are enough.
	degradedSince string
	patience      time.Duration // the time in which a lost replica may return before a replacement is created
	stale         time.Duration // after that time a failed replica is deleted; 0: never
	rebuilds      bool          // the settings allow rebuilds
	balance       longhorn.AutoBalance
	relieves      bool            // replicas are moved off disks that are too full
	pressed       map[string]bool // replicas whose disk is too full
	now           time.Time
}

func policyFactsOf(in Facts, c State, degradedSince string) policyFacts {
	f := policyFacts{
		State: c, prospects: map[string]prospect{}, zones: map[string]string{}, asked: in.Volume.Spec.NumberOfReplicas, engine: in.Engine.Spec.NodeID,
		degradedSince: degradedSince, patience: in.ReplenishmentWait, stale: time.Duration(in.Volume.Spec.StaleReplicaTimeout) * time.Minute,
		rebuilds: in.RebuildLimit > 0, balance: AutoBalanceOf(in.Volume, in.AutoBalance), now: in.Now,
		relieves: in.relieves(), pressed: in.Pressed,
	}
	f.attachedAt, f.localAt = AttachedSince(in), in.Volume.Status.LastLocalReplicaAt
	f.strict = types.IsStrictLocal(in.Volume)
	f.spared, _ = SparedOf(in)
	if f.strict || in.Volume.Spec.DataLocality == longhorn.DataLocalityBestEffort && !in.Engine.Spec.DisableFrontend {
		f.consumer = in.Engine.Spec.NodeID
	}
	for name, n := range in.Nodes {
		f.zones[name] = n.Zone
	}
	for _, n := range in.Cluster.Nodes { // also nodes where a replica may be placed
		f.zones[n.Name] = n.Zone
	}
	for _, v := range c.List {
		if !v.member {
			f.prospects[v.Name] = prospectOf(in, v)
		}
	}
	return f
}

// AttachedSince is the stored time at which the volume was attached to the node of its engine.
func AttachedSince(in Facts) string {
	if s := in.Volume.Status; s.CurrentNodeID == in.Engine.Spec.NodeID && s.AttachedAt != "" {
		return s.AttachedAt
	}
	return types.Timestamp(in.Now)
}

// targetOf asks the policies, in their order, about each replica: the first policy that decides wins. Then it asks the
// additions for one more replica, in their order.
func targetOf(f policyFacts) Target {
	t := Target{Copies: map[string]Decision{}}
	for _, v := range f.List {
		d := decide(f, v)
		t.Copies[v.Name] = d
		if d.Fate != fateDrop && !v.member {
			t.After = Sooner(Sooner(t.After, f.staleIn(v)), f.localRest(v))
			if d.Why == whyBalance {
				t.After = Sooner(t.After, f.rest(v))
			}
		}
	}
	if !f.rebuilds {
		return t // a new replica is empty, and would stay empty
	}
	for _, wants := range additions {
		add, wait := wants(f)
		t.After = Sooner(t.After, wait)
		if add != nil {
			if t.Add = add; f.strict {
				add.Node = f.consumer
			}
			break
		}
	}
	return t
}

func decide(f policyFacts, v View) Decision {
	for _, p := range policies {
		if d, ok := p(f, v); ok {
			return d
		}
	}
	panic("BUG: no policy decides about replica " + v.Name)
}

// staying is the number of good replicas that stay where they are.
func (f policyFacts) staying() int {
	return f.count(func(v View) bool { return v.isSound() && !v.evicted })
}

// hasAnother reports whether another replica than v is good.
func (f policyFacts) hasAnother(v View) bool {
	return slices.ContainsFunc(f.List, func(o View) bool { return o.Name != v.Name && o.isSound() })
}

// hasProvenOther reports whether another replica than v serves now and was recorded as good. The record is a second
// proof in addition to the engine's status.
func (f policyFacts) hasProvenOther(v View) bool {
	return slices.ContainsFunc(f.List, func(o View) bool { return o.Name != v.Name && o.isSound() && o.Spec.LastHealthyAt != "" })
}

// staleIn is the time until a failed replica is deleted according to staleReplicaTimeout; 0: never, or it is due. A
// replica that never became good is not deleted before its replacement may be created. Otherwise, where no replica
// can be opened, each deletion would be the reason for the next creation.
func (f policyFacts) staleIn(v View) time.Duration {
	if f.stale <= 0 || v.Spec.FailedAt == "" {
		return 0
	}
	after := f.stale
	if v.Spec.LastHealthyAt == "" {
		after = max(after, f.patience, types.MaxRebuildBackoff)
	}
	return types.Until(v.Spec.FailedAt, after, f.now)
}

func (f policyFacts) isStale(v View) bool {
	return f.stale > 0 && v.Spec.FailedAt != "" && f.staleIn(v) == 0
}

// Sooner is the shorter of two waiting times; 0 is never.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
