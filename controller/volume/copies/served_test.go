package copies

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// a served volume has its engine on node "a", and replicas on the nodes "a", "b", … in their order. The options
// describe the differences from that.
type option func(in *Facts, r *longhorn.Replica)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const gib = 1 << 30

const long = time.Hour // ago: before every time limit that is tested here

func ago(d time.Duration) string { return types.Timestamp(now.Add(-d)) }

// member: has all data and has served for a long time.
func member(in *Facts, r *longhorn.Replica) {
	e := in.Engine
	e.Status.Epoch.Members = append(e.Status.Epoch.Members, r.Name)
	e.Status.ReplicaModeMap = mode(e.Status.ReplicaModeMap, r.Name, longhorn.ReplicaModeRW)
	asked(in, r)
	tried(in, r)
	r.Spec.HealthyAt, r.Spec.LastHealthyAt = ago(long), ago(long)
}

// once: was a member until it failed that long ago.
func once(failed time.Duration) option {
	return func(in *Facts, r *longhorn.Replica) {
		r.Spec.HealthyAt, r.Spec.LastHealthyAt = ago(2*long), ago(2*long)
		r.Spec.FailedAt, r.Spec.LastFailedAt = ago(failed), ago(failed)
	}
}

// failedFor: it failed that long ago.
func failedFor(d time.Duration) option {
	return func(_ *Facts, r *longhorn.Replica) { r.Spec.FailedAt, r.Spec.LastFailedAt = ago(d), ago(d) }
}

// fresh: never was a member.
func fresh(*Facts, *longhorn.Replica) {}

func asked(in *Facts, r *longhorn.Replica) {
	in.Engine.Spec.ReplicaAddressMap = put(in.Engine.Spec.ReplicaAddressMap, r.Name, types.ReplicaAddress(r))
}

func tried(in *Facts, r *longhorn.Replica) {
	in.Engine.Status.CurrentReplicaAddressMap = put(in.Engine.Status.CurrentReplicaAddressMap, r.Name, types.ReplicaAddress(r))
}

func unasked(in *Facts, r *longhorn.Replica) { delete(in.Engine.Spec.ReplicaAddressMap, r.Name) }

func shows(m longhorn.ReplicaMode) option {
	return func(in *Facts, r *longhorn.Replica) {
		in.Engine.Status.ReplicaModeMap = mode(in.Engine.Status.ReplicaModeMap, r.Name, m)
	}
}

func away(in *Facts, r *longhorn.Replica) { in.Nodes[r.Spec.NodeID] = NodeFact{Down: true} }

func nodeGone(in *Facts, r *longhorn.Replica) {
	in.Nodes[r.Spec.NodeID] = NodeFact{Down: true, Gone: true}
}

// nodeLeft: the leader found that its node was removed; an engine may still reach it.
func nodeLeft(in *Facts, r *longhorn.Replica) {
	nodeGone(in, r)
	broken(types.ReasonNodeGone)(in, r)
}

// diskless: its node is back, without its disk.
func diskless(in *Facts, r *longhorn.Replica) {
	broken(types.ReasonDiskNotFound)(in, r)
	in.LacksDisk = map[string]bool{r.Name: true}
}

func broken(reason string) option {
	return func(_ *Facts, r *longhorn.Replica) {
		r.Status.CurrentState = longhorn.InstanceStateError
		r.Status.Conditions = []longhorn.Condition{{Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: reason, Message: "m"}}
	}
}

func retried(n int) option {
	return func(_ *Facts, r *longhorn.Replica) { r.Spec.RebuildRetryCount = n }
}

func healthyFor(d time.Duration) option {
	return func(_ *Facts, r *longhorn.Replica) { r.Spec.HealthyAt = ago(d) }
}

func failedBefore(_ *Facts, r *longhorn.Replica) { r.Spec.LastFailedAt = ago(2 * long) }

// restarted: it is served by another process than the one in which it was a member.
func restarted(_ *Facts, r *longhorn.Replica) { r.Spec.ServedUUID = "earlier" }

func replaced(in *Facts, r *longhorn.Replica) { in.Nodes[r.Spec.NodeID] = NodeFact{Process: "another"} }

func onNode(node string) option { return func(_ *Facts, r *longhorn.Replica) { r.Spec.NodeID = node } }

func onDisk(uuid string) option { return func(_ *Facts, r *longhorn.Replica) { r.Spec.DiskID = uuid } }

func beingDeleted(_ *Facts, r *longhorn.Replica) { r.DeletionTimestamp = &metav1.Time{Time: now} }

func notStarted(_ *Facts, r *longhorn.Replica) {
	r.Spec.DesireState, r.Status.CurrentState = longhorn.DesireStateStopped, longhorn.InstanceStateStopped
}

func all(options ...option) option {
	return func(in *Facts, r *longhorn.Replica) {
		for _, o := range options {
			o(in, r)
		}
	}
}

func mode(m map[string]longhorn.ReplicaMode, name string, is longhorn.ReplicaMode) map[string]longhorn.ReplicaMode {
	if m == nil {
		m = map[string]longhorn.ReplicaMode{}
	}
	m[name] = is
	return m
}

// served creates the volume; replicas are r1, r2, … and n is the requested number.
func served(n int, copies ...option) Facts {
	v := &longhorn.Volume{ObjectMeta: metav1.ObjectMeta{Name: "vol", UID: "u", Labels: map[string]string{types.LabelVolume: "vol"}}}
	v.Spec.Size, v.Spec.NodeID, v.Spec.DataLocality = gib, "a", longhorn.DataLocalityDisabled
	v.Spec.NumberOfReplicas, v.Spec.StaleReplicaTimeout = n, 2880
	v.Status = longhorn.VolumeStatus{OwnerID: "leader", State: longhorn.VolumeStateAttached, CurrentNodeID: "a", AttachedAt: ago(long), Size: gib}
	e := children.NewEngine(v)
	e.Spec.NodeID, e.Spec.DesireState, e.Status.CurrentSize = "a", longhorn.DesireStateRunning, gib
	e.Status.CurrentState, e.Status.Session, e.Status.Generation = longhorn.InstanceStateRunning, "s", 1
	e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1}
	in := Facts{Volume: v, Engine: e, Nodes: map[string]NodeFact{}, ReplenishmentWait: 10 * time.Minute, RebuildLimit: 5, Now: now}
	in.Names = []children.ReplicaNames{{Replica: "new", Directory: "new-dir"}}
	in.Cluster.Settings = scheduler.Settings{OverProvisioningPercent: 100, ZoneSoftAntiAffinity: true, DiskSoftAntiAffinity: true, AllowEmptyNodeSelector: true, AllowEmptyDiskSelector: true}
	for i, o := range copies {
		name := "r" + string(rune('1'+i))
		node := string(rune('a' + i))
		r := children.NewReplica(v, children.ReplicaNames{Replica: name, Directory: name + "-dir"}, scheduler.Placement{Node: node, DiskUUID: "disk-" + node, DiskPath: "/d"})
		r.Spec.DesireState, r.Status.CurrentState = longhorn.DesireStateRunning, longhorn.InstanceStateRunning
		r.Status.IP, r.Status.Port, r.Status.DirectoryCreated = "10.0.0."+string(rune('1'+i)), 8500, true
		o(&in, r)
		in.Replicas = append(in.Replicas, r)
		if r.DeletionTimestamp == nil {
			in.Cluster.Replicas = append(in.Cluster.Replicas, scheduler.Replica{Node: r.Spec.NodeID, DiskUUID: r.Spec.DiskID})
		}
	}
	for i := range 5 {
		node := string(rune('a' + i))
		in.Cluster.Nodes = append(in.Cluster.Nodes, scheduler.Node{
			Name: node, Ready: !in.Nodes[node].Down, Schedulable: true, AllowScheduling: true, InstanceManagerRunning: true,
			Disks: []scheduler.Disk{{Name: "d", UUID: "disk-" + node, Path: "/d", AllowScheduling: true, Ready: true, Schedulable: true, StorageMaximum: 10 * gib, StorageAvailable: 10 * gib}},
		})
	}
	slices.Sort(e.Status.Epoch.Members)
	return in
}

// onNodes removes all but the first n nodes.
func onNodes(n int, in Facts) Facts {
	in.Cluster.Nodes = in.Cluster.Nodes[:n]
	return in
}

// outcome is what a step changes, in the terms of the controller's plan.
type outcome struct {
	CreateReplicas, UpdateReplicas []*longhorn.Replica
	UpdateEngine                   *longhorn.Engine
	Surplus                        *Surplus
	Status                         longhorn.VolumeStatus
	After                          time.Duration
}

// plan decides the next step of a served volume. Like the controller's plan, it keeps the parts of the volume's status
// that later steps are based on.
func plan(in Facts) outcome {
	p := outcome{Status: *in.Volume.Status.DeepCopy()}
	state := StateOf(in)
	if !state.Known {
		return p
	}
	p.Status.CurrentNodeID, p.Status.AttachedAt = in.Engine.Spec.NodeID, AttachedSince(in)
	switch {
	case state.Healthy() >= in.Volume.Spec.NumberOfReplicas:
		p.Status.LastDegradedAt = ""
	case p.Status.LastDegradedAt == "":
		p.Status.LastDegradedAt = types.Timestamp(in.Now)
	}
	s := NextStep(in, state, p.Status.LastDegradedAt)
	p.UpdateReplicas, p.UpdateEngine, p.Surplus, p.After = s.Replicas, s.Engine, s.GiveUp, s.After
	if s.Make != nil {
		p.CreateReplicas = []*longhorn.Replica{s.Make}
	}
	if s.MakesLocal {
		p.Status.LastLocalReplicaAt = types.Timestamp(in.Now)
	}
	p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, longhorn.Condition{
		Type: types.ConditionScheduled, Status: s.Scheduled.Status, Reason: s.Scheduled.Reason, Message: s.Scheduled.Message,
	}, in.Now)
	return p
}

// edited is the spec that a plan gives a replica; the old spec if the plan does not change it.
func edited(in Facts, p outcome, name string) (s longhorn.ReplicaSpec, changed bool) {
	for _, r := range p.UpdateReplicas {
		if r.Name == name {
			return r.Spec, true
		}
	}
	for _, r := range in.Replicas {
		if r.Name == name {
			s = r.Spec
		}
	}
	return s, false
}

// resting is the served volume with its engine stopped. It is requested on node "a", and has been attaching for that
// long.
func resting(waited time.Duration, in Facts) Facts {
	e := in.Engine
	e.Spec.DesireState, e.Status.CurrentState, e.Status.Session = longhorn.DesireStateStopped, longhorn.InstanceStateStopped, ""
	e.Spec.NodeID, e.Spec.ReplicaAddressMap = "", nil
	e.Status.CurrentReplicaAddressMap, e.Status.ReplicaModeMap = nil, nil
	in.Volume.Status.State, in.Volume.Status.CurrentNodeID = longhorn.VolumeStateAttaching, ""
	if waited > 0 {
		in.Volume.Status.Conditions = []longhorn.Condition{{Type: types.ConditionAttaching, Status: longhorn.ConditionTrue, LastTransitionTime: ago(waited)}}
	}
	return in
}

func put(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

func conditionOf(in Facts) longhorn.Condition {
	for _, c := range in.Volume.Status.Conditions {
		if c.Type == "Scheduled" {
			return c
		}
	}
	return longhorn.Condition{}
}

func starting(_ *Facts, r *longhorn.Replica) {
	r.Status.CurrentState = longhorn.InstanceStateStarting
}

func change(in Facts, f func(*Facts)) Facts {
	f(&in)
	return in
}
