package volume

import (
	"slices"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Target is which replicas a volume that is served shall have, and why. The policies derive it from
// what is known of the replicas; a step is the difference between it and what is there.
//
//	facts --policies----> a decision per replica --+
//	      \-additions---> one more replica --------+--> Target --> Step
type Target struct {
	// Copies has a decision on each replica that exists, by name.
	Copies map[string]Decision
	// Add is a replica that shall be made; nil: none. There is one at a time.
	Add *Addition
	// After is when the passing of time may change the target; 0: never.
	After time.Duration
}

// Decision is what shall become of a replica.
type Decision struct {
	Fate Fate
	Why  Reason
}

// Fate is what shall become of a replica.
type Fate string

const (
	fateKeep  Fate = "keep"  // it stays; the engine is asked to have it if it is a member
	fateBuild Fate = "build" // it shall become a member, as soon as it can
	fateDrop  Fate = "drop"  // the engine shall do without it, and then it is given up
)

// Addition is a replica that shall be made.
type Addition struct {
	Why Reason
	// Node is where it must be; empty: anywhere.
	Node string
	// Near is where it should rather be; empty: no matter.
	Near string
	// Moves is the replica that it stands in for while that one goes on; empty: none.
	Moves string
}

// Reason says why a replica is wanted, or not.
type Reason string

// The reasons of decisions and additions.
const (
	whyMember     Reason = "member"     // it holds all data, and counts
	whyLastGood   Reason = "last good"  // there may be no other with all data
	whyUnsettled  Reason = "unsettled"  // no epoch without it is recorded: it may alone have an acknowledged write
	whyRebuilding Reason = "rebuilding" // it is on its way to membership
	whyAwaited    Reason = "awaited"    // it will be rebuilt
	whyAway       Reason = "away"       // it may come back
	whyLost       Reason = "lost"       // it cannot come back, and stays until there are enough others
	whyLocal      Reason = "local"      // it is on the node where the volume is used
	whyEvicting   Reason = "evicting"   // it goes when another has taken its place
	whyBalance    Reason = "balance"    // with it, and without another one, the volume lies better

	whyDeleted  Reason = "deleted"   // its object is being deleted
	whyNodeGone Reason = "node gone" // its node was removed
	whyStale    Reason = "stale"     // it failed longer ago than the user waits for it
	whyEvicted  Reason = "evicted"   // others have taken its place
	whySurplus  Reason = "surplus"   // there are enough others

	whyCount Reason = "count" // there are fewer good replicas than asked for
	whyEvict Reason = "evict" // a replica must leave its disk
)

// explain says for people why a replica is given up.
func (r Reason) explain() string {
	switch r {
	case whyEvicted:
		return "it was to leave its disk, and the volume has enough others that are good"
	case whySurplus:
		return "the volume has enough others"
	case whyStale:
		return "it failed longer ago than the volume's staleReplicaTimeout"
	case whyNodeGone:
		return "its node was removed from Kubernetes"
	case whyDeleted:
		return "it was deleted"
	}
	return "the volume does without it (" + string(r) + ")"
}

// facts are all that the policies see.
type facts struct {
	copies
	prospects map[string]prospect // of those that are no members
	asked     int                 // how many replicas are asked for
	spared    int                 // how many good ones beyond that are not given up yet, since the count was lowered
	engine    string              // the node of the engine
	zones     map[string]string   // of nodes, by name; all without one are in the same
	// consumer is the node on which a replica is wanted; empty: no matter where.
	consumer string
	// strict: the volume is strict-local. Its one replica may be copied to another disk of the consumer's node alone.
	strict bool
	// attachedAt is the stored time since when the volume has been used where it is, localAt that at
	// which a replica was last made for that reason; empty: none was.
	attachedAt, localAt string
	// degradedSince is the stored time since when there have been too few; empty: there are enough.
	degradedSince string
	patience      time.Duration // how long a lost replica may come back before another one is made
	stale         time.Duration // after that time a failed replica is given up; 0: never
	rebuilds      bool          // replicas may be rebuilt at all
	balance       longhorn.AutoBalance
	relieves      bool            // copies are moved off disks that are too full
	pressed       map[string]bool // replicas whose disk is too full
	now           time.Time
}

func factsOf(in Input, c copies, degradedSince string) facts {
	f := facts{
		copies: c, prospects: map[string]prospect{}, zones: map[string]string{}, asked: in.Volume.Spec.NumberOfReplicas, engine: in.Engine.Spec.NodeID,
		degradedSince: degradedSince, patience: in.ReplenishmentWait, stale: time.Duration(in.Volume.Spec.StaleReplicaTimeout) * time.Minute,
		rebuilds: in.RebuildLimit > 0, balance: autoBalanceOf(in.Volume, in.AutoBalance), now: in.Now,
		relieves: in.relieves(), pressed: in.Pressed,
	}
	f.attachedAt, f.localAt = attachedSince(in), in.Volume.Status.LastLocalReplicaAt
	f.strict = types.IsStrictLocal(in.Volume)
	f.spared, _ = sparedOf(in)
	if f.strict || in.Volume.Spec.DataLocality == longhorn.DataLocalityBestEffort && !in.Engine.Spec.DisableFrontend {
		f.consumer = in.Engine.Spec.NodeID
	}
	for name, n := range in.Nodes {
		f.zones[name] = n.Zone
	}
	for _, n := range in.Cluster.Nodes { // those where a replica may be placed, too
		f.zones[n.Name] = n.Zone
	}
	for _, v := range c.list {
		if !v.member {
			f.prospects[v.Name] = prospectOf(in, v)
		}
	}
	return f
}

// targetOf asks the policies, in their order, about each replica: the first that has an opinion
// decides. Then it asks the additions, in their order, for one more replica.
func targetOf(f facts) Target {
	t := Target{Copies: map[string]Decision{}}
	for _, v := range f.list {
		d := decide(f, v)
		t.Copies[v.Name] = d
		if d.Fate != fateDrop && !v.member {
			t.After = sooner(sooner(t.After, f.staleIn(v)), f.localRest(v))
			if d.Why == whyBalance {
				t.After = sooner(t.After, f.rest(v))
			}
		}
	}
	if !f.rebuilds {
		return t // a new replica is empty, and would stay so
	}
	for _, wants := range additions {
		add, wait := wants(f)
		t.After = sooner(t.After, wait)
		if add != nil {
			if t.Add = add; f.strict {
				add.Node = f.consumer
			}
			break
		}
	}
	return t
}

func decide(f facts, v copyView) Decision {
	for _, p := range policies {
		if d, ok := p(f, v); ok {
			return d
		}
	}
	panic("BUG: no policy decides about replica " + v.Name)
}

// staying is how many good replicas will stay where they are.
func (f facts) staying() int {
	return f.count(func(v copyView) bool { return v.isSound() && !v.evicted })
}

// hasAnother tells whether another replica than v is good.
func (f facts) hasAnother(v copyView) bool {
	return slices.ContainsFunc(f.list, func(o copyView) bool { return o.Name != v.Name && o.isSound() })
}

// hasProvenOther tells whether another replica than v serves now and was noted to be good: a second
// witness beside the engine's word.
func (f facts) hasProvenOther(v copyView) bool {
	return slices.ContainsFunc(f.list, func(o copyView) bool { return o.Name != v.Name && o.isSound() && o.Spec.LastHealthyAt != "" })
}

// staleIn is how long it is until the user gives a failed replica up; 0: never, or it is due. One that
// never became good is not given up sooner than another one may be made beside it: where none can be
// opened, each would be the next one's reason.
func (f facts) staleIn(v copyView) time.Duration {
	if f.stale <= 0 || v.Spec.FailedAt == "" {
		return 0
	}
	after := f.stale
	if v.Spec.LastHealthyAt == "" {
		after = max(after, f.patience, types.MaxRebuildBackoff)
	}
	return types.Until(v.Spec.FailedAt, after, f.now)
}

func (f facts) isStale(v copyView) bool {
	return f.stale > 0 && v.Spec.FailedAt != "" && f.staleIn(v) == 0
}

// sooner is the shorter of two times until something is due; 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
