package snapshot

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/line"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// NodeFact has the facts about a node that a plan needs.
type NodeFact struct {
	Ready bool
	// TakesSnapshots: the node's data plane can take snapshots. Version is its version.
	TakesSnapshots bool
	Version        string
}

// Input is everything that a plan is based on. A plan modifies nothing in it.
type Input struct {
	// Name is the name of the volume. Volume is nil if the volume does not exist; then only Snapshots is set.
	Name       string
	Volume     *longhorn.Volume
	Engine     *longhorn.Engine           // nil: the volume has none
	Attachment *longhorn.VolumeAttachment // nil: the volume has none
	Replicas   []*longhorn.Replica
	Snapshots  []*longhorn.Snapshot
	Nodes      map[string]NodeFact
	// MaxCount is how many snapshots the volume may have.
	MaxCount int
	// Nonce is a new random number of a point.
	Nonce int64
	// Owner is this node, for status.ownerID.
	Owner string
	Now   time.Time
}

// owns reports whether an object belongs to this very volume, and not to an earlier volume with the same name.
func (in Input) owns(o metav1.Object) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == in.Volume.UID })
}

// isIdle reports whether nothing about the volume concerns this controller.
func (in Input) isIdle() bool {
	return len(in.Snapshots) == 0 && (in.Engine == nil || in.Engine.Status.Line == nil) && len(in.ownTickets()) == 0
}

// Plan is what to do, in the order of the fields.
type Plan struct {
	// Adopt are Snapshots with the finalizer, the label and the owner that they lacked. While there are some, the plan
	// has nothing else.
	Adopt []*longhorn.Snapshot
	// Line and Infos are the new content of the Engine's status.
	Line  *longhorn.Line
	Infos map[string]longhorn.SnapshotInfo
	// Forgets: the new line lacks points that were deleted. A live list of the replicas must agree before.
	Forgets []layers.Point
	// Attachment has other tickets; nil: they do not change.
	Attachment *longhorn.VolumeAttachment
	Statuses   []Status
	// Create are objects for snapshots that have none.
	Create []*longhorn.Snapshot
	// Release are Snapshots in deletion of which nothing is left to do. A live read must agree before their finalizer
	// is removed.
	Release []*longhorn.Snapshot
	// After is the time until the next sync although nothing changed; 0: none is needed.
	After time.Duration
}

// Status is a new status of a Snapshot, and the Events about the change.
type Status struct {
	Snapshot *longhorn.Snapshot
	Next     longhorn.SnapshotStatus
	Events   []Event
}

// Event is an Event about a Snapshot.
type Event struct{ Type, Reason, Message string }

// lookAgain is the time until the next sync while a snapshot waits for something that causes no event here: settings,
// nodes and instance managers.
const lookAgain = 30 * time.Second

func plan(in Input) Plan {
	var p Plan
	in.Snapshots = slices.SortedFunc(slices.Values(in.Snapshots), older)
	if in.Volume == nil {
		planWithoutVolume(in, &p)
		return p
	}
	// Kubernetes deletes the Snapshots of an earlier volume with this name.
	in.Snapshots = slices.DeleteFunc(in.Snapshots, func(s *longhorn.Snapshot) bool {
		return s.DeletionTimestamp == nil && !isOf(in.Volume, s)
	})
	if p.Adopt = lacking(in); len(p.Adopt) > 0 {
		return p
	}
	if in.Engine != nil {
		p.Line, p.Infos = in.Engine.Status.Line, in.Engine.Status.Snapshots
	}
	planDeletions(in, &p)
	picked, waits := planCreation(in, &p)
	if in.mayWriteLine() {
		forget(in, &p)
	}
	if in.Engine != nil {
		p.Infos = infos(in, p.Line)
	}
	planTicket(in, &p, picked)
	for _, s := range in.Snapshots {
		if s.DeletionTimestamp == nil {
			show(in, &p, s, waits)
		}
	}
	mirror(in, &p)
	return p
}

// older orders Snapshots by their age, so that they are taken in the order in which they were requested.
func older(a, b *longhorn.Snapshot) int {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// planWithoutVolume releases Snapshots in deletion. The others are deleted by Kubernetes if the volume existed.
func planWithoutVolume(in Input, p *Plan) {
	for _, s := range in.Snapshots {
		if s.DeletionTimestamp != nil && types.HasFinalizer(s) {
			p.Release = append(p.Release, s)
			continue
		}
		status := *s.Status.DeepCopy()
		status.ReadyToUse = false
		refuse(in, &status, types.ReasonVolumeNotFound, fmt.Sprintf("volume %s does not exist", in.Name))
		p.show(in, s, status)
	}
}

// lacking returns the Snapshots to which this controller must add its finalizer, the label or the owner. It does that
// before it records a point: a Snapshot without the finalizer could disappear together with its name.
func lacking(in Input) []*longhorn.Snapshot {
	var list []*longhorn.Snapshot
	for _, s := range in.Snapshots {
		if s.DeletionTimestamp != nil || in.Volume.DeletionTimestamp != nil {
			continue
		}
		if types.HasFinalizer(s) && s.Labels[types.LabelVolume] != "" && ownerVolume(s) != "" {
			continue
		}
		list = append(list, prepared(in, s.DeepCopy()))
	}
	return list
}

func prepared(in Input, s *longhorn.Snapshot) *longhorn.Snapshot {
	types.AddFinalizer(s)
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	s.Labels[types.LabelVolume] = in.Name
	if ownerVolume(s) == "" {
		s.OwnerReferences = append(s.OwnerReferences, metav1.OwnerReference{
			APIVersion: longhorn.SchemeGroupVersion.String(), Kind: volumeKind, Name: in.Volume.Name, UID: in.Volume.UID,
		})
	}
	return s
}

// mayWriteLine reports whether this controller may change the line. While an engine starts, or its state is not known,
// the line belongs to the engine's controller.
func (in Input) mayWriteLine() bool {
	return in.Engine != nil && (in.isRunning() || in.isStopped())
}

func (in Input) isRunning() bool {
	return in.Engine != nil && in.Engine.Status.CurrentState == longhorn.InstanceStateRunning
}

// isStopped reports whether the engine is stopped for certain. Then no attempt is under way.
func (in Input) isStopped() bool {
	if in.Engine == nil {
		return false
	}
	s := in.Engine.Status.CurrentState
	return (s == longhorn.InstanceStateStopped || s == "") && in.Engine.Status.Session == ""
}

// forget removes points that were read as deleted, and that no replica shows, from the line. Every replica of the
// volume must run and report its points: one that is away may still have the space of the snapshot.
//
// A report may be older than the point. Then the point is forgotten early, which loses nothing: replicas join a border
// that is not in the line, and the rules refuse to forget a point that a job reads.
func forget(in Input, p *Plan) {
	if p.Line == nil || !in.isRunning() {
		return
	}
	for _, point := range p.Line.Points {
		read := line.Find(in.lineRead(), line.Point(point))
		if read == nil || read.State != longhorn.PointStateDeleted || !isGone(line.Point(point), in.Engine, in.Replicas) {
			continue
		}
		next, err := line.Change(p.Line, line.Point(point), layers.Line.Forget)
		if err != nil {
			continue // a job holds it
		}
		p.Line, p.Forgets = next, append(p.Forgets, line.Point(point))
	}
}

// isGone reports whether all members of the volume, and all its other replicas, show that they do not have a point.
func isGone(p layers.Point, e *longhorn.Engine, replicas []*longhorn.Replica) bool {
	if e.Status.Epoch == nil || len(replicas) == 0 {
		return false
	}
	reports := map[string]bool{}
	for _, r := range replicas {
		l := types.CurrentLayers(r)
		if l == nil || slices.ContainsFunc(l.Points, func(b longhorn.ReplicaPoint) bool { return b.Number == int64(p.Number) }) {
			return false
		}
		reports[r.Name] = true
	}
	return !slices.ContainsFunc(e.Status.Epoch.Members, func(m string) bool { return !reports[m] })
}

// mirror creates objects for ready snapshots that have none. They exist after the API server was restored from a
// backup, and after the finalizer of a Snapshot was removed by force.
func mirror(in Input, p *Plan) {
	if p.Line == nil || in.Volume.DeletionTimestamp != nil {
		return
	}
	for _, point := range p.Line.Points {
		if point.State != longhorn.PointStateReady || point.Name == "" || in.snapshot(point.Name) != nil {
			continue
		}
		p.Create = append(p.Create, prepared(in, &longhorn.Snapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: in.Volume.Namespace, Name: point.Name},
			Spec:       longhorn.SnapshotSpec{Volume: in.Name},
		}))
	}
}

func (in Input) snapshot(name string) *longhorn.Snapshot {
	for _, s := range in.Snapshots {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// show adds the new status of a Snapshot, if it differs.
func (p *Plan) show(in Input, s *longhorn.Snapshot, next longhorn.SnapshotStatus, events ...Event) {
	if equality.Semantic.DeepEqual(s.Status, next) {
		return
	}
	next.OwnerID = in.Owner
	p.Statuses = append(p.Statuses, Status{Snapshot: s, Next: next, Events: events})
}

func (p *Plan) again(d time.Duration) {
	if d > 0 && (p.After == 0 || d < p.After) {
		p.After = d
	}
}
