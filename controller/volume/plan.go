package volume

import (
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// SizeUnit is the number of bytes that volume sizes are multiples of.
const SizeUnit = 2 << 20

// Input is everything that a plan for one volume is based on. A plan modifies nothing in it.
type Input struct {
	copies.Facts
	Attachment *longhorn.VolumeAttachment // nil: there is none
	Share      *longhorn.ShareManager     // nil: there is none
	// ShareImage is the image of new share managers.
	ShareImage string

	// Owner is the node of this daemon.
	Owner string
	// DefaultReplicaCount and DefaultLocality are the values for a new volume that does not specify them.
	DefaultReplicaCount int
	DefaultLocality     longhorn.DataLocality
	// SnapshotWarning is the number of snapshots from which the volume has a warning. SnapshotLimit is how many it may
	// have, unless its spec has a lower limit.
	SnapshotWarning, SnapshotLimit int
	// Growth is what the processes of Nodes can grow, by the node's name. A node whose process does not run is missing.
	Growth map[string]Growth
}

// Growth is what the process of a node's instance manager can grow.
type Growth struct{ Replicas, Devices bool }

// Plan is what to do, in the order of its fields. A nil or empty field requires no action.
type Plan struct {
	// Volume has its missing metadata and spec fields filled in. When it is set, everything else waits for the next
	// sync.
	Volume *longhorn.Volume
	// Labels are children that need the label of the volume again. When it is set, everything else waits for the next
	// sync.
	Labels *unlabelled

	EnsureSecret     bool
	CreateAttachment *longhorn.VolumeAttachment
	CreateEngine     *longhorn.Engine
	CreateReplicas   []*longhorn.Replica
	UpdateReplicas   []*longhorn.Replica
	UpdateEngine     *longhorn.Engine
	// Surplus is a replica that the volume does not need.
	Surplus *copies.Surplus
	// BeginsOn is the node on which UpdateEngine starts a rebuild; "": none starts.
	BeginsOn string
	share    shareStep
	// AwaitsTurn: the next write to a child starts a rebuild, when the volume has its turn.
	AwaitsTurn bool

	Status longhorn.VolumeStatus
	Events []Event
	// After is the time until the next sync although nothing changed; 0: none is needed.
	After time.Duration
}

// Fault is the reason why a volume cannot be attached or detached.
type Fault struct{ reason, message string }

// again requeues the volume after d at the latest; 0 does nothing.
func (p *Plan) again(d time.Duration) { p.After = copies.Sooner(p.After, d) }

// writesChildren reports whether the plan asks the API server to accept an object of the volume.
func (p *Plan) writesChildren() bool {
	return p.EnsureSecret || p.CreateAttachment != nil || p.CreateEngine != nil || p.UpdateEngine != nil ||
		len(p.CreateReplicas) > 0 || len(p.UpdateReplicas) > 0 || p.share.create != nil || p.share.update != nil
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

// want sets the desired state of a replica.
func (p *Plan) want(r *longhorn.Replica, desire longhorn.DesireState) {
	if r.Spec.DesireState != desire {
		p.edit(r).DesireState = desire
	}
}

// Event is recorded on the volume after the status that it describes is written.
type Event struct{ Type, Reason, Message string }

// plan decides the next actions for a volume that is not being deleted.
func plan(in Input) Plan {
	if filled := fill(in); filled != nil {
		return Plan{Volume: filled, Status: in.Volume.Status}
	}
	if lost := unlabelledOf(in); lost != nil {
		return Plan{Labels: lost, Status: in.Volume.Status}
	}
	p := Plan{Status: *in.Volume.Status.DeepCopy()}
	p.Status.OwnerID = in.Owner
	p.Status.ActualSize = actualSize(in.Replicas)
	if p.Status.Size == 0 {
		p.Status.Size = firstSize(in)
	}
	if p.Status.ObservedReplicaCount == 0 {
		p.Status.ObservedReplicaCount = in.Volume.Spec.NumberOfReplicas
	}

	share(in, &p)
	if in.Attachment == nil {
		p.CreateAttachment = children.NewAttachment(in.Volume)
	}
	if in.Engine == nil {
		p.EnsureSecret = true
		p.CreateEngine = children.NewEngine(in.Volume)
		p.Status.State = longhorn.VolumeStateCreating
		p.Status.Robustness = longhorn.VolumeRobustnessUnknown
		return p
	}
	if planFirst(in, &p) {
		expand(in, &p)
		mirrorInUse(in, &p.Status)
		p.Events = append(p.Events, transitions(in, &p.Status)...)
		return p
	}
	fault, state := drive(in, &p), copies.StateOf(in.Facts)
	if p.Status.AttachedAt = ""; p.Status.CurrentNodeID != "" {
		p.Status.AttachedAt = copies.AttachedSince(in.Facts)
	}
	setRobustness(in, state, fault, &p)
	if state.Known {
		p.take(copies.NextStep(in.Facts, state, p.Status.LastDegradedAt), in.Now)
	}
	expand(in, &p)
	surplusWaits(in, state, &p)
	evictionWaits(in, &p)
	copiesMissing(in, &p)
	copiesUnreachable(in, &p)
	snapshots(in, &p)
	mirrorInUse(in, &p.Status)
	p.Events = append(p.Events, transitions(in, &p.Status)...)
	return p
}

// actualSize is the allocated space of the largest replica that has not failed. For a replica that is down, the
// last known space counts.
func actualSize(replicas []*longhorn.Replica) int64 {
	size := int64(0)
	for _, r := range replicas {
		if r.Spec.FailedAt == "" && r.DeletionTimestamp == nil {
			size = max(size, r.Status.AllocatedBytes)
		}
	}
	return size
}

// planFirst creates the replicas of a new volume, and reports whether the volume waits for them. A volume waits for
// its first replicas. A volume that may not be used without the missing replicas stays as it is.
func planFirst(in Input, p *Plan) (waits bool) {
	if isPlacedWhenAttached(in.Volume) && isNew(in) {
		return planWhenAttached(in, p)
	}
	missing := in.Volume.Spec.NumberOfReplicas - len(in.Replicas)
	if missing <= 0 {
		if !copies.StateOf(in.Facts).Known {
			p.say(copies.AllPlaced, in.Now)
		}
		return false
	}
	if !isNew(in) {
		if in.AllowDegraded && atRest(in.Engine) && in.Volume.Spec.NodeID == "" {
			p.say(lacksAtRest(in), in.Now)
		}
		return false
	}
	made, said := copies.PlaceFirst(in.Facts, missing)
	p.say(said, in.Now)
	if p.CreateReplicas = made; len(made) == 0 && said.Status == longhorn.ConditionTrue {
		return false
	}
	p.awaitsFirst()
	return true
}

// isNew reports whether a volume never started and is not asked to start. Then all its replicas are equal and empty,
// and missing replicas are created at once. After that, replicas are created one at a time, and rebuilt.
func isNew(in Input) bool { return in.Engine.Status.Epoch == nil && !isWanted(in.Engine) }

// awaitsFirst keeps a new volume in its state until its first replicas exist. A volume that is attaching continues
// with the next plan.
func (p *Plan) awaitsFirst() {
	if len(p.CreateReplicas) == 0 || p.Status.State != longhorn.VolumeStateAttaching {
		p.Status.State = longhorn.VolumeStateDetached
	}
	p.Status.Robustness = longhorn.VolumeRobustnessUnknown
}

// lacksAtRest is the condition of a detached volume with data that has fewer replicas than requested, where the
// setting allows it to be used with these. The missing replicas are created when it is attached, so it is not known
// before whether there is a place for them.
func lacksAtRest(in Input) copies.Scheduling {
	return copies.Scheduling{Status: longhorn.ConditionTrue, Reason: types.ReasonDegradedAvailability, Message: fmt.Sprintf("%d of %d replicas are scheduled, and setting %s allows the volume to be used with these: missing replicas are scheduled when it is attached",
		len(in.Replicas), in.Volume.Spec.NumberOfReplicas, settings.AllowVolumeCreationWithDegradedAvailability)}
}

// take adds a step towards the target to the plan.
func (p *Plan) take(s copies.Step, now time.Time) {
	p.UpdateReplicas = append(p.UpdateReplicas, s.Replicas...)
	if s.Engine != nil {
		p.UpdateEngine = s.Engine
	}
	if s.Make != nil {
		p.CreateReplicas = append(p.CreateReplicas, s.Make)
	}
	if s.MakesLocal {
		p.Status.LastLocalReplicaAt = types.Timestamp(now)
	}
	p.Surplus, p.BeginsOn, p.AwaitsTurn = s.GiveUp, s.BeginsOn, s.AwaitsTurn
	p.say(s.Scheduled, now)
	p.again(s.After)
}

// say sets the condition Scheduled.
func (p *Plan) say(s copies.Scheduling, now time.Time) {
	setCondition(p, now, types.ConditionScheduled, s.Status, s.Reason, s.Message)
}

// fill returns a copy of the volume with defaults for the fields that the user may omit, or nil when nothing is
// missing.
func fill(in Input) *longhorn.Volume {
	c := in.Volume.DeepCopy()
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
	if c.Status.State == "" { // in an older volume, an empty locality means disabled
		types.FillCopies(&c.Spec, in.DefaultLocality, in.DefaultReplicaCount)
	}
	types.FillReplicas(&c.Spec, in.DefaultReplicaCount)
	changed = changed || c.Spec.NumberOfReplicas != in.Volume.Spec.NumberOfReplicas || c.Spec.DataLocality != in.Volume.Spec.DataLocality
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
