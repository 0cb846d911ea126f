package replicateardown_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/replicateardown"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func placed(changes ...func(*longhorn.Replica)) *longhorn.Replica {
	return build.PlacedReplica("r", "vol", "n", "disk", append(changes, func(r *longhorn.Replica) { types.AddFinalizer(r) })...)
}

func gone(r *longhorn.Replica) { r.DeletionTimestamp = &metav1.Time{Time: testutil.Now} }

func made(r *longhorn.Replica) {
	r.Status.DirectoryCreated = true
	r.OwnerReferences = []metav1.OwnerReference{{Kind: "Volume", Name: "vol", UID: "uid-vol"}}
}

func good(r *longhorn.Replica) { r.Spec.HealthyAt = "2029-01-01T00:00:00Z" }

func recorded(members ...string) *longhorn.Engine {
	return build.Engine("vol", func(e *longhorn.Engine) {
		e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: members}
	})
}

// nodes are the nodes of the replicas here, ready with their disks, except for a case's change of "m".
func nodes(changes ...func(*longhorn.Node)) map[string]*longhorn.Node {
	return map[string]*longhorn.Node{"n": build.ReadyNode("n", "disk"), "m": build.ReadyNode("m", "disk-m", changes...)}
}

func TestWhichDeletedReplicaIsKept(t *testing.T) {
	sibling := func(changes ...func(*longhorn.Replica)) []*longhorn.Replica {
		return []*longhorn.Replica{placed(made, gone), build.PlacedReplica("s", "vol", "m", "disk-m", append(changes, made)...)}
	}
	serving := func(modes map[string]longhorn.ReplicaMode) *longhorn.Engine {
		e := recorded("r", "s")
		e.Status.CurrentState, e.Status.ReplicaModeMap = longhorn.InstanceStateRunning, modes
		return e
	}
	for _, tc := range []struct {
		name     string
		volume   *longhorn.Volume
		engine   *longhorn.Engine
		siblings []*longhorn.Replica
		replica  *longhorn.Replica
		kept     bool
	}{
		{"the only copy of a volume that stays → kept", build.Volume("vol"), recorded("r"), nil, placed(made, gone), true},
		{"the volume is being deleted → goes", build.Volume("vol", func(v *longhorn.Volume) { v.DeletionTimestamp = &metav1.Time{Time: testutil.Now} }), recorded("r"), nil, placed(made, gone), false},
		{"the volume is gone → goes", nil, recorded("r"), nil, placed(made, gone), false},
		{"the volume is another one of that name → goes", build.Volume("vol", func(v *longhorn.Volume) { v.UID = "later" }), recorded("r"), nil, placed(made, gone), false},
		{"nothing was ever written → goes", build.Volume("vol"), build.Engine("vol"), nil, placed(made, gone), false},
		{"its directory was never made → goes", build.Volume("vol"), recorded("r"), nil, placed(made, gone, func(r *longhorn.Replica) { r.Status.DirectoryCreated = false }), false},
		{"it is no member → goes", build.Volume("vol"), recorded("s"), sibling(), placed(made, gone), false},
		{"another member is good → goes", build.Volume("vol"), recorded("r", "s"), sibling(), placed(made, gone), false},
		{"the other member was deleted too → kept", build.Volume("vol"), recorded("r", "s"), sibling(gone), placed(made, gone), true},
		{"the other member has failed → kept", build.Volume("vol"), recorded("r", "s"), sibling(func(r *longhorn.Replica) { r.Spec.FailedAt = "2030-01-01T00:00:00Z" }), placed(made, gone), true},
		{"the other member's node is gone → kept", build.Volume("vol"), recorded("r", "s"), sibling(func(r *longhorn.Replica) {
			r.Status.CurrentState = longhorn.InstanceStateError
			r.Status.Conditions = []longhorn.Condition{{Type: types.ConditionInstanceCreation, Reason: types.ReasonNodeGone}}
		}), placed(made, gone), true},
		{"attached, the other is being rebuilt → kept", build.Volume("vol"), serving(map[string]longhorn.ReplicaMode{"r": "RW", "s": "WO"}), sibling(), placed(made, gone), true},
		{"attached, the other serves → goes", build.Volume("vol"), serving(map[string]longhorn.ReplicaMode{"r": "RW", "s": "RW"}), sibling(), placed(made, gone), false},
		{"the record is gone, and no other replica is left → kept", build.Volume("vol"), nil, nil, placed(made, gone), true},
		{"the record is gone, and the other's node too → kept", build.Volume("vol"), nil, sibling(func(r *longhorn.Replica) {
			r.Status.CurrentState = longhorn.InstanceStateError
			r.Status.Conditions = []longhorn.Condition{{Type: types.ConditionInstanceCreation, Reason: types.ReasonNodeGone}}
		}), placed(made, gone), true},
		{"the record is gone, the other's node is back and starts it → goes", build.Volume("vol"), nil, sibling(func(r *longhorn.Replica) {
			r.Status.CurrentState = longhorn.InstanceStateStarting
			r.Status.Conditions = []longhorn.Condition{{Type: types.ConditionInstanceCreation, Reason: types.ReasonNodeGone}}
		}), placed(made, gone), false},
		{"the record is gone, the other has failed otherwise → goes", build.Volume("vol"), nil, sibling(func(r *longhorn.Replica) {
			r.Status.CurrentState = longhorn.InstanceStateError
		}), placed(made, gone), false},
		{"the record is gone, the other is of another volume → kept", build.Volume("vol"), nil, sibling(func(r *longhorn.Replica) {
			r.Spec.VolumeName = "other"
		}), placed(made, gone), true},
		{"the engine was created again, and it was good → kept", build.Volume("vol"), build.Engine("vol"), nil, placed(made, gone, good), true},
		{"the engine was created again, and another one was good → goes", build.Volume("vol"), build.Engine("vol"), sibling(good), placed(made, gone, good), false},
		{"the engine was created again, and the other was never good → kept", build.Volume("vol"), build.Engine("vol"), sibling(), placed(made, gone, good), true},
		{"the engine was created again, and the other was deleted too → kept", build.Volume("vol"), build.Engine("vol"), sibling(good, gone), placed(made, gone, good), true},
		{"the record is gone, and the other was never good → kept", build.Volume("vol"), nil, sibling(), placed(made, gone, good), true},
		{"the record is gone, and another replica is left → goes", build.Volume("vol"), nil, sibling(), placed(made, gone), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.kept, replicateardown.IsLastCopy(tc.replica, tc.volume, tc.engine, tc.siblings, nodes()))
		})
	}
}

// The replica in the epoch may be the only replica with all data, even while its status is failed.
func TestAMemberOfTheEpochIsKeptThoughItFailed(t *testing.T) {
	running := func(modes map[string]longhorn.ReplicaMode, members ...string) *longhorn.Engine {
		e := recorded(members...)
		e.Status.CurrentState, e.Status.ReplicaModeMap = longhorn.InstanceStateRunning, modes
		return e
	}
	failed := func(r *longhorn.Replica) { r.Spec.FailedAt = "2030-01-01T00:00:00Z" }
	inError := func(r *longhorn.Replica) { r.Status.CurrentState = longhorn.InstanceStateError }
	sibling := func(changes ...func(*longhorn.Replica)) []*longhorn.Replica {
		return []*longhorn.Replica{placed(made, gone), build.PlacedReplica("s", "vol", "m", "disk-m", append(changes, made)...)}
	}
	v := build.Volume("vol")
	for name, tc := range map[string]struct {
		e        *longhorn.Engine
		siblings []*longhorn.Replica
		want     bool
	}{
		"the only member, in error":                        {running(map[string]longhorn.ReplicaMode{"r": "ERR"}, "r"), nil, true},
		"the only member, not shown":                       {running(nil, "r"), nil, true},
		"both members in error":                            {running(map[string]longhorn.ReplicaMode{"r": "ERR", "s": "ERR"}, "r", "s"), sibling(), true},
		"the other serves":                                 {running(map[string]longhorn.ReplicaMode{"r": "ERR", "s": "RW"}, "r", "s"), sibling(), false},
		"at rest, the other cannot be opened":              {recorded("r", "s"), sibling(inError), true},
		"the epoch does not list it, nor is another there": {running(nil, "s"), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, replicateardown.IsLastCopy(placed(made, gone, failed), v, tc.e, tc.siblings, nodes()))
		})
	}
}

// While a volume is detached, no engine notices that a node or a disk is lost: the status of its replicas does not
// change.
func TestAReplicaIsKeptWhileNoOtherCanBeReached(t *testing.T) {
	down := func(reason string) map[string]*longhorn.Node {
		return nodes(func(n *longhorn.Node) {
			n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: reason}}
		})
	}
	disk := func(status longhorn.ConditionStatus) map[string]*longhorn.Node {
		return nodes(build.WithDiskStatus("disk-1", "disk-m", func(d *longhorn.DiskStatus) {
			d.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: status}}
		}))
	}
	siblings := []*longhorn.Replica{placed(made, gone), build.PlacedReplica("s", "vol", "m", "disk-m", made)}
	for name, tc := range map[string]struct {
		nodes map[string]*longhorn.Node
		kept  bool
	}{
		"its node and disk are ready → goes":     {nodes(), false},
		"its node does not answer → kept":        {down(types.ReasonKubernetesNodeNotReady), true},
		"its Kubernetes node was removed → kept": {down(types.ReasonKubernetesNodeGone), true},
		"its node only lacks its daemon → goes":  {down(types.ReasonManagerPodDown), false},
		"its node is not there → kept":           {nil, true},
		"its disk is not ready → kept":           {disk(longhorn.ConditionFalse), true},
		"its disk was not looked at → kept":      {disk(longhorn.ConditionUnknown), true},
		"its node has another disk now → kept":   {nodes(build.WithDiskStatus("disk-1", "another")), true},
	} {
		t.Run("the other one: "+name, func(t *testing.T) {
			assert.Equal(t, tc.kept, replicateardown.IsLastCopy(placed(made, gone), build.Volume("vol"), recorded("r", "s"), siblings, tc.nodes))
		})
	}
	t.Run("two others, one can be reached → goes", func(t *testing.T) {
		three := append(siblings, build.PlacedReplica("q", "vol", "n", "disk", made))
		assert.False(t, replicateardown.IsLastCopy(placed(made, gone), build.Volume("vol"), recorded("q", "r", "s"), three, down(types.ReasonKubernetesNodeNotReady)))
	})
}

func TestAKeptReplicaGetsTheConditionAndOneEvent(t *testing.T) {
	now := testutil.Now
	r := placed(made, gone)
	s := r.Status.DeepCopy()
	assert.Zero(t, replicateardown.SetRemovable(r, false, s, now))
	assert.Empty(t, s.Conditions, "nothing is said of a replica that was never kept")

	assert.Equal(t, 30*time.Second, replicateardown.SetRemovable(r, true, s, now))
	kept := types.FindCondition(s.Conditions, types.ConditionRemovable)
	assert.Equal(t, longhorn.ConditionFalse, kept.Status)
	assert.Equal(t, types.ReasonLastReplica, kept.Reason)
	recorder := &testutil.Recorder{}
	replicateardown.RecordKept(recorder, r, *s)
	assert.Len(t, recorder.Take(), 1)

	r.Status = *s.DeepCopy()
	assert.Equal(t, 30*time.Second, replicateardown.SetRemovable(r, true, s, now))
	s.OwnerID = "another"
	replicateardown.RecordKept(recorder, r, *s)
	assert.Empty(t, recorder.Take(), "the Event was recorded before")

	assert.Zero(t, replicateardown.SetRemovable(r, false, s, now))
	assert.Equal(t, longhorn.ConditionTrue, types.FindCondition(s.Conditions, types.ConditionRemovable).Status, "it is kept no longer")
	replicateardown.RecordKept(recorder, r, *s)
	assert.Empty(t, recorder.Take())
}

func TestAReplicaHasAPlaceOnlyWithNodeAndDirectory(t *testing.T) {
	assert.True(t, replicateardown.HasPlace(placed()))
	assert.False(t, replicateardown.HasPlace(placed(func(r *longhorn.Replica) { r.Spec.NodeID = "" })))
	assert.False(t, replicateardown.HasPlace(placed(func(r *longhorn.Replica) { r.Spec.DataDirectoryName = "" })))
}
