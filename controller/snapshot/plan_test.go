package snapshot

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	intended = longhorn.PointStateIntended
	ready    = longhorn.PointStateReady
	deleted  = longhorn.PointStateDeleted

	timeOfPoint = "2030-01-02T00:00:00Z"
)

func point(number int64, name string, state longhorn.PointState) longhorn.LinePoint {
	p := longhorn.LinePoint{Number: number, Nonce: 10 * number, Name: name, State: state}
	if state != intended {
		p.CreatedAt, p.SizeBytes = timeOfPoint, 1<<30
	}
	return p
}

func lineWith(points ...longhorn.LinePoint) *longhorn.Line {
	l := &longhorn.Line{Points: points}
	for _, p := range points {
		l.Counter = p.Number
	}
	return l
}

func ownedByVolume(o metav1.Object) {
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "longhorn.io/v1beta2", Kind: "Volume", Name: "vol", UID: "uid-vol"}})
}

// snap returns a Snapshot that this controller has prepared.
func snap(name string, changes ...func(*longhorn.Snapshot)) *longhorn.Snapshot {
	s := &longhorn.Snapshot{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: types.Namespace, UID: "uid-" + "snap", Labels: map[string]string{types.LabelVolume: "vol"},
		Finalizers: []string{types.Finalizer}, CreationTimestamp: metav1.Time{Time: now.Add(-time.Hour)},
	}}
	ownedByVolume(s)
	s.Spec = longhorn.SnapshotSpec{Volume: "vol", CreateSnapshot: true}
	for _, change := range changes {
		change(s)
	}
	return s
}

func isDeleting(s *longhorn.Snapshot) { s.DeletionTimestamp = &metav1.Time{Time: now} }

// hasStatus sets the status that says why a Snapshot is not ready.
func hasStatus(reason string, attempts int, number int64, at string) func(*longhorn.Snapshot) {
	return func(s *longhorn.Snapshot) {
		s.Status.Attempts, s.Status.Number, s.Status.RequestedTime = attempts, number, at
		s.Status.Conditions = []longhorn.Condition{{Type: longhorn.SnapshotConditionReady, Status: longhorn.ConditionFalse, Reason: reason}}
	}
}

func wasReady(s *longhorn.Snapshot) {
	s.Status.CreationTime, s.Status.ReadyToUse = timeOfPoint, true
}

// input is an attached volume with two members, which has this line.
func input(l *longhorn.Line, snapshots ...*longhorn.Snapshot) Input {
	v := &longhorn.Volume{ObjectMeta: metav1.ObjectMeta{Name: "vol", Namespace: types.Namespace, UID: "uid-vol"}}
	v.Status.State, v.Status.CurrentNodeID = longhorn.VolumeStateAttached, "a"
	e := &longhorn.Engine{ObjectMeta: metav1.ObjectMeta{Name: "vol-e-0"}}
	e.Spec.NodeID, e.Spec.DesireState = "a", longhorn.DesireStateRunning
	e.Status.CurrentState, e.Status.Session = longhorn.InstanceStateRunning, "s"
	e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"r1", "r2"}}
	e.Status.Line = l
	in := Input{
		Name: "vol", Volume: v, Engine: e, Snapshots: snapshots, MaxCount: 250, Nonce: 77, Owner: "leader", Now: now,
		Attachment: &longhorn.VolumeAttachment{},
		Nodes:      map[string]NodeFact{"a": {Ready: true, TakesSnapshots: true}, "b": {Ready: true, TakesSnapshots: true}},
		Replicas:   []*longhorn.Replica{replica("r1", "a", l), replica("r2", "b", l)},
	}
	return in
}

// replica runs, and shows all points of a line.
func replica(name, node string, l *longhorn.Line) *longhorn.Replica {
	r := &longhorn.Replica{ObjectMeta: metav1.ObjectMeta{Name: name}}
	r.Spec.NodeID, r.Spec.VolumeName = node, "vol"
	r.Status.CurrentState, r.Status.UUID = longhorn.InstanceStateRunning, "p"
	r.Status.Layers = &longhorn.ReplicaLayers{UUID: "p", HeadBytes: 5}
	if l != nil {
		for _, p := range l.Points {
			r.Status.Layers.Points = append(r.Status.Layers.Points, longhorn.ReplicaPoint{
				Number: p.Number, Nonce: p.Nonce, Flushed: true, AllocatedBytes: 100 * p.Number,
			})
		}
	}
	return r
}

func detached(in *Input) {
	in.Volume.Status.State, in.Volume.Status.CurrentNodeID = longhorn.VolumeStateDetached, ""
	in.Engine.Spec.DesireState = longhorn.DesireStateStopped
	in.Engine.Status.CurrentState, in.Engine.Status.Session = longhorn.InstanceStateStopped, ""
	for _, r := range in.Replicas {
		r.Status.CurrentState = longhorn.InstanceStateStopped
	}
}

func starting(in *Input) { in.Engine.Status.CurrentState = longhorn.InstanceStateStarting }

// pointsOf shows a line as "5 s1 ready".
func pointsOf(l *longhorn.Line) []string {
	var list []string
	if l != nil {
		for _, p := range l.Points {
			list = append(list, fmt.Sprintf("%d %s %s", p.Number, p.Name, p.State))
		}
	}
	return list
}

// reasonsOf shows the statuses of a plan: "s1 InProgress".
func reasonsOf(p Plan) []string {
	var list []string
	for _, s := range p.Statuses {
		list = append(list, s.Snapshot.Name+" "+types.FindCondition(s.Next.Conditions, longhorn.SnapshotConditionReady).Reason)
	}
	return list
}

func namesOf(snapshots []*longhorn.Snapshot) []string {
	var list []string
	for _, s := range snapshots {
		list = append(list, s.Name)
	}
	return list
}

func TestPlan(t *testing.T) {
	later := func(s *longhorn.Snapshot) { s.CreationTimestamp = metav1.Time{Time: now} }
	held := point(4, "s1", deleted)
	held.Holds = []string{"export"}
	recently := types.Timestamp(now.Add(-time.Second))
	for _, c := range []struct {
		name      string
		line      *longhorn.Line
		snapshots []*longhorn.Snapshot
		change    func(*Input)
		points    []string // of the line, after
		statuses  []string // that are written
		releases  []string
		creates   []string
		after     time.Duration
	}{
		// Creation.
		{name: "a request, the volume is attached → its point is intended", snapshots: []*longhorn.Snapshot{snap("s1")}, points: []string{"1 s1 intended"}},
		{
			name: "two requests → the older one first", snapshots: []*longhorn.Snapshot{snap("a", later), snap("s1")},
			points: []string{"1 s1 intended"}, statuses: []string{"a WaitsForOther"},
		},
		{
			name: "a point is intended → in progress, and the others wait", line: lineWith(point(1, "s1", intended)),
			snapshots: []*longhorn.Snapshot{snap("s1"), snap("s2")}, points: []string{"1 s1 intended"}, statuses: []string{"s1 InProgress", "s2 WaitsForOther"},
		},
		{
			name: "a point is ready → ready", line: lineWith(point(1, "s1", ready)),
			snapshots: []*longhorn.Snapshot{snap("s1")}, points: []string{"1 s1 ready"}, statuses: []string{"s1 Ready"},
		},
		{
			name: "an attempt has ended → it has failed, and the next waits 5 s", line: &longhorn.Line{Counter: 1},
			snapshots: []*longhorn.Snapshot{snap("s1", hasStatus(types.ReasonSnapshotInProgress, 0, 1, recently))},
			statuses:  []string{"s1 Interrupted"}, after: 4 * time.Second,
		},
		{
			name: "an attempt failed a while ago → the next", line: &longhorn.Line{Counter: 1},
			snapshots: []*longhorn.Snapshot{snap("s1", hasStatus("NoRoom", 1, 1, types.Timestamp(now.Add(-5*time.Second))))}, points: []string{"2 s1 intended"},
		},
		{
			name: "the third attempt failed → 20 s", line: &longhorn.Line{Counter: 3},
			snapshots: []*longhorn.Snapshot{snap("s1", hasStatus("NoRoom", 3, 3, recently))}, after: 19 * time.Second,
		},
		{
			name: "many attempts failed → at most 5 min", line: &longhorn.Line{Counter: 3},
			snapshots: []*longhorn.Snapshot{snap("s1", hasStatus("NoRoom", 90, 3, recently))}, after: 5*time.Minute - time.Second,
		},
		{
			name: "one waits after a failure → another is taken", line: &longhorn.Line{Counter: 1},
			snapshots: []*longhorn.Snapshot{snap("s1", hasStatus("NoRoom", 1, 1, recently)), snap("s2", later)}, points: []string{"2 s2 intended"}, after: 4 * time.Second,
		},
		{
			name: "the engine starts → nothing is intended", snapshots: []*longhorn.Snapshot{snap("s1")}, change: starting,
			statuses: []string{"s1 VolumeNotAttached"}, after: lookAgain,
		},
		{
			name: "the engine is to stop → nothing is intended", snapshots: []*longhorn.Snapshot{snap("s1")},
			change:   func(in *Input) { in.Engine.Spec.DesireState = longhorn.DesireStateStopped },
			statuses: []string{"s1 VolumeNotAttached"}, after: lookAgain,
		},
		{
			name: "the limit is reached → nothing", line: lineWith(point(1, "s0", ready), point(2, "s9", ready)),
			snapshots: []*longhorn.Snapshot{snap("s0", isShown), snap("s1"), snap("s9", isShown)}, change: func(in *Input) { in.MaxCount = 2 },
			points: []string{"1 s0 ready", "2 s9 ready"}, statuses: []string{"s1 TooManySnapshots"}, after: lookAgain,
		},
		{
			name: "deleted snapshots do not count for the limit", line: lineWith(point(1, "s0", deleted), point(2, "s9", deleted)),
			snapshots: []*longhorn.Snapshot{snap("s1")}, change: func(in *Input) { in.MaxCount = 2 },
			points: []string{"1 s0 deleted", "2 s9 deleted", "3 s1 intended"},
		},
		{
			name: "deleted snapshots are layers", snapshots: []*longhorn.Snapshot{snap("s1")},
			change: func(in *Input) {
				in.Replicas[1].Status.Layers.Points = make([]longhorn.ReplicaPoint, 249)
			},
			statuses: []string{"s1 TooManyLayers"}, after: lookAgain,
		},
		{
			name: "the volume expands → nothing", snapshots: []*longhorn.Snapshot{snap("s1")},
			change: func(in *Input) { in.Volume.Status.ExpansionRequired = true }, statuses: []string{"s1 VolumeExpands"}, after: lookAgain,
		},
		{
			name: "a member's node has an earlier release → nothing", snapshots: []*longhorn.Snapshot{snap("s1")},
			change: func(in *Input) { in.Nodes["b"] = NodeFact{Ready: true} }, statuses: []string{"s1 NotSupported"}, after: lookAgain,
		},
		{
			name: "the node of a replica that is no member has an earlier release → its point is intended", snapshots: []*longhorn.Snapshot{snap("s1")},
			change: func(in *Input) { in.Replicas = append(in.Replicas, replica("r3", "c", nil)) }, points: []string{"1 s1 intended"},
		},
		{name: "a reserved name → nothing", snapshots: []*longhorn.Snapshot{snap("volume-head")}, statuses: []string{"volume-head NameReserved"}},
		{
			name: "the volume does not exist → nothing", snapshots: []*longhorn.Snapshot{snap("s1")},
			change: func(in *Input) { in.Volume, in.Engine, in.Attachment = nil, nil, nil }, statuses: []string{"s1 VolumeNotFound"},
		},
		{
			name: "the volume is being deleted → nothing", snapshots: []*longhorn.Snapshot{snap("s1")},
			change: func(in *Input) { in.Volume.DeletionTimestamp = &metav1.Time{Time: now} }, statuses: []string{"s1 VolumeNotFound"}, after: lookAgain,
		},
		{
			name: "the engine stopped in the middle → given up", line: lineWith(point(1, "s1", intended)), snapshots: []*longhorn.Snapshot{snap("s1")}, change: detached,
			statuses: []string{"s1 InProgress"},
		},

		// What the line no longer has.
		{
			name: "a ready snapshot left the line → lost, and not taken again", line: &longhorn.Line{Counter: 4},
			snapshots: []*longhorn.Snapshot{snap("s1", wasReady)}, statuses: []string{"s1 Lost"},
		},
		{
			name: "a mirror without a point → lost", line: &longhorn.Line{Counter: 4},
			snapshots: []*longhorn.Snapshot{snap("s1", func(s *longhorn.Snapshot) { s.Spec.CreateSnapshot = false })}, statuses: []string{"s1 Lost"},
		},
		{name: "a ready point without an object → it gets one", line: lineWith(point(4, "s1", ready)), points: []string{"4 s1 ready"}, creates: []string{"s1"}},
		{name: "a point of the system needs no object", line: lineWith(point(4, "", ready)), points: []string{"4  ready"}},
		{
			name: "a deleted point, the name is used again → another point", line: lineWith(point(4, "s1", deleted)),
			snapshots: []*longhorn.Snapshot{snap("s1")}, points: []string{"4 s1 deleted", "5 s1 intended"},
		},
		{
			name: "a Snapshot of an earlier volume → nothing", snapshots: []*longhorn.Snapshot{snap("s1", func(s *longhorn.Snapshot) { s.OwnerReferences[0].UID = "earlier" })},
		},

		// Deletion.
		{
			name: "deleted, its point is ready → the point is deleted, the finalizer stays", line: lineWith(point(4, "s1", ready)),
			snapshots: []*longhorn.Snapshot{snap("s1", isDeleting, wasReady)}, points: []string{"4 s1 deleted"}, statuses: []string{"s1 Deleted"},
		},
		{
			name: "deleted, the volume is detached → the same", line: lineWith(point(4, "s1", ready)), change: detached,
			snapshots: []*longhorn.Snapshot{snap("s1", isDeleting, wasReady)}, points: []string{"4 s1 deleted"}, statuses: []string{"s1 Deleted"},
		},
		{
			name: "deleted, its point is deleted → released", line: lineWith(point(4, "s1", deleted)),
			snapshots: []*longhorn.Snapshot{snap("s1", isDeleting, wasReady)}, points: []string{"4 s1 deleted"}, releases: []string{"s1"},
		},
		{
			name: "deleted, the engine starts → nothing", line: lineWith(point(4, "s1", ready)), change: starting,
			snapshots: []*longhorn.Snapshot{snap("s1", isDeleting, wasReady)}, points: []string{"4 s1 ready"}, statuses: []string{"s1 Deleted"},
		},
		{
			name: "deleted during the attempt → nothing", line: lineWith(point(4, "s1", intended)),
			snapshots: []*longhorn.Snapshot{snap("s1", isDeleting)}, points: []string{"4 s1 intended"}, statuses: []string{"s1 Deleted"},
		},
		{
			name: "deleted after the engine stopped in the attempt → given up", line: lineWith(point(4, "s1", intended)), change: detached,
			snapshots: []*longhorn.Snapshot{snap("s1", isDeleting)}, statuses: []string{"s1 Deleted"},
		},
		{name: "deleted before anything was taken → released", snapshots: []*longhorn.Snapshot{snap("s1", isDeleting)}, releases: []string{"s1"}},
		{
			name: "deleted, the volume is being deleted → released", line: lineWith(point(4, "s1", ready)),
			change:    func(in *Input) { in.Volume.DeletionTimestamp = &metav1.Time{Time: now} },
			snapshots: []*longhorn.Snapshot{snap("s1", isDeleting, wasReady)}, points: []string{"4 s1 ready"}, releases: []string{"s1"},
		},
		{
			name: "deleted, the volume does not exist → released", change: func(in *Input) { in.Volume, in.Engine, in.Attachment = nil, nil, nil },
			snapshots: []*longhorn.Snapshot{snap("s1", isDeleting, wasReady)}, releases: []string{"s1"},
		},
		{
			name: "released, another finalizer keeps it → its status says so", line: lineWith(point(4, "s1", deleted)),
			snapshots: []*longhorn.Snapshot{snap("s1", isDeleting, wasReady, func(s *longhorn.Snapshot) { s.Finalizers = []string{"another"} })},
			points:    []string{"4 s1 deleted"}, statuses: []string{"s1 Deleted"},
		},

		// The end of a deleted point.
		{
			name: "a point that is deleted now, and no replica shows it → deleted, not forgotten", line: lineWith(point(4, "s1", ready)), change: merged,
			snapshots: []*longhorn.Snapshot{snap("s1", isDeleting, wasReady)}, points: []string{"4 s1 deleted"}, statuses: []string{"s1 Deleted"},
		},
		{name: "no replica shows it → forgotten", line: lineWith(point(4, "s1", deleted)), change: merged},
		{name: "replicas show it → it stays", line: lineWith(point(4, "s1", deleted)), points: []string{"4 s1 deleted"}},
		{
			name: "one replica shows it → it stays", line: lineWith(point(4, "s1", deleted)), points: []string{"4 s1 deleted"},
			change: func(in *Input) { in.Replicas[0].Status.Layers.Points = nil },
		},
		{
			name: "a job holds it → it stays", line: lineWith(held), change: merged, points: []string{"4 s1 deleted"},
		},
		{
			name: "a replica is away → it stays", line: lineWith(point(4, "s1", deleted)), points: []string{"4 s1 deleted"},
			change: func(in *Input) { merged(in); in.Replicas[1].Status.CurrentState = longhorn.InstanceStateUnknown },
		},
		{
			name: "a replica's report is of another process → it stays", line: lineWith(point(4, "s1", deleted)), points: []string{"4 s1 deleted"},
			change: func(in *Input) { merged(in); in.Replicas[1].Status.Layers.UUID = "earlier" },
		},
		{
			name: "a replica that is no member is away → it stays", line: lineWith(point(4, "s1", deleted)), points: []string{"4 s1 deleted"},
			change: func(in *Input) { merged(in); in.Replicas = append(in.Replicas, &longhorn.Replica{}) },
		},
		{
			name: "a member has no object → it stays", line: lineWith(point(4, "s1", deleted)), points: []string{"4 s1 deleted"},
			change: func(in *Input) { merged(in); in.Replicas = in.Replicas[:1] },
		},
		{
			name: "the volume is detached → it stays", line: lineWith(point(4, "s1", deleted)), points: []string{"4 s1 deleted"},
			change: func(in *Input) { merged(in); detached(in) },
		},
		{
			name: "a ready point that no replica shows → it stays", line: lineWith(point(4, "s1", ready)), change: merged,
			snapshots: []*longhorn.Snapshot{snap("s1", isShown)}, points: []string{"4 s1 ready"}, statuses: []string{"s1 Ready"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := input(c.line, c.snapshots...)
			if c.change != nil {
				c.change(&in)
			}
			before := c.line.DeepCopy()
			p := plan(in)
			assert.Equal(t, before, c.line, "a plan modifies nothing")
			assert.Equal(t, c.points, pointsOf(p.Line))
			assert.Equal(t, c.statuses, reasonsOf(p))
			assert.Equal(t, c.releases, namesOf(p.Release))
			assert.Equal(t, c.creates, namesOf(p.Create))
			assert.Equal(t, c.after, p.After)
			assert.Empty(t, p.Adopt)
		})
	}
}

// merged: no replica shows a point any longer.
func merged(in *Input) {
	for _, r := range in.Replicas {
		r.Status.Layers.Points = nil
	}
}

// isShown: the status of the Snapshot is what its ready point requires, in the lines of this test.
func isShown(s *longhorn.Snapshot) {
	children := map[string]map[string]bool{"s0": {"s9": true}, "s9": {types.VolumeHead: true}, "s1": {types.VolumeHead: true}}
	number := map[string]int64{"s0": 1, "s9": 2, "s1": 4}[s.Name]
	parent := map[string]string{"s9": "s0"}[s.Name]
	s.Status = longhorn.SnapshotStatus{
		Parent: parent, Children: children[s.Name], UserCreated: true, CreationTime: timeOfPoint, ReadyToUse: true, Size: 100 * number, RestoreSize: 1 << 30, Number: number,
		Conditions: []longhorn.Condition{{
			Type: longhorn.SnapshotConditionReady, Status: longhorn.ConditionTrue, Reason: "Ready", Message: "all members of the volume have stored the snapshot",
		}},
	}
}

func TestASnapshotIsPreparedBeforeItsPoint(t *testing.T) {
	p := plan(input(nil, snap("s1", func(s *longhorn.Snapshot) {
		s.Finalizers, s.Labels = []string{"another"}, nil
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "c"}}
	})))
	assert.Nil(t, p.Line, "without the finalizer, the Snapshot could disappear")
	require.Len(t, p.Adopt, 1)
	s := p.Adopt[0]
	assert.Equal(t, []string{"another", types.Finalizer}, s.Finalizers)
	assert.Equal(t, map[string]string{types.LabelVolume: "vol"}, s.Labels)
	assert.Equal(t, metav1.OwnerReference{APIVersion: "longhorn.io/v1beta2", Kind: "Volume", Name: "vol", UID: "uid-vol"}, s.OwnerReferences[1])
	assert.Empty(t, plan(input(nil, s)).Adopt)
}

func TestStatusOfASnapshot(t *testing.T) {
	labels := map[string]longhorn.SnapshotLabel{"app": "db"}
	l := lineWith(point(4, "a", ready), point(6, "gone", deleted), point(8, "b", ready), point(9, "c", intended))
	in := input(l, snap("a", func(s *longhorn.Snapshot) { s.Spec.Labels = labels }), snap("b"), snap("c"))
	in.Engine.Status.SnapshotFailure = &longhorn.SnapshotFailure{Number: 2}
	p := plan(in)
	require.Len(t, p.Statuses, 3)
	a := p.Statuses[0]
	a.Next.Conditions = nil
	assert.Equal(t, longhorn.SnapshotStatus{
		Children: map[string]bool{"gone": true}, UserCreated: true, CreationTime: timeOfPoint, ReadyToUse: true, Size: 400, RestoreSize: 1 << 30,
		Labels: labels, Number: 4, OwnerID: "leader",
	}, a.Next)
	assert.Equal(t, []Event{{"Normal", "Create", "successfully provisioned the snapshot"}, {"Normal", "Update", "snapshot becomes ready to use"}}, a.Events)
	b := p.Statuses[1].Next
	assert.Equal(t, "gone", b.Parent)
	assert.Equal(t, map[string]bool{types.VolumeHead: true}, b.Children)
	c := p.Statuses[2].Next
	assert.Equal(t, int64(9), c.Number)
	assert.Equal(t, "2030-01-02T03:04:05Z", c.RequestedTime)
	assert.Empty(t, c.Error)

	none := map[string]longhorn.SnapshotLabel{}
	assert.Equal(t, map[string]longhorn.SnapshotInfo{
		"a":              {Name: "a", Children: map[string]bool{"gone": true}, UserCreated: true, Created: timeOfPoint, Size: "400", Labels: labels},
		"gone":           {Name: "gone", Parent: "a", Children: map[string]bool{"b": true}, Removed: true, UserCreated: true, Created: timeOfPoint, Size: "600", Labels: none},
		"b":              {Name: "b", Parent: "gone", Children: map[string]bool{types.VolumeHead: true}, UserCreated: true, Created: timeOfPoint, Size: "800", Labels: none},
		types.VolumeHead: {Name: types.VolumeHead, Parent: "b", Children: map[string]bool{}, Size: "5", Labels: none},
	}, p.Infos)

	in.Engine.Status.Snapshots = p.Infos
	detached(&in)
	assert.Equal(t, p.Infos, plan(in).Infos, "sizes stay while no replica reports them")
}

func TestAFailureIsShown(t *testing.T) {
	in := input(&longhorn.Line{Counter: 9}, snap("s1", hasStatus(types.ReasonSnapshotInProgress, 2, 9, "2030-01-02T03:04:00Z")))
	in.Engine.Status.SnapshotFailure = &longhorn.SnapshotFailure{Number: 9, Reason: "NoRoom", Message: "a disk is full"}
	p := plan(in)
	require.Len(t, p.Statuses, 1)
	s := p.Statuses[0]
	assert.Equal(t, "a disk is full", s.Next.Error)
	assert.Equal(t, 3, s.Next.Attempts)
	assert.Equal(t, []Event{{"Warning", "Failed", "a disk is full"}}, s.Events)
	assert.Equal(t, "NoRoom", types.FindCondition(s.Next.Conditions, longhorn.SnapshotConditionReady).Reason)

	in.Engine.Status.Line = lineWith(point(10, "s1", ready))
	in.Snapshots[0].Status = s.Next
	p = plan(in)
	require.Len(t, p.Statuses, 1)
	assert.Empty(t, p.Statuses[0].Next.Error)
	assert.Zero(t, p.Statuses[0].Next.Attempts)
}

func TestTheNodeToUpdateIsNamed(t *testing.T) {
	in := input(nil, snap("s1"))
	in.Nodes["b"] = NodeFact{Ready: true, Version: "v1.2.3"}
	p := plan(in)
	require.Len(t, p.Statuses, 1)
	assert.Equal(t, "the instance manager must be updated on node b v1.2.3", p.Statuses[0].Next.Error)
}

func ticket(id, node string, kind longhorn.AttacherType) longhorn.AttachmentTicket {
	return longhorn.AttachmentTicket{ID: id, NodeID: node, Type: kind}
}

func TestTickets(t *testing.T) {
	own := ticket("snapshot-controller-s1", "b", longhorn.AttacherTypeSnapshot)
	pod := ticket("csi", "a", longhorn.AttacherTypeCSI)
	for _, c := range []struct {
		name    string
		line    *longhorn.Line
		tickets []longhorn.AttachmentTicket
		change  func(*Input)
		deleted bool
		want    []string // id and node; nil: unchanged
	}{
		{name: "attached by a pod → none", tickets: []longhorn.AttachmentTicket{pod}},
		{name: "detached → one on a node with a member", change: detached, want: []string{"snapshot-controller-s1 a true"}},
		{
			name: "detached, the node of a member is not ready → on another", want: []string{"snapshot-controller-s1 b true"},
			change: func(in *Input) { detached(in); in.Nodes["a"] = NodeFact{TakesSnapshots: true} },
		},
		{name: "detached, a pod requests it → none", change: detached, tickets: []longhorn.AttachmentTicket{pod}},
		{name: "attached by its own ticket → it stays", tickets: []longhorn.AttachmentTicket{own}},
		{name: "attached by its own ticket, a pod comes → removed", tickets: []longhorn.AttachmentTicket{own, pod}, want: []string{"csi a "}},
		{
			name: "the attempt is under way, a pod comes → it stays", line: lineWith(point(1, "s1", intended)),
			tickets: []longhorn.AttachmentTicket{own, pod},
		},
		{
			name: "the node of its ticket is down → another", tickets: []longhorn.AttachmentTicket{own}, want: []string{"snapshot-controller-s1 a true"},
			change: func(in *Input) { detached(in); in.Nodes["b"] = NodeFact{TakesSnapshots: true} },
		},
		{name: "ready → removed", line: lineWith(point(1, "s1", ready)), tickets: []longhorn.AttachmentTicket{own}, want: []string{}},
		{name: "deleted → removed", tickets: []longhorn.AttachmentTicket{own}, deleted: true, want: []string{}},
		{name: "its release does not take snapshots → none", change: func(in *Input) { detached(in); in.Nodes["a"] = NodeFact{Ready: true} }},
		{
			name: "it waits after a failure → removed", tickets: []longhorn.AttachmentTicket{own}, want: []string{},
			change: func(in *Input) { hasStatus("NoRoom", 3, 3, types.Timestamp(now))(in.Snapshots[0]) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := snap("s1")
			if c.deleted {
				isDeleting(s)
			}
			in := input(c.line, s)
			if c.change != nil {
				c.change(&in)
			}
			in.Attachment.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{}
			for _, t := range c.tickets {
				in.Attachment.Spec.AttachmentTickets[t.ID] = t
			}
			p := plan(in)
			if c.want == nil {
				assert.Nil(t, p.Attachment)
				return
			}
			require.NotNil(t, p.Attachment)
			got := []string{}
			for _, t := range p.Attachment.Spec.AttachmentTickets {
				got = append(got, t.ID+" "+t.NodeID+" "+t.Parameters[longhorn.AttachmentParameterDisableFrontend])
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func TestADeletedSnapshotThatIsKeptShowsItsSpace(t *testing.T) {
	kept := snap("s1", isDeleting, wasReady, func(s *longhorn.Snapshot) { s.Finalizers, s.Status.Number = []string{"another"}, 4 })
	freed := func(in Input) longhorn.Condition {
		p := plan(in)
		require.Len(t, p.Statuses, 1)
		c := types.FindCondition(p.Statuses[0].Next.Conditions, longhorn.SnapshotConditionSpaceFreed)
		c.LastTransitionTime = ""
		return c
	}
	in := input(lineWith(point(4, "s1", deleted)), kept)
	assert.Equal(t, longhorn.Condition{Type: "SpaceFreed", Status: "False", Reason: "Merging", Message: "replicas free the space"}, freed(in))
	in.Replicas[1].Status.Layers.MergeWaits = "NeedsSpace"
	assert.Equal(t, longhorn.Condition{Type: "SpaceFreed", Status: "False", Reason: "NeedsSpace", Message: "replica r2 on node b waits: NeedsSpace"}, freed(in))
	assert.Equal(t, longhorn.Condition{Type: "SpaceFreed", Status: "True"}, freed(input(&longhorn.Line{Counter: 4}, kept)))
}
