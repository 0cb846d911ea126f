package volume

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const gib = 1 << 30

// world is a volume with its children in one state; the fields are what the cases vary.
type world struct {
	want          string // Volume.spec.nodeID
	engineNode    string
	engineDesire  longhorn.DesireState
	engineState   longhorn.InstanceState
	replicaDesire longhorn.DesireState
	replicaState  longhorn.InstanceState
	failedAgo     time.Duration // the engine failed that long ago; 0: it did not
	deleted       bool
}

func (w world) input() Input {
	v := &longhorn.Volume{ObjectMeta: metav1.ObjectMeta{Name: "vol", UID: "u", Labels: map[string]string{types.LabelVolume: "vol"}, Finalizers: []string{types.Finalizer}}}
	v.Spec.Size = gib
	v.Spec.NumberOfReplicas = 2
	v.Spec.NodeID = w.want
	if w.deleted {
		v.DeletionTimestamp = &metav1.Time{Time: now}
	}
	e := newEngine(v)
	e.Spec.NodeID, e.Spec.DesireState, e.Status.CurrentState = w.engineNode, w.engineDesire, w.engineState
	e.Status.Generation = 1
	e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"vol-r-1", "vol-r-2"}}
	if w.engineState == longhorn.InstanceStateRunning {
		e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"vol-r-1": longhorn.ReplicaModeRW, "vol-r-2": longhorn.ReplicaModeRW}
	}
	if w.failedAgo > 0 {
		e.Status.Conditions = []longhorn.Condition{{
			Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: "MemberMissing", Message: "m",
			LastTransitionTime: types.Timestamp(now.Add(-w.failedAgo)),
		}}
	}
	in := Input{Volume: v, Engine: e, Attachment: newAttachment(v), Owner: "leader", DefaultReplicaCount: 3, Now: now}
	for i, name := range []string{"vol-r-1", "vol-r-2"} {
		r := newReplica(v, ReplicaNames{name, name + "-dir"}, scheduler.Placement{Node: []string{"a", "b"}[i], DiskUUID: name, DiskPath: "/d"})
		r.Spec.DesireState, r.Status.CurrentState = w.replicaDesire, w.replicaState
		r.Status.IP, r.Status.Port = "10.0.0.1", 8500+i
		if w.engineState == longhorn.InstanceStateRunning {
			r.Spec.HealthyAt, r.Spec.LastHealthyAt = types.Timestamp(now), types.Timestamp(now)
			e.Spec.ReplicaAddressMap = put(e.Spec.ReplicaAddressMap, name, address(r))
			e.Status.CurrentReplicaAddressMap = put(e.Status.CurrentReplicaAddressMap, name, address(r))
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
		wantReplicas  longhorn.DesireState // of the updated replicas; "": none is updated
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
			if p.Status.State != tc.wantState || p.After != tc.wantAfter || p.Status.Robustness != tc.wantRobust {
				t.Errorf("state %q after %s robustness %q", p.Status.State, p.After, p.Status.Robustness)
			}
			if (tc.wantReplicas == "") != (len(p.UpdateReplicas) == 0) {
				t.Errorf("%d replicas updated, want desire %q", len(p.UpdateReplicas), tc.wantReplicas)
			}
			for _, r := range p.UpdateReplicas {
				if r.Spec.DesireState != tc.wantReplicas {
					t.Errorf("replica %s wanted %q", r.Name, r.Spec.DesireState)
				}
			}
			if (tc.wantEngine == "") != (p.UpdateEngine == nil) {
				t.Fatalf("engine updated: %v, want desire %q", p.UpdateEngine != nil, tc.wantEngine)
			}
			if e := p.UpdateEngine; e != nil && (e.Spec.DesireState != tc.wantEngine || e.Spec.NodeID != tc.wantEngineOn || len(e.Spec.ReplicaAddressMap) != tc.wantAddresses) {
				t.Errorf("engine wanted %q on %q with %v", e.Spec.DesireState, e.Spec.NodeID, e.Spec.ReplicaAddressMap)
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
	names := []ReplicaNames{{"vol-r-1", "vol-1"}, {"vol-r-2", "vol-2"}, {"vol-r-3", "vol-3"}}
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
		p := plan(in)
		if p.Volume == nil || p.CreateEngine != nil || p.CreateReplicas != nil {
			t.Fatalf("got %+v", p)
		}
		if v := p.Volume; v.Spec.Size != gib+2<<20 || v.Spec.NumberOfReplicas != 3 || !types.HasFinalizer(v) || v.Labels[types.LabelVolume] != "vol" {
			t.Errorf("filled in: %+v", v)
		}
	})
	t.Run("nearly the largest size that its definition takes → rounded up to that, and left so", func(t *testing.T) {
		const largest = 9223372036852678656 // in VolumeSpec's rule for size
		in := bare()
		in.Volume.Spec.Size = largest - 1
		if p := plan(in); p.Volume == nil || p.Volume.Spec.Size != largest {
			t.Fatalf("got %+v", p.Volume)
		}
		in.Volume.Spec.Size = largest
		if p := plan(in); p.Volume != nil {
			t.Errorf("filled in again: %+v", p.Volume.Spec)
		}
	})
	t.Run("no engine yet → the engine and its key first", func(t *testing.T) {
		in := bare()
		in.Engine = nil
		p := plan(in)
		if p.CreateEngine == nil || !p.EnsureSecret || len(p.CreateReplicas) != 0 || p.Status.State != longhorn.VolumeStateCreating {
			t.Errorf("got %+v", p)
		}
	})
	t.Run("room on two nodes → two replicas on both", func(t *testing.T) {
		p := plan(bare())
		if len(p.CreateReplicas) != 2 {
			t.Fatalf("%d replicas", len(p.CreateReplicas))
		}
		first, second := p.CreateReplicas[0], p.CreateReplicas[1]
		if first.Spec.NodeID == second.Spec.NodeID || first.Spec.DiskPath != "/d" || first.Spec.DataDirectoryName != "vol-1" || first.OwnerReferences[0].UID != "u" || !types.HasFinalizer(first) {
			t.Errorf("replicas %+v and %+v", first.Spec, second.Spec)
		}
		if !types.IsConditionTrue(p.Status.Conditions, types.ConditionScheduled) {
			t.Error("not said to be scheduled")
		}
	})
	t.Run("room for two of three → none is made, the reason is said", func(t *testing.T) {
		in := bare()
		in.Volume.Spec.NumberOfReplicas = 3
		p := plan(in)
		c := types.FindCondition(p.Status.Conditions, types.ConditionScheduled)
		if len(p.CreateReplicas) != 0 || c.Status != longhorn.ConditionFalse || c.Reason != types.ReasonReplicaSchedulingFailure || c.Message == "" || p.Status.State != longhorn.VolumeStateDetached {
			t.Errorf("got %+v", p.Status)
		}
		if len(p.Events) != 1 || p.Events[0].Reason != types.ReasonReplicaSchedulingFailure {
			t.Errorf("events %+v", p.Events)
		}
	})
	t.Run("a replica of a volume that was in use is gone → none is made in its place", func(t *testing.T) {
		in := world{}.input()
		in.Cluster, in.Names, in.Replicas = cluster, names, in.Replicas[:1]
		if p := plan(in); len(p.CreateReplicas) != 0 {
			t.Errorf("made %d", len(p.CreateReplicas))
		}
	})
}

func TestDeletion(t *testing.T) {
	run, stop := longhorn.DesireStateRunning, longhorn.DesireStateStopped
	t.Run("engine running → stopped; replicas and finalizer stay", func(t *testing.T) {
		d := planDeletion(world{"", "a", run, longhorn.InstanceStateRunning, run, longhorn.InstanceStateRunning, 0, true}.input())
		if d.UpdateEngine == nil || d.UpdateEngine.Spec.DesireState != stop || d.DeleteEngine != nil || d.DeleteReplicas != nil || d.DropFinalizer {
			t.Errorf("got %+v", d)
		}
	})
	t.Run("engine stopping or unknown → waits", func(t *testing.T) {
		for _, state := range []longhorn.InstanceState{longhorn.InstanceStateStopping, longhorn.InstanceStateUnknown, longhorn.InstanceStateError} {
			d := planDeletion(world{"", "a", stop, state, run, longhorn.InstanceStateRunning, 0, true}.input())
			if d.UpdateEngine != nil || d.DeleteEngine != nil || d.DeleteReplicas != nil || d.DropFinalizer {
				t.Errorf("%s: got %+v", state, d)
			}
		}
	})
	t.Run("engine stopped → taken off its node, then deleted", func(t *testing.T) {
		in := world{"", "a", stop, longhorn.InstanceStateStopped, run, longhorn.InstanceStateRunning, 0, true}.input()
		if d := planDeletion(in); d.UpdateEngine == nil || d.UpdateEngine.Spec.NodeID != "" || d.DeleteEngine != nil {
			t.Errorf("got %+v", d)
		}
		in.Engine.Spec.NodeID = ""
		if d := planDeletion(in); d.DeleteEngine == nil || d.DeleteReplicas != nil || d.DropFinalizer {
			t.Errorf("got %+v", d)
		}
	})
	t.Run("engine gone → replicas deleted, the finalizer waits for that", func(t *testing.T) {
		in := world{deleted: true}.input()
		in.Engine = nil
		in.Replicas[0].DeletionTimestamp = &metav1.Time{Time: now}
		if d := planDeletion(in); len(d.DeleteReplicas) != 1 || d.DeleteReplicas[0].Name != "vol-r-2" || d.DropFinalizer {
			t.Errorf("got %+v", d)
		}
	})
	t.Run("every replica deleted, one node away → the volume does not wait for it", func(t *testing.T) {
		in := world{deleted: true}.input()
		in.Engine = nil
		for _, r := range in.Replicas {
			r.DeletionTimestamp = &metav1.Time{Time: now}
		}
		if d := planDeletion(in); !d.DropFinalizer {
			t.Errorf("got %+v", d)
		}
	})
}
