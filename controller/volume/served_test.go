package volume

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// a served volume has its engine on node "a", and replicas on the nodes "a", "b", … in their order. The options
// describe the differences from that.
type option func(in *Input, r *longhorn.Replica)

const long = time.Hour // ago: before every time limit that is tested here

func ago(d time.Duration) string { return types.Timestamp(now.Add(-d)) }

// member: has all data and has served for a long time.
func member(in *Input, r *longhorn.Replica) {
	e := in.Engine
	e.Status.Epoch.Members = append(e.Status.Epoch.Members, r.Name)
	e.Status.ReplicaModeMap = mode(e.Status.ReplicaModeMap, r.Name, longhorn.ReplicaModeRW)
	asked(in, r)
	tried(in, r)
	r.Spec.HealthyAt, r.Spec.LastHealthyAt = ago(long), ago(long)
}

// once: was a member until it failed that long ago.
func once(failed time.Duration) option {
	return func(in *Input, r *longhorn.Replica) {
		r.Spec.HealthyAt, r.Spec.LastHealthyAt = ago(2*long), ago(2*long)
		r.Spec.FailedAt, r.Spec.LastFailedAt = ago(failed), ago(failed)
	}
}

// fresh: never was a member.
func fresh(*Input, *longhorn.Replica) {}

func asked(in *Input, r *longhorn.Replica) {
	in.Engine.Spec.ReplicaAddressMap = put(in.Engine.Spec.ReplicaAddressMap, r.Name, types.ReplicaAddress(r))
}

func tried(in *Input, r *longhorn.Replica) {
	in.Engine.Status.CurrentReplicaAddressMap = put(in.Engine.Status.CurrentReplicaAddressMap, r.Name, types.ReplicaAddress(r))
}

func shows(m longhorn.ReplicaMode) option {
	return func(in *Input, r *longhorn.Replica) {
		in.Engine.Status.ReplicaModeMap = mode(in.Engine.Status.ReplicaModeMap, r.Name, m)
	}
}

func away(in *Input, r *longhorn.Replica) { in.Nodes[r.Spec.NodeID] = copies.NodeFact{Down: true} }

func nodeGone(in *Input, r *longhorn.Replica) {
	in.Nodes[r.Spec.NodeID] = copies.NodeFact{Down: true, Gone: true}
}

// nodeLeft: the leader found that its node was removed; an engine may still reach it.
func nodeLeft(in *Input, r *longhorn.Replica) {
	nodeGone(in, r)
	broken(types.ReasonNodeGone)(in, r)
}

// diskless: its node is back, without its disk.
func diskless(in *Input, r *longhorn.Replica) {
	broken(types.ReasonDiskNotFound)(in, r)
	in.LacksDisk = map[string]bool{r.Name: true}
}

func broken(reason string) option {
	return func(_ *Input, r *longhorn.Replica) {
		r.Status.CurrentState = longhorn.InstanceStateError
		r.Status.Conditions = []longhorn.Condition{{Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: reason, Message: "m"}}
	}
}

func replaced(in *Input, r *longhorn.Replica) {
	in.Nodes[r.Spec.NodeID] = copies.NodeFact{Process: "another"}
}

func onNode(node string) option { return func(_ *Input, r *longhorn.Replica) { r.Spec.NodeID = node } }

func beingDeleted(_ *Input, r *longhorn.Replica) { r.DeletionTimestamp = &metav1.Time{Time: now} }

func notStarted(_ *Input, r *longhorn.Replica) {
	r.Spec.DesireState, r.Status.CurrentState = longhorn.DesireStateStopped, longhorn.InstanceStateStopped
}

func all(options ...option) option {
	return func(in *Input, r *longhorn.Replica) {
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
func served(n int, replicas ...option) Input {
	in := world{want: "a", engineNode: "a", engineDesire: longhorn.DesireStateRunning}.input()
	in.Replicas, in.Nodes, in.ReplenishmentWait = nil, map[string]copies.NodeFact{}, 10*time.Minute
	in.Names = []children.ReplicaNames{{Replica: "new", Directory: "new-dir"}}
	v, e := in.Volume, in.Engine
	v.Spec.NumberOfReplicas, v.Spec.StaleReplicaTimeout = n, 2880
	v.Status = longhorn.VolumeStatus{OwnerID: "leader", State: longhorn.VolumeStateAttached, CurrentNodeID: "a", AttachedAt: ago(long), Size: gib}
	e.Spec.NodeID, e.Status.CurrentSize = "a", gib
	e.Status.CurrentState, e.Status.Session, e.Status.Generation = longhorn.InstanceStateRunning, "s", 1
	e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1}
	in.Cluster.Settings = scheduler.Settings{OverProvisioningPercent: 100, ZoneSoftAntiAffinity: true, DiskSoftAntiAffinity: true, AllowEmptyNodeSelector: true, AllowEmptyDiskSelector: true}
	for i, o := range replicas {
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
func onNodes(n int, in Input) Input {
	in.Cluster.Nodes = in.Cluster.Nodes[:n]
	return in
}

// evicted: it must leave its disk.
func evicted(in *Input, r *longhorn.Replica) {
	if in.Evicted == nil {
		in.Evicted = map[string]bool{}
	}
	in.Evicted[r.Name] = true
}

// usedOn means that the volume is used on a node and needs a local replica there.
func usedOn(node string, in Input) Input {
	in.Volume.Spec.NodeID, in.Engine.Spec.NodeID = node, node
	in.Volume.Spec.DataLocality = longhorn.DataLocalityBestEffort
	return in
}
