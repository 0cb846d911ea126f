package volume

import (
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// SizeUnit is what volume sizes are multiples of, in bytes.
const SizeUnit = 2 << 20

// retryFailedStart is how long a volume waits after its engine failed before it
// starts it again, counted from the stored time of the failure.
const retryFailedStart = 10 * time.Second

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
	// Cluster is where replicas may be placed.
	Cluster scheduler.Snapshot
	// Names has a fresh name and directory for each replica that may be made.
	Names []ReplicaNames
	Now   time.Time
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

	Status longhorn.VolumeStatus
	Events []Event
	// After is when to look again though nothing changed; 0: never.
	After time.Duration
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
		setCondition(&p, in.Now, types.ConditionScheduled, longhorn.ConditionTrue, "", "")
		drive(in, &p)
		judge(in, &p)
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

// missingReplicas is how many replicas are still to be made. They are only made while
// the engine never started: a later one would be empty and would have to be rebuilt.
func missingReplicas(in Input) int {
	if in.Engine.Status.Epoch != nil || isWanted(in.Engine) {
		return 0
	}
	return max(0, in.Volume.Spec.NumberOfReplicas-len(in.Replicas))
}

// placeReplicas makes the missing replicas of a new volume, all or none.
func placeReplicas(in Input, missing int, p *Plan) {
	p.Status.State = longhorn.VolumeStateDetached
	p.Status.Robustness = longhorn.VolumeRobustnessUnknown
	placements, err := scheduler.ScheduleAll(in.Cluster, scheduler.Request{
		SizeBytes:    int64(in.Volume.Spec.Size),
		NodeSelector: in.Volume.Spec.NodeSelector,
		DiskSelector: in.Volume.Spec.DiskSelector,
	}, missing)
	if err != nil {
		setCondition(p, in.Now, types.ConditionScheduled, longhorn.ConditionFalse, types.ReasonReplicaSchedulingFailure, err.Error())
		return
	}
	setCondition(p, in.Now, types.ConditionScheduled, longhorn.ConditionTrue, "", "")
	for i, place := range placements {
		p.CreateReplicas = append(p.CreateReplicas, newReplica(in.Volume, in.Names[i], place))
	}
}

func setCondition(p *Plan, now time.Time, kind string, status longhorn.ConditionStatus, reason, message string) {
	p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, longhorn.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
	}, now)
}
