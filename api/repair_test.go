package api

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// used returns volume "vol" with two healthy replicas, modified by change.
func used(change func(*longhorn.Volume, *longhorn.Engine)) []runtime.Object {
	v := build.Volume("vol", func(v *longhorn.Volume) {
		v.Spec.NumberOfReplicas, v.Spec.NodeID = 2, "node-1"
		v.Status.State, v.Status.CurrentNodeID, v.Status.Robustness = longhorn.VolumeStateAttached, "node-1", longhorn.VolumeRobustnessHealthy
	})
	e := build.Engine("vol", func(e *longhorn.Engine) {
		e.OwnerReferences, e.Spec.NodeID = ownedByVol, "node-1"
		e.Status.CurrentState = longhorn.InstanceStateRunning
		e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"r-1", "r-2"}}
		e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"r-1": longhorn.ReplicaModeRW, "r-2": longhorn.ReplicaModeRW}
	})
	change(v, e)
	isOwned := func(r *longhorn.Replica) { r.OwnerReferences = ownedByVol }
	return append(threeNodes(), v, e,
		build.PlacedReplica("r-1", "vol", "node-1", "uuid-1", isOwned), build.PlacedReplica("r-2", "vol", "node-2", "uuid-2", isOwned))
}

// TestASchemaDrivenClientRepairsAVolume repairs a volume by the actions that the volume shows in its state.
func TestASchemaDrivenClientRepairsAVolume(t *testing.T) {
	const start = "http://longhorn.example:9500/v1"
	t.Run("attached → a replica is removed", func(t *testing.T) {
		b := newBench(t, used(func(*longhorn.Volume, *longhorn.Engine) {})...)
		c := newDriven(t, b.server, start)
		v := c.byID("volume", "vol")
		assert.Len(t, v["replicas"], 2)
		assert.Empty(t, v.at("actions").text("salvage"))
		c.do(v, "replicaRemove", object{"name": "r-2"})
		b.ExpectWrites("delete replicas/r-2")
	})
	t.Run("faulted → salvaged", func(t *testing.T) {
		b := newBench(t, used(func(v *longhorn.Volume, e *longhorn.Engine) {
			v.Spec.NodeID, v.Status.State, v.Status.CurrentNodeID, v.Status.Robustness = "", longhorn.VolumeStateDetached, "", longhorn.VolumeRobustnessFaulted
			e.Status.CurrentState, e.Status.ReplicaModeMap = longhorn.InstanceStateStopped, nil
		})...)
		c := newDriven(t, b.server, start)
		v := c.byID("volume", "vol")
		assert.Empty(t, v.at("actions").text("expand"))
		c.do(v, "salvage", object{"names": []string{"r-1"}})
		b.ExpectWrites()
	})
	t.Run("detached → expanded, and back before that has begun", func(t *testing.T) {
		b := newBench(t, used(func(v *longhorn.Volume, e *longhorn.Engine) {
			v.Spec.NodeID, v.Status.State, v.Status.CurrentNodeID, v.Status.Robustness = "", longhorn.VolumeStateDetached, "", longhorn.VolumeRobustnessUnknown
			v.Spec.Size, v.Status.Size = 1<<30, 1<<30
			e.Status.CurrentState, e.Status.ReplicaModeMap = longhorn.InstanceStateStopped, nil
		})...)
		c := newDriven(t, b.server, start)
		v := c.do(c.byID("volume", "vol"), "expand", object{"size": "2147483648"})
		assert.Equal(t, "2147483648", v.text("size"))
		v = c.do(v, "cancelExpansion", object{})
		assert.Equal(t, "1073741824", v.text("size"))
		b.ExpectWrites("update volumes/vol", "update volumes/vol")
	})
}
