package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"
	object "k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// turnable is a node with a disk, on node c. Its only replica is r3.
func turnable(changes ...func(*longhorn.Node)) *longhorn.Node {
	return build.ReadyNode("c", "disk-c", changes...)
}

func diskSpec(change func(*longhorn.DiskSpec)) func(*longhorn.Node) {
	return func(n *longhorn.Node) {
		d := n.Spec.Disks["disk-1"]
		change(&d)
		n.Spec.Disks["disk-1"] = d
	}
}

func diskStatus(change func(*longhorn.DiskStatus)) func(*longhorn.Node) {
	return func(n *longhorn.Node) {
		d := n.Status.DiskStatus["disk-1"]
		change(&d)
		n.Status.DiskStatus["disk-1"] = d
	}
}

func nodeCondition(kind string, status longhorn.ConditionStatus, reason string) func(*longhorn.Node) {
	return func(n *longhorn.Node) {
		n.Status.Conditions, _ = types.SetCondition(n.Status.Conditions, longhorn.Condition{Type: kind, Status: status, Reason: reason}, now)
	}
}

func diskCondition(kind string, status longhorn.ConditionStatus) func(*longhorn.Node) {
	return diskStatus(func(d *longhorn.DiskStatus) {
		d.Conditions, _ = types.SetCondition(d.Conditions, longhorn.Condition{Type: kind, Status: status}, now)
	})
}

func TestWhichVolumesAChangeOfANodeWakes(t *testing.T) {
	const no, yes = longhorn.ConditionFalse, longhorn.ConditionTrue
	there, unplaced := []string{"vol"}, []string{"homeless", "partly"}
	for _, tc := range []struct {
		name    string
		was, is *longhorn.Node
		want    []string
	}{
		{"nothing changed → none", turnable(), turnable(), nil},
		{"a condition has another message → none", turnable(), turnable(func(n *longhorn.Node) { n.Status.Conditions[0].Message = "m" }), nil},
		{"a disk has less room → none", turnable(), turnable(diskStatus(func(d *longhorn.DiskStatus) { d.StorageAvailable-- })), nil},
		{"another replica is counted → none", turnable(), turnable(diskStatus(func(d *longhorn.DiskStatus) { d.StorageScheduled++; d.ScheduledReplica = map[string]int64{"r": 1} })), nil},
		{"a disk may not be scheduled any more → none", turnable(), turnable(diskSpec(func(d *longhorn.DiskSpec) { d.AllowScheduling = false })), nil},
		{"it takes no copies, and is not cordoned → none", turnable(), turnable(nodeCondition(types.ConditionSchedulable, no, "")), nil},
		{"more is reserved → none", turnable(), turnable(diskSpec(func(d *longhorn.DiskSpec) { d.StorageReserved++ })), nil},
		{"its daemon is away → none", turnable(), turnable(nodeCondition(types.ConditionReady, no, types.ReasonManagerPodDown)), nil},

		{"it does not answer → those with a replica there", turnable(), turnable(nodeCondition(types.ConditionReady, no, types.ReasonKubernetesNodeNotReady)), there},
		{"it is gone → those with a replica there", turnable(), turnable(nodeCondition(types.ConditionReady, no, types.ReasonKubernetesNodeGone)), there},
		{"its Node is deleted → those with a replica there", turnable(), nil, there},
		{"a disk was taken out → those with a replica there", turnable(), turnable(func(n *longhorn.Node) { n.Spec.Disks, n.Status.DiskStatus = nil, nil }), there},
		{"a disk is to be emptied → those with a replica there", turnable(diskSpec(func(d *longhorn.DiskSpec) { d.AllowScheduling = false })), turnable(diskSpec(func(d *longhorn.DiskSpec) { d.AllowScheduling, d.EvictionRequested = false, true })), there},
		{"it is to be emptied → those with a replica there", turnable(), turnable(func(n *longhorn.Node) { n.Spec.AllowScheduling, n.Spec.EvictionRequested = false, true }), there},

		{"it was cordoned → those with a replica there", turnable(), turnable(nodeCondition(types.ConditionSchedulable, no, types.ReasonKubernetesNodeCordoned)), there},

		{"a disk has more room → those without a place", turnable(), turnable(diskStatus(func(d *longhorn.DiskStatus) { d.StorageAvailable++ })), unplaced},
		{"a disk grew → those without a place", turnable(), turnable(diskStatus(func(d *longhorn.DiskStatus) { d.StorageMaximum++ })), unplaced},
		{"less is reserved → those without a place", turnable(diskSpec(func(d *longhorn.DiskSpec) { d.StorageReserved = 1 })), turnable(), unplaced},
		{"a disk may be scheduled → those without a place", turnable(diskSpec(func(d *longhorn.DiskSpec) { d.AllowScheduling = false })), turnable(), unplaced},
		{"a disk became ready → those without a place", turnable(diskCondition(types.ConditionReady, no)), turnable(), unplaced},
		{"a disk became schedulable → those without a place", turnable(diskCondition(types.ConditionSchedulable, no)), turnable(diskCondition(types.ConditionSchedulable, yes)), unplaced},
		{"a disk got a tag → those without a place", turnable(), turnable(diskSpec(func(d *longhorn.DiskSpec) { d.Tags = []string{"ssd"} })), unplaced},
		{"the node got a tag → those without a place", turnable(), turnable(func(n *longhorn.Node) { n.Spec.Tags = []string{"ssd"} }), unplaced},
		{"the node may be scheduled → those without a place", turnable(func(n *longhorn.Node) { n.Spec.AllowScheduling = false }), turnable(), unplaced},
		{"it takes copies again, and was not cordoned → those without a place", turnable(nodeCondition(types.ConditionSchedulable, no, "")), turnable(), unplaced},
		{"its daemon is back → those without a place", turnable(nodeCondition(types.ConditionReady, no, types.ReasonManagerPodDown)), turnable(), unplaced},
		{"it is in another zone → those without a place", turnable(), turnable(func(n *longhorn.Node) { n.Status.Zone = "z" }), unplaced},

		{"it answers again → both", turnable(nodeCondition(types.ConditionReady, no, types.ReasonKubernetesNodeNotReady)), turnable(), append(there, unplaced...)},
		{"it was uncordoned → both", turnable(nodeCondition(types.ConditionSchedulable, no, types.ReasonKubernetesNodeCordoned)), turnable(), append(there, unplaced...)},
		{"it is new → both", nil, turnable(), append(there, unplaced...)},
		{"a disk got its UUID → both", turnable(diskStatus(func(d *longhorn.DiskStatus) { d.DiskUUID = "" })), turnable(), append(there, unplaced...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, c := begin(t, append(cluster(2), unplacedVolumes()...)...)
			assert.ElementsMatch(t, tc.want, c.whenNode(tc.was, tc.is))
		})
	}
}

// unplacedVolumes are a volume without any place, and a volume that may be used with some replicas.
func unplacedVolumes() []object.Object {
	condition := func(c longhorn.Condition) func(*longhorn.Volume) {
		c.Type = types.ConditionScheduled
		return func(v *longhorn.Volume) { v.Status.Conditions = []longhorn.Condition{c} }
	}
	return []object.Object{
		build.Volume("homeless", finalized, condition(longhorn.Condition{Status: longhorn.ConditionFalse, Reason: types.ReasonReplicaSchedulingFailure})),
		build.Volume("partly", finalized, condition(longhorn.Condition{Status: longhorn.ConditionTrue, Reason: types.ReasonDegradedAvailability})),
	}
}

func TestWhichVolumesOtherChangesWake(t *testing.T) {
	_, c := begin(t, append(cluster(2), unplacedVolumes()...)...)
	im := func(state longhorn.InstanceManagerState, uuid string) *longhorn.InstanceManager {
		return build.RunningInstanceManager("c", "10.0.0.3", uuid, func(im *longhorn.InstanceManager) { im.Status.CurrentState = state })
	}
	const running, starting = longhorn.InstanceManagerStateRunning, longhorn.InstanceManagerStateStarting
	t.Run("an instance manager has other conditions → none", func(t *testing.T) {
		is := im(running, "p")
		is.Status.Conditions = []longhorn.Condition{{Type: types.ConditionPodReady}}
		assert.Empty(t, c.whenInstanceManager(im(running, "p"), is))
	})
	t.Run("it runs in another process → those with a replica there", func(t *testing.T) {
		assert.Equal(t, []string{"vol"}, c.whenInstanceManager(im(running, "p"), im(running, "q")))
	})
	t.Run("it runs again → those without a place, too", func(t *testing.T) {
		assert.ElementsMatch(t, []string{"vol", "homeless", "partly"}, c.whenInstanceManager(im(starting, ""), im(running, "p")))
	})
	t.Run("the drain policy changed → those without a place, and those with a replica on a cordoned node", func(t *testing.T) {
		h, c := begin(t, append(cluster(2), unplacedVolumes()...)...)
		drain, other := build.Setting(settings.NodeDrainPolicy, "block-for-eviction"), build.Setting(settings.DefaultReplicaCount, "2")
		assert.ElementsMatch(t, []string{"homeless", "partly"}, c.whenSetting(drain))
		h.Overwrite(turnable(nodeCondition(types.ConditionSchedulable, longhorn.ConditionFalse, types.ReasonKubernetesNodeCordoned)))
		h.CatchUp()
		assert.ElementsMatch(t, []string{"vol", "homeless", "partly"}, c.whenSetting(drain))
		assert.ElementsMatch(t, []string{"homeless", "partly"}, c.whenSetting(other))
	})
	t.Run("a replica changed → none but its own", func(t *testing.T) {
		assert.Empty(t, c.whenReplica(build.Replica("r", "v"), build.Replica("r", "v")))
	})
	t.Run("a replica is gone → those without a place: it left room", func(t *testing.T) {
		assert.ElementsMatch(t, []string{"homeless", "partly"}, c.whenReplica(build.Replica("r", "v"), nil))
	})
}

func TestWhatWakesABalancedVolume(t *testing.T) {
	attached := func(name string, mode longhorn.AutoBalance) *longhorn.Volume {
		return build.Volume(name, finalized, func(v *longhorn.Volume) {
			v.Spec.ReplicaAutoBalance, v.Status.State = mode, longhorn.VolumeStateAttached
			v.Status.Conditions = []longhorn.Condition{{Type: types.ConditionScheduled, Status: longhorn.ConditionTrue}}
		})
	}
	h, c := begin(t, attached("own", longhorn.AutoBalanceLeastEffort), attached("follows", longhorn.AutoBalanceIgnored), attached("never", longhorn.AutoBalanceDisabled),
		build.Setting(settings.ReplicaAutoBalance, "disabled"))
	closed := turnable(func(n *longhorn.Node) { n.Spec.AllowScheduling = false })
	assert.ElementsMatch(t, []string{"own"}, c.whenNode(closed, turnable()), "a node opened")
	assert.Empty(t, c.whenNode(turnable(), turnable(diskStatus(func(d *longhorn.DiskStatus) { d.StorageAvailable++ }))), "a disk has more room, which is often")

	setting := build.Setting(settings.ReplicaAutoBalance, "best-effort")
	assert.ElementsMatch(t, []string{"own", "follows", "never"}, c.whenSetting(setting), "the setting changed")
	h.Overwrite(setting)
	h.CatchUp()
	assert.ElementsMatch(t, []string{"own", "follows"}, c.whenNode(closed, turnable()))
}
