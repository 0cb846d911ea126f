package page

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// threeNodes returns nodes with a partly used disk of 100 GiB each, and a running data plane.
func threeNodes() []runtime.Object {
	var objs []runtime.Object
	for i, used := range []int64{20, 35, 60} {
		name := fmt.Sprintf("node-%d", i+1)
		n := build.ReadyNode(name, fmt.Sprintf("uuid-%d", i+1))
		status := n.Status.DiskStatus["disk-1"]
		status.StorageAvailable = (100 - used) * build.GiB
		status.StorageScheduled = 2 * used * build.GiB
		n.Status.DiskStatus["disk-1"] = status
		objs = append(objs, n, build.RunningInstanceManager(name, fmt.Sprintf("10.0.0.%d", i+1), fmt.Sprintf("im-%d", i+1)))
	}
	return objs
}

// state describes a volume to the function volume.
type state struct {
	robustness longhorn.VolumeRobustness
	locality   longhorn.DataLocality
	node       string            // where it is attached; empty: it is detached
	replicas   map[string]string // mode by node
	progress   int               // of the replicas of mode WO
	condition  *longhorn.Condition
}

// volume returns a volume with its engine and replicas as its controllers would have them.
func volume(name string, sizeGiB int, s state) []runtime.Object {
	v := build.Volume(name, func(v *longhorn.Volume) {
		v.CreationTimestamp.Time = created
		v.Spec.Size = longhorn.Bytes(sizeGiB) * build.GiB
		v.Spec.DataLocality = s.locality
		v.Spec.NodeID, v.Status.CurrentNodeID = s.node, s.node
		v.Status.State, v.Status.Robustness = longhorn.VolumeStateDetached, longhorn.VolumeRobustnessUnknown
		if s.robustness != "" {
			v.Status.Robustness = s.robustness
		}
		v.Status.Conditions = []longhorn.Condition{{Type: types.ConditionScheduled, Status: longhorn.ConditionTrue, LastTransitionTime: now}}
		if s.condition != nil {
			v.Status.Conditions = []longhorn.Condition{*s.condition}
		}
		v.Status.ActualSize = int64(v.Spec.Size) / 3
		if s.node != "" {
			v.Status.State = longhorn.VolumeStateAttached
		}
	})
	e := build.Engine(name, func(e *longhorn.Engine) {
		e.Spec.NodeID = s.node
		e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{}
		e.Status.RebuildStatus = map[string]longhorn.RebuildStatus{}
		e.Status.CurrentSize = v.Spec.Size
		if s.node != "" {
			e.Spec.DesireState, e.Status.CurrentState = longhorn.DesireStateRunning, longhorn.InstanceStateRunning
			e.Status.Endpoint = "/dev/longhorn/" + name
		}
	})
	owned := []metav1.OwnerReference{{APIVersion: longhorn.SchemeGroupVersion.String(), Kind: "Volume", Name: name, UID: v.UID}}
	e.OwnerReferences = owned
	objs := []runtime.Object{v, e}
	var members []string
	for i := range 3 {
		node := fmt.Sprintf("node-%d", i+1)
		mode, ok := s.replicas[node]
		if !ok {
			continue
		}
		r := build.PlacedReplica(fmt.Sprintf("%s-r-%d", name, i+1), name, node, fmt.Sprintf("uuid-%d", i+1))
		r.OwnerReferences = owned
		if s.node != "" {
			r.Spec.DesireState, r.Status.CurrentState = longhorn.DesireStateRunning, longhorn.InstanceStateRunning
			e.Status.ReplicaModeMap[r.Name] = longhorn.ReplicaMode(mode)
		}
		if mode == "WO" {
			e.Status.RebuildStatus[r.Name] = longhorn.RebuildStatus{IsRebuilding: true, Progress: s.progress, State: "in_progress", CopyBytes: int64(v.Spec.Size) / 3}
		} else {
			members = append(members, r.Name)
		}
		objs = append(objs, r)
	}
	e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: members}
	return objs
}

var everywhere = map[string]string{"node-1": "RW", "node-2": "RW", "node-3": "RW"}

// cluster returns volumes in all states.
func cluster() []runtime.Object {
	objs := threeNodes()
	for _, v := range [][]runtime.Object{
		volume("orders-db", 20, state{robustness: longhorn.VolumeRobustnessHealthy, node: "node-1", replicas: everywhere}),
		volume("orders-queue", 5, state{robustness: longhorn.VolumeRobustnessDegraded, node: "node-2", replicas: map[string]string{"node-1": "RW", "node-2": "RW", "node-3": "WO"}, progress: 42}),
		volume("search-index", 30, state{
			robustness: longhorn.VolumeRobustnessHealthy, locality: longhorn.DataLocalityBestEffort, node: "node-3", replicas: map[string]string{"node-1": "RW", "node-2": "RW"},
			condition: &longhorn.Condition{
				Type: types.ConditionScheduled, Status: longhorn.ConditionTrue, LastTransitionTime: now,
				Reason: types.ReasonLocalReplicaSchedulingFailure, Message: "node-3: insufficient storage",
			},
		}),
		volume("archive", 40, state{replicas: everywhere}),
		volume("unplaced", 500, state{condition: &longhorn.Condition{
			Type: types.ConditionScheduled, Status: longhorn.ConditionFalse, LastTransitionTime: now,
			Reason: types.ReasonReplicaSchedulingFailure, Message: "0 of 3 replicas fit: insufficient storage (3 disks)",
		}}),
	} {
		objs = append(objs, v...)
	}
	return objs
}
