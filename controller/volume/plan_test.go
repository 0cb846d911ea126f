package volume

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const gib = 1 << 30

// world is a volume with its children in one state. Its fields are the parts that the cases vary.
type world struct {
	want          string // Volume.spec.nodeID
	engineNode    string
	engineDesire  longhorn.DesireState
	engineState   longhorn.InstanceState
	replicaDesire longhorn.DesireState
	replicaState  longhorn.InstanceState
	failedAgo     time.Duration // time since the engine's failure; 0: it did not fail
	deleted       bool
}

func (w world) input() Input {
	v := &longhorn.Volume{ObjectMeta: metav1.ObjectMeta{Name: "vol", UID: "u", Labels: map[string]string{types.LabelVolume: "vol"}, Finalizers: []string{types.Finalizer}}}
	v.Spec.Size, v.Status.Size = gib, gib
	v.Spec.NumberOfReplicas, v.Spec.DataLocality = 2, longhorn.DataLocalityDisabled
	v.Spec.NodeID = w.want
	if w.deleted {
		v.DeletionTimestamp = &metav1.Time{Time: now}
	}
	e := children.NewEngine(v)
	e.Spec.NodeID, e.Spec.DesireState, e.Status.CurrentState = w.engineNode, w.engineDesire, w.engineState
	e.Status.Generation = 1
	e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"vol-r-1", "vol-r-2"}}
	if w.engineState == longhorn.InstanceStateRunning {
		e.Status.CurrentSize = gib
		e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"vol-r-1": longhorn.ReplicaModeRW, "vol-r-2": longhorn.ReplicaModeRW}
	}
	if w.failedAgo > 0 {
		e.Status.Conditions = []longhorn.Condition{{
			Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: "MemberMissing", Message: "m",
			LastTransitionTime: types.Timestamp(now.Add(-w.failedAgo)),
		}}
	}
	in := Input{
		Facts: copies.Facts{Volume: v, Engine: e, RebuildLimit: 5, Now: now}, Attachment: children.NewAttachment(v), Owner: "leader", DefaultReplicaCount: 3,
	}
	for i, name := range []string{"vol-r-1", "vol-r-2"} {
		r := children.NewReplica(v, children.ReplicaNames{Replica: name, Directory: name + "-dir"}, scheduler.Placement{Node: []string{"a", "b"}[i], DiskUUID: name, DiskPath: "/d"})
		r.Spec.DesireState, r.Status.CurrentState = w.replicaDesire, w.replicaState
		r.Status.IP, r.Status.Port = "10.0.0.1", 8500+i
		if w.engineState == longhorn.InstanceStateRunning {
			r.Spec.HealthyAt, r.Spec.LastHealthyAt = types.Timestamp(now), types.Timestamp(now)
			e.Spec.ReplicaAddressMap = put(e.Spec.ReplicaAddressMap, name, types.ReplicaAddress(r))
			e.Status.CurrentReplicaAddressMap = put(e.Status.CurrentReplicaAddressMap, name, types.ReplicaAddress(r))
		}
		in.Replicas = append(in.Replicas, r)
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

func TestDrive(t *testing.T) {
	const (
		run, stop         = longhorn.DesireStateRunning, longhorn.DesireStateStopped
		running, stopped  = longhorn.InstanceStateRunning, longhorn.InstanceStateStopped
		starting, failing = longhorn.InstanceStateStarting, longhorn.InstanceStateError
		unknown           = longhorn.InstanceStateUnknown
	)
	for _, tc := range []struct {
		name          string
		world         world
		wantState     longhorn.VolumeState
		wantReplicas  longhorn.DesireState // of the updated replicas; "": no replica is updated
		wantEngine    longhorn.DesireState // of the updated engine; "": it is not updated
		wantEngineOn  string
		wantAfter     time.Duration
		wantRobust    longhorn.VolumeRobustness
		wantAddresses int
	}{
		{name: "at rest, nobody wants it → detached", world: world{"", "", stop, stopped, stop, stopped, 0, false}, wantState: longhorn.VolumeStateDetached, wantRobust: longhorn.VolumeRobustnessUnknown},
		{name: "wanted, all stopped → replicas first", world: world{"a", "", stop, stopped, stop, stopped, 0, false}, wantState: longhorn.VolumeStateAttaching, wantReplicas: run, wantAfter: 30 * time.Second, wantRobust: longhorn.VolumeRobustnessUnknown},
		{name: "wanted, replicas starting → the engine waits", world: world{"a", "", stop, stopped, run, starting, 0, false}, wantState: longhorn.VolumeStateAttaching, wantAfter: 30 * time.Second, wantRobust: longhorn.VolumeRobustnessUnknown},
		{
			name: "wanted, replicas running → the engine starts with all of them", world: world{"a", "", stop, stopped, run, running, 0, false},
			wantState: longhorn.VolumeStateAttaching, wantEngine: run, wantEngineOn: "a", wantAddresses: 2, wantRobust: longhorn.VolumeRobustnessUnknown,
		},
		{name: "engine starting → attaching", world: world{"a", "a", run, starting, run, running, 0, false}, wantState: longhorn.VolumeStateAttaching, wantRobust: longhorn.VolumeRobustnessUnknown},
		{name: "engine running → attached and healthy", world: world{"a", "a", run, running, run, running, 0, false}, wantState: longhorn.VolumeStateAttached, wantRobust: longhorn.VolumeRobustnessHealthy},
		{name: "engine unknown → nothing is stopped", world: world{"a", "a", run, unknown, run, running, 0, false}, wantState: longhorn.VolumeStateAttaching, wantRobust: longhorn.VolumeRobustnessUnknown},
		{name: "not wanted any more → the engine stops first, replicas stay", world: world{"", "a", run, running, run, running, 0, false}, wantState: longhorn.VolumeStateDetaching, wantEngine: stop, wantEngineOn: "a", wantAddresses: 2, wantRobust: longhorn.VolumeRobustnessUnknown},
		{name: "engine still stopping → replicas stay", world: world{"", "a", stop, longhorn.InstanceStateStopping, run, running, 0, false}, wantState: longhorn.VolumeStateDetaching, wantRobust: longhorn.VolumeRobustnessUnknown},
		{name: "engine unknown and not wanted → replicas stay", world: world{"", "a", stop, unknown, run, running, 0, false}, wantState: longhorn.VolumeStateDetaching, wantRobust: longhorn.VolumeRobustnessUnknown},
		{name: "engine stopped → replicas stop, the engine leaves its node", world: world{"", "a", stop, stopped, run, running, 0, false}, wantState: longhorn.VolumeStateDetaching, wantReplicas: stop, wantEngine: stop, wantRobust: longhorn.VolumeRobustnessUnknown},
		{name: "wanted on another node → stopped here first", world: world{"b", "a", run, running, run, running, 0, false}, wantState: longhorn.VolumeStateDetaching, wantEngine: stop, wantEngineOn: "a", wantAddresses: 2, wantRobust: longhorn.VolumeRobustnessUnknown},
		{
			name: "wanted on another node, stopped here → started there", world: world{"b", "a", stop, stopped, run, running, 0, false},
			wantState: longhorn.VolumeStateAttaching, wantEngine: run, wantEngineOn: "b", wantAddresses: 2, wantRobust: longhorn.VolumeRobustnessUnknown,
		},
		{name: "engine failed → stopped, and faulted is said", world: world{"a", "a", run, failing, run, running, time.Second, false}, wantState: longhorn.VolumeStateDetaching, wantEngine: stop, wantEngineOn: "a", wantRobust: longhorn.VolumeRobustnessFaulted},
		{name: "engine failed a moment ago → not started yet", world: world{"a", "a", stop, stopped, run, running, 3 * time.Second, false}, wantState: longhorn.VolumeStateAttaching, wantAfter: 7 * time.Second, wantRobust: longhorn.VolumeRobustnessUnknown},
		{
			name: "engine failed long ago → started again", world: world{"a", "a", stop, stopped, run, running, time.Minute, false},
			wantState: longhorn.VolumeStateAttaching, wantEngine: run, wantEngineOn: "a", wantAddresses: 2, wantRobust: longhorn.VolumeRobustnessUnknown,
		},
		{name: "a replica cannot be opened → faulted, the engine waits", world: world{"a", "", stop, stopped, run, failing, 0, false}, wantState: longhorn.VolumeStateAttaching, wantRobust: longhorn.VolumeRobustnessFaulted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.world.input())
			assert.Equal(t, tc.wantState, p.Status.State)
			assert.Equal(t, tc.wantAfter, p.After)
			assert.Equal(t, tc.wantRobust, p.Status.Robustness)
			assert.Equal(t, tc.wantReplicas == "", len(p.UpdateReplicas) == 0, "%d replicas updated, want desire %q", len(p.UpdateReplicas), tc.wantReplicas)
			for _, r := range p.UpdateReplicas {
				assert.Equal(t, tc.wantReplicas, r.Spec.DesireState, "replica %s", r.Name)
			}
			require.Equal(t, tc.wantEngine == "", p.UpdateEngine == nil, "engine updated: %v, want desire %q", p.UpdateEngine != nil, tc.wantEngine)
			if e := p.UpdateEngine; e != nil {
				assert.Equal(t, tc.wantEngine, e.Spec.DesireState)
				assert.Equal(t, tc.wantEngineOn, e.Spec.NodeID)
				assert.Len(t, e.Spec.ReplicaAddressMap, tc.wantAddresses)
			}
		})
	}
}

func TestNewVolume(t *testing.T) {
	cluster := scheduler.Snapshot{Settings: scheduler.Settings{OverProvisioningPercent: 100, ZoneSoftAntiAffinity: true, DiskSoftAntiAffinity: true, AllowEmptyNodeSelector: true, AllowEmptyDiskSelector: true}}
	for _, name := range []string{"a", "b"} {
		cluster.Nodes = append(cluster.Nodes, scheduler.Node{
			Name: name, Ready: true, Schedulable: true, AllowScheduling: true, InstanceManagerRunning: true,
			Disks: []scheduler.Disk{{Name: "d", UUID: "uuid-" + name, Path: "/d", AllowScheduling: true, Ready: true, Schedulable: true, StorageMaximum: 10 * gib, StorageAvailable: 10 * gib}},
		})
	}
	names := []children.ReplicaNames{{Replica: "vol-r-1", Directory: "vol-1"}, {Replica: "vol-r-2", Directory: "vol-2"}, {Replica: "vol-r-3", Directory: "vol-3"}}
	bare := func() Input {
		in := world{}.input()
		in.Engine.Status.Epoch = nil
		in.Replicas, in.Cluster, in.Names = nil, cluster, names
		return in
	}

	t.Run("left out by the user → filled in before anything else", func(t *testing.T) {
		in := bare()
		in.Volume.Finalizers, in.Volume.Labels = nil, nil
		in.Volume.Spec.Size, in.Volume.Spec.NumberOfReplicas = gib+1, 0
		in.Volume.Spec.DataLocality, in.DefaultLocality, in.Volume.Status.State = "", longhorn.DataLocalityBestEffort, ""
		p := plan(in)
		require.NotNil(t, p.Volume)
		require.Nil(t, p.CreateEngine)
		require.Nil(t, p.CreateReplicas)
		v := p.Volume
		assert.Equal(t, longhorn.Bytes(gib+2<<20), v.Spec.Size)
		assert.Equal(t, 3, v.Spec.NumberOfReplicas)
		assert.Equal(t, longhorn.DataLocalityBestEffort, v.Spec.DataLocality)
		assert.True(t, types.HasFinalizer(v))
		assert.Equal(t, "vol", v.Labels[types.LabelVolume])
	})
	t.Run("only the locality left out → filled in", func(t *testing.T) {
		in := bare()
		in.Volume.Spec.DataLocality, in.DefaultLocality, in.Volume.Status.State = "", longhorn.DataLocalityBestEffort, ""
		p := plan(in)
		require.NotNil(t, p.Volume)
		assert.Equal(t, longhorn.DataLocalityBestEffort, p.Volume.Spec.DataLocality)
	})
	t.Run("an older volume without a locality → it keeps none, which means disabled", func(t *testing.T) {
		in := bare()
		in.Volume.Spec.DataLocality, in.DefaultLocality, in.Volume.Status.State = "", longhorn.DataLocalityBestEffort, longhorn.VolumeStateDetached
		assert.Nil(t, plan(in).Volume)
	})
	t.Run("nearly the largest size that its definition takes → rounded up to that, and left so", func(t *testing.T) {
		const largest = 9223372036852678656 // in VolumeSpec's rule for size
		in := bare()
		in.Volume.Spec.Size = largest - 1
		p := plan(in)
		require.NotNil(t, p.Volume)
		require.Equal(t, longhorn.Bytes(largest), p.Volume.Spec.Size)
		in.Volume.Spec.Size = largest
		p = plan(in)
		assert.Nil(t, p.Volume, "filled in again")
	})
	t.Run("no engine yet → the engine and its key first", func(t *testing.T) {
		in := bare()
		in.Engine = nil
		p := plan(in)
		assert.NotNil(t, p.CreateEngine)
		assert.True(t, p.EnsureSecret)
		assert.Empty(t, p.CreateReplicas)
		assert.Equal(t, longhorn.VolumeStateCreating, p.Status.State)
	})
	t.Run("room on two nodes → two replicas on both", func(t *testing.T) {
		p := plan(bare())
		require.Len(t, p.CreateReplicas, 2)
		first, second := p.CreateReplicas[0], p.CreateReplicas[1]
		assert.NotEqual(t, second.Spec.NodeID, first.Spec.NodeID)
		assert.Equal(t, "/d", first.Spec.DiskPath)
		assert.Equal(t, "vol-1", first.Spec.DataDirectoryName)
		assert.EqualValues(t, "u", first.OwnerReferences[0].UID)
		assert.True(t, types.HasFinalizer(first))
		assert.True(t, types.IsConditionTrue(p.Status.Conditions, types.ConditionScheduled), "not said to be scheduled")
	})
	t.Run("room for two of three → none is made, the reason is said", func(t *testing.T) {
		in := bare()
		in.Volume.Spec.NumberOfReplicas = 3
		p := plan(in)
		c := types.FindCondition(p.Status.Conditions, types.ConditionScheduled)
		assert.Empty(t, p.CreateReplicas)
		assert.Equal(t, longhorn.ConditionFalse, c.Status)
		assert.Equal(t, types.ReasonReplicaSchedulingFailure, c.Reason)
		assert.NotEmpty(t, c.Message)
		assert.Equal(t, longhorn.VolumeStateDetached, p.Status.State)
		require.Len(t, p.Events, 1)
		assert.Equal(t, types.ReasonReplicaSchedulingFailure, p.Events[0].Reason)
	})
	t.Run("detached is said together with the condition Scheduled, never before", func(t *testing.T) {
		for name, change := range map[string]func(*Input){
			"room for all":   func(*Input) {},
			"room for two":   func(in *Input) { in.Volume.Spec.NumberOfReplicas = 3 },
			"no node at all": func(in *Input) { in.Cluster.Nodes = nil },
			"strict-local": func(in *Input) {
				in.Volume.Spec.DataLocality, in.Volume.Spec.NumberOfReplicas = longhorn.DataLocalityStrictLocal, 1
			},
			"wanted at once":  func(in *Input) { in.Volume.Spec.NodeID = "a" },
			"no room, wanted": func(in *Input) { in.Volume.Spec.NodeID, in.Cluster.Nodes = "a", nil },
		} {
			in := bare()
			in.Volume.Status = longhorn.VolumeStatus{}
			change(&in)
			engine := in.Engine
			in.Engine = nil
			for step := range 4 {
				p := plan(in)
				said := types.FindCondition(p.Status.Conditions, types.ConditionScheduled).Status
				if p.Volume == nil && p.Status.State == longhorn.VolumeStateDetached {
					assert.NotEqual(t, longhorn.ConditionUnknown, said, "%s: step %d is detached without a verdict", name, step)
				}
				if step == 0 && p.Volume == nil {
					assert.Equal(t, longhorn.VolumeStateCreating, p.Status.State, name)
				}
				if p.Volume != nil {
					in.Volume.Spec, in.Volume.Labels, in.Volume.Finalizers = p.Volume.Spec, p.Volume.Labels, p.Volume.Finalizers
				}
				in.Volume.Status = p.Status
				in.Replicas = append(in.Replicas, p.CreateReplicas...)
				in.Engine = engine
			}
		}
	})
	t.Run("a replica of a volume that was in use is gone → none is made in its place", func(t *testing.T) {
		in := world{}.input()
		in.Cluster, in.Names, in.Replicas = cluster, names, in.Replicas[:1]
		p := plan(in)
		assert.Empty(t, p.CreateReplicas)
	})
}

func TestDeletion(t *testing.T) {
	run, stop := longhorn.DesireStateRunning, longhorn.DesireStateStopped
	t.Run("engine running → stopped; replicas and finalizer stay", func(t *testing.T) {
		d := planDeletion(world{"", "a", run, longhorn.InstanceStateRunning, run, longhorn.InstanceStateRunning, 0, true}.input())
		require.NotNil(t, d.UpdateEngine)
		assert.Equal(t, stop, d.UpdateEngine.Spec.DesireState)
		assert.Nil(t, d.DeleteEngine)
		assert.Nil(t, d.DeleteReplicas)
		assert.False(t, d.DropFinalizer)
	})
	t.Run("engine stopping or unknown → waits", func(t *testing.T) {
		for _, state := range []longhorn.InstanceState{longhorn.InstanceStateStopping, longhorn.InstanceStateUnknown, longhorn.InstanceStateError} {
			d := planDeletion(world{"", "a", stop, state, run, longhorn.InstanceStateRunning, 0, true}.input())
			assert.Nil(t, d.UpdateEngine, state)
			assert.Nil(t, d.DeleteEngine, state)
			assert.Nil(t, d.DeleteReplicas, state)
			assert.False(t, d.DropFinalizer, state)
		}
	})
	t.Run("engine stopped → taken off its node, then deleted", func(t *testing.T) {
		in := world{"", "a", stop, longhorn.InstanceStateStopped, run, longhorn.InstanceStateRunning, 0, true}.input()
		d := planDeletion(in)
		require.NotNil(t, d.UpdateEngine)
		assert.Empty(t, d.UpdateEngine.Spec.NodeID)
		assert.Nil(t, d.DeleteEngine)
		in.Engine.Spec.NodeID = ""
		d = planDeletion(in)
		assert.NotNil(t, d.DeleteEngine)
		assert.Nil(t, d.DeleteReplicas)
		assert.False(t, d.DropFinalizer)
	})
	t.Run("engine gone → replicas deleted, the finalizer waits for that", func(t *testing.T) {
		in := world{deleted: true}.input()
		in.Engine = nil
		in.Replicas[0].DeletionTimestamp = &metav1.Time{Time: now}
		d := planDeletion(in)
		require.Len(t, d.DeleteReplicas, 1)
		assert.Equal(t, "vol-r-2", d.DeleteReplicas[0].Name)
		assert.False(t, d.DropFinalizer)
	})
	t.Run("every replica deleted, one node away → the volume does not wait for it", func(t *testing.T) {
		in := world{deleted: true}.input()
		in.Engine = nil
		for _, r := range in.Replicas {
			r.DeletionTimestamp = &metav1.Time{Time: now}
		}
		d := planDeletion(in)
		assert.True(t, d.DropFinalizer, "got %+v", d)
	})
}
