package volume

import (
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// SizeUnit is what volume sizes are multiples of, in bytes.
const SizeUnit = 2 << 20

// Input is all that a plan for one volume rests on. Nothing in it is modified.
type Input struct {
	Volume     *longhorn.Volume
	Engine     *longhorn.Engine // nil: there is none
	Replicas   []*longhorn.Replica
	Attachment *longhorn.VolumeAttachment // nil: there is none

	// Owner is the node of this daemon.
	Owner string
	// DefaultReplicaCount is the setting's value.
	DefaultReplicaCount int
	// ReplenishmentWait is how long a lost replica may come back before another one is made.
	ReplenishmentWait time.Duration
	// Nodes that hold the engine or a replica, by name.
	Nodes map[string]NodeFact
	// Stranded are the replicas whose node is back without their disk (types.LacksDisk).
	Stranded map[string]bool
	// Cluster is where replicas may be placed.
	Cluster scheduler.Snapshot
	// Names has a fresh name and directory for each replica that may be made.
	Names []ReplicaNames
	Now   time.Time
}

// NodeFact is what is known of a node, apart from room for replicas.
type NodeFact struct {
	Down bool // types.IsNodeDown
	Gone bool // types.IsNodeGone
	// Process identifies its instance manager's process; empty while that does not run.
	Process string
}

// ReplicaNames are the names of a replica to be made.
type ReplicaNames struct{ Replica, Directory string }

// Plan is what has to be done, in the order of its fields. A nil or empty field asks for nothing.
type Plan struct {
	// Volume has its metadata and spec filled in; when set, everything else waits
	// for the next sync.
	Volume *longhorn.Volume

	EnsureSecret     bool
	CreateAttachment *longhorn.VolumeAttachment
	CreateEngine     *longhorn.Engine
	CreateReplicas   []*longhorn.Replica
	UpdateReplicas   []*longhorn.Replica
	UpdateEngine     *longhorn.Engine
	// Surplus is a replica that is not needed any more.
	Surplus *Surplus

	Status longhorn.VolumeStatus
	Events []Event
	// After is when to look again though nothing changed; 0: never.
	After time.Duration

	fault *fault // why the volume cannot go on; nil: it can, or that is not known
}

// Surplus is a replica to be deleted, and the engine that does without it as the plan saw
// it. It must be deleted only if the API server shows the same of volume, engine and replica.
type Surplus struct {
	Replica *longhorn.Replica
	Engine  *longhorn.Engine
}

// fault is why a volume cannot be attached, or cannot be detached.
type fault struct{ reason, message string }

// again has the volume looked at after d at the latest; 0 asks for nothing.
func (p *Plan) again(d time.Duration) {
	if d > 0 && (p.After == 0 || d < p.After) {
		p.After = d
	}
}

// spec is a replica's as it will be written.
func (p *Plan) spec(r *longhorn.Replica) *longhorn.ReplicaSpec {
	for _, u := range p.UpdateReplicas {
		if u.Name == r.Name {
			return &u.Spec
		}
	}
	return &r.Spec
}

// edit returns the copy of a replica that will be written.
func (p *Plan) edit(r *longhorn.Replica) *longhorn.ReplicaSpec {
	for _, u := range p.UpdateReplicas {
		if u.Name == r.Name {
			return &u.Spec
		}
	}
	u := r.DeepCopy()
	p.UpdateReplicas = append(p.UpdateReplicas, u)
	return &u.Spec
}

// want has a replica run or stop.
func (p *Plan) want(r *longhorn.Replica, desire longhorn.DesireState) {
	if r.Spec.DesireState != desire {
		p.edit(r).DesireState = desire
	}
}

// Event is told about the volume once the status that it speaks of is written.
type Event struct{ Type, Reason, Message string }

// plan decides what a volume that is not being deleted needs next.
func plan(in Input) Plan {
	if filled := fill(in.Volume, in.DefaultReplicaCount); filled != nil {
		return Plan{Volume: filled, Status: in.Volume.Status}
	}
	p := Plan{Status: *in.Volume.Status.DeepCopy()}
	p.Status.OwnerID = in.Owner

	if in.Attachment == nil {
		p.CreateAttachment = newAttachment(in.Volume)
	}
	if in.Engine == nil {
		p.EnsureSecret = true
		p.CreateEngine = newEngine(in.Volume)
		p.Status.State = longhorn.VolumeStateCreating
		p.Status.Robustness = longhorn.VolumeRobustnessUnknown
		return p
	}
	switch missing := missingReplicas(in); {
	case missing > 0:
		placeReplicas(in, missing, &p)
	default:
		drive(in, &p)
		copies := copiesOf(in)
		judge(in, copies, &p)
		if copies.known {
			tend(in, copies, &p)
		} else if len(in.Replicas) >= in.Volume.Spec.NumberOfReplicas {
			setCondition(&p, in.Now, types.ConditionScheduled, longhorn.ConditionTrue, "", "")
		}
	}
	p.Events = append(p.Events, transitions(in.Volume, &p.Status)...)
	return p
}

// fill returns a copy of the volume with everything that the user may leave out, or nil
// when nothing is missing.
func fill(v *longhorn.Volume, defaultReplicas int) *longhorn.Volume {
	c := v.DeepCopy()
	changed := false
	if !types.HasFinalizer(c) {
		types.AddFinalizer(c)
		changed = true
	}
	if c.Labels[types.LabelVolume] != c.Name {
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		c.Labels[types.LabelVolume] = c.Name
		changed = true
	}
	if rest := c.Spec.Size % SizeUnit; rest != 0 {
		c.Spec.Size += SizeUnit - rest
		changed = true
	}
	if c.Spec.NumberOfReplicas == 0 {
		c.Spec.NumberOfReplicas = defaultReplicas
		changed = true
	}
	if !changed {
		return nil
	}
	return c
}

func setCondition(p *Plan, now time.Time, kind string, status longhorn.ConditionStatus, reason, message string) {
	p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, longhorn.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
	}, now)
}
