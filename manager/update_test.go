package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func ptr[T any](v T) *T { return &v }

func TestUpdateVolume(t *testing.T) {
	cases := map[string]struct {
		update VolumeUpdate
		want   func(*longhorn.VolumeSpec) // nil: nothing is written
		field  string                     // in the refusal
		text   string
	}{
		"more replicas → recorded": {update: VolumeUpdate{NumberOfReplicas: ptr(20)}, want: func(s *longhorn.VolumeSpec) { s.NumberOfReplicas = 20 }},
		"no replicas → refused":    {update: VolumeUpdate{NumberOfReplicas: ptr(0)}, field: "replicaCount", text: `replicaCount: "0" must be 1 to 20`},
		"too many → refused":       {update: VolumeUpdate{NumberOfReplicas: ptr(21)}, field: "replicaCount", text: `replicaCount: "21" must be 1 to 20`},
		"another locality → recorded": {
			update: VolumeUpdate{DataLocality: ptr("best-effort")}, want: func(s *longhorn.VolumeSpec) { s.DataLocality = longhorn.DataLocalityBestEffort },
		},
		"the locality that it has → nothing is written": {update: VolumeUpdate{DataLocality: ptr("disabled")}},
		"no locality → refused":                         {update: VolumeUpdate{DataLocality: ptr("")}, field: "dataLocality", text: "dataLocality: is required"},
		"a locality that is none → refused": {
			update: VolumeUpdate{DataLocality: ptr("near")}, field: "dataLocality",
			text: `dataLocality: "near" must be disabled or best-effort or strict-local`,
		},
		"strict-local, with three replicas → refused": {
			update: VolumeUpdate{DataLocality: ptr("strict-local")}, field: "numberOfReplicas",
			text: `numberOfReplicas: "3" must be 1 with dataLocality strict-local: the one replica is on the node where the volume is attached`,
		},
		"strict-local and two replicas → refused": {
			update: VolumeUpdate{DataLocality: ptr("strict-local"), NumberOfReplicas: ptr(2)}, field: "replicaCount",
			text: `replicaCount: "2" must be 1 with dataLocality strict-local: the one replica is on the node where the volume is attached`,
		},
		"strict-local and one replica → recorded": {
			update: VolumeUpdate{DataLocality: ptr("strict-local"), NumberOfReplicas: ptr(1)},
			want:   func(s *longhorn.VolumeSpec) { s.DataLocality, s.NumberOfReplicas = longhorn.DataLocalityStrictLocal, 1 },
		},
		"anti-affinity → recorded": {
			update: VolumeUpdate{Options: map[string]string{"replicaSoftAntiAffinity": "enabled"}}, want: func(s *longhorn.VolumeSpec) { s.ReplicaSoftAntiAffinity = longhorn.AntiAffinityEnabled },
		},
		"a word that is none → refused": {
			update: VolumeUpdate{Options: map[string]string{"replicaSoftAntiAffinity": "perhaps"}}, field: "replicaSoftAntiAffinity",
			text: `replicaSoftAntiAffinity: "perhaps" must be ignored or enabled or disabled`,
		},
		"anti-affinity of zones and disks → recorded": {
			update: VolumeUpdate{Options: map[string]string{"replicaZoneSoftAntiAffinity": "disabled", "replicaDiskSoftAntiAffinity": "enabled"}},
			want: func(s *longhorn.VolumeSpec) {
				s.ReplicaZoneSoftAntiAffinity, s.ReplicaDiskSoftAntiAffinity = longhorn.AntiAffinityDisabled, longhorn.AntiAffinityEnabled
			},
		},
		"zones, by a word that is none → refused": {
			update: VolumeUpdate{Options: map[string]string{"replicaZoneSoftAntiAffinity": "perhaps"}}, field: "replicaZoneSoftAntiAffinity",
			text: `replicaZoneSoftAntiAffinity: "perhaps" must be ignored or enabled or disabled`,
		},
		"disks, by no word → refused": {
			update: VolumeUpdate{Options: map[string]string{"replicaDiskSoftAntiAffinity": ""}}, field: "replicaDiskSoftAntiAffinity", text: "replicaDiskSoftAntiAffinity: is required",
		},
		"balance → recorded": {
			update: VolumeUpdate{Options: map[string]string{"replicaAutoBalance": "least-effort"}}, want: func(s *longhorn.VolumeSpec) { s.ReplicaAutoBalance = longhorn.AutoBalanceLeastEffort },
		},
		"balance, by a word that is none → refused": {
			update: VolumeUpdate{Options: map[string]string{"replicaAutoBalance": "most-effort"}}, field: "replicaAutoBalance",
			text: `replicaAutoBalance: "most-effort" must be ignored or disabled or least-effort or best-effort`,
		},
		"an option that does not exist → refused": {
			update: VolumeUpdate{Options: map[string]string{"replicaSoftAffinity": "enabled"}}, field: "replicaSoftAffinity",
			text: "replicaSoftAffinity: is not an option of a volume",
		},
		"tags of nodes and disks → recorded in their order": {
			update: VolumeUpdate{NodeSelector: &[]string{"storage", " fast", "storage"}, DiskSelector: &[]string{"ssd"}},
			want: func(s *longhorn.VolumeSpec) {
				s.NodeSelector, s.DiskSelector = []string{"storage", "fast"}, []string{"ssd"}
			},
		},
		"an empty selector → it asks for no tag":        {update: VolumeUpdate{NodeSelector: &[]string{}}, want: func(s *longhorn.VolumeSpec) { s.NodeSelector = []string{} }},
		"the selector that it has → nothing is written": {update: VolumeUpdate{DiskSelector: &[]string{}}},
		"no selector → refused": {
			update: VolumeUpdate{NodeSelector: ptr[[]string](nil)}, field: "nodeSelector", text: "nodeSelector: is required; an empty list requests no tag",
		},
		"a tag that no disk has → refused": {
			update: VolumeUpdate{DiskSelector: &[]string{"ssd", "fast"}}, field: "diskSelector", text: `diskSelector: "fast" does not exist: no disk has this tag`,
		},
		"an empty tag → refused": {
			update: VolumeUpdate{NodeSelector: &[]string{" "}}, field: "nodeSelector[0]", text: `nodeSelector[0]: at least one error encountered while validating tags: " " is not a valid tag: a tag must not be empty`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := detachedVolume("vol", func(v *longhorn.Volume) {
				v.Spec.NodeSelector, v.Spec.DiskSelector = []string{"old"}, []string{}
				v.Spec.NumberOfReplicas, v.Spec.DataLocality, v.Spec.ReplicaSoftAntiAffinity = 3, longhorn.DataLocalityDisabled, longhorn.AntiAffinityIgnored
			})
			b := newBench(t, v, build.ReadyNode("node-1", "uuid-1", func(n *longhorn.Node) {
				n.Spec.Tags = []string{"fast", "storage"}
				for name, d := range n.Spec.Disks {
					d.Tags = []string{"ssd"}
					n.Spec.Disks[name] = d
				}
			}))
			view, err := b.UpdateVolume(t.Context(), "vol", c.update)
			if c.field != "" {
				wantInvalid(t, err, c.field, c.text)
				b.ExpectWrites()
				return
			}
			require.NoError(t, err)
			want := v.Spec.DeepCopy()
			if c.want == nil {
				b.ExpectWrites()
				assert.Empty(t, b.hasty.delays, "it waits for nothing")
			} else {
				b.ExpectWrites("update volumes/vol")
				c.want(want)
			}
			assert.Equal(t, *want, view.Volume.Spec)
		})
	}
	t.Run("a volume that is being deleted → refused", func(t *testing.T) {
		b := newBench(t, detachedVolume("vol", func(v *longhorn.Volume) { v.DeletionTimestamp, v.Finalizers = &metav1.Time{}, []string{"longhorn.io"} }))
		_, err := b.UpdateVolume(t.Context(), "vol", VolumeUpdate{NumberOfReplicas: ptr(2)})
		wantProblem(t, err, ErrConflict, `volume "vol" is being deleted`)
	})
	t.Run("no such volume → not found", func(t *testing.T) {
		_, err := newBench(t).UpdateVolume(t.Context(), "vol", VolumeUpdate{NumberOfReplicas: ptr(2)})
		wantProblem(t, err, ErrNotFound, `volume "vol" does not exist`)
	})
}

// A volume becomes strict-local, or stops being strict-local, only while nothing uses it.
func TestStrictLocalChangesWhileDetached(t *testing.T) {
	cases := map[string]struct {
		from, to longhorn.DataLocality
		state    longhorn.VolumeState
		node     string
		refused  bool
	}{
		"attached, to strict-local → refused":                     {from: "disabled", to: "strict-local", state: "attached", node: "node-1", refused: true},
		"attached, from strict-local → refused":                   {from: "strict-local", to: "best-effort", state: "attached", node: "node-1", refused: true},
		"about to be attached → refused":                          {from: "disabled", to: "strict-local", state: "detached", node: "node-1", refused: true},
		"detaching → refused":                                     {from: "strict-local", to: "disabled", state: "detaching", refused: true},
		"detached, from strict-local → recorded":                  {from: "strict-local", to: "disabled", state: "detached"},
		"just made → recorded":                                    {from: "strict-local", to: "disabled"},
		"attached, the locality that it has → nothing is written": {from: "strict-local", to: "strict-local", state: "attached", node: "node-1"},
		"attached, between the two others → recorded":             {from: "best-effort", to: "disabled", state: "attached", node: "node-1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, detachedVolume("vol", func(v *longhorn.Volume) {
				v.Spec.DataLocality, v.Spec.NumberOfReplicas, v.Spec.NodeID, v.Status.State = c.from, 1, c.node, c.state
			}))
			view, err := b.UpdateVolume(t.Context(), "vol", VolumeUpdate{DataLocality: ptr(string(c.to))})
			if c.refused {
				wantProblem(t, err, ErrConflict, fmt.Sprintf(`volume "vol" is %s: its dataLocality can change from %q to %q only while the volume is detached`, c.state, c.from, c.to))
				b.ExpectWrites()
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.to, view.Volume.Spec.DataLocality)
		})
	}
}

// served returns a healthy volume, attached to node-1, with replicas r-1 to r-n on nodes of the same numbers.
func served(n int, changes ...func(*longhorn.Engine, []*longhorn.Replica)) []runtime.Object {
	v := detachedVolume("vol", func(v *longhorn.Volume) {
		v.Spec.NumberOfReplicas, v.Spec.NodeID = n, "node-1"
		v.Status.State, v.Status.CurrentNodeID, v.Status.Robustness = longhorn.VolumeStateAttached, "node-1", longhorn.VolumeRobustnessHealthy
	})
	e := owned(build.Engine("vol"), "vol")
	e.Spec.NodeID = "node-1"
	e.Status.CurrentState, e.Status.Epoch = longhorn.InstanceStateRunning, &longhorn.Epoch{Generation: 1, Counter: 1}
	e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{}
	objs := []runtime.Object{v, e}
	var replicas []*longhorn.Replica
	for i := range n {
		number := string(rune('1' + i))
		r := owned(build.PlacedReplica("r-"+number, "vol", "node-"+number, "uuid-"+number, func(r *longhorn.Replica) { r.Finalizers = []string{"longhorn.io"} }), "vol")
		e.Status.Epoch.Members = append(e.Status.Epoch.Members, r.Name)
		e.Status.ReplicaModeMap[r.Name] = longhorn.ReplicaModeRW
		replicas, objs = append(replicas, r), append(objs, r, build.ReadyNode("node-"+number, "uuid-"+number))
	}
	for _, change := range changes {
		change(e, replicas)
	}
	return objs
}

// having changes the objects of one kind.
func having[T runtime.Object](objs []runtime.Object, change func(T)) []runtime.Object {
	for _, o := range objs {
		if o, ok := o.(T); ok {
			change(o)
		}
	}
	return objs
}

// node2 returns a function that changes node-2.
func node2(change func(*longhorn.Node)) func(*longhorn.Node) {
	return func(n *longhorn.Node) {
		if n.Name == "node-2" {
			change(n)
		}
	}
}

func TestRemoveReplica(t *testing.T) {
	const refused = `replica r-1 is the last healthy replica of volume vol (no other healthy replica available): it cannot be deleted; to delete the volume, run kubectl -n longhorn-system delete volumes.longhorn.io vol`
	stopped := func(e *longhorn.Engine, _ []*longhorn.Replica) {
		e.Status.CurrentState, e.Status.ReplicaModeMap = longhorn.InstanceStateStopped, nil
	}
	cases := map[string]struct {
		objs    []runtime.Object
		problem string // the reason of the refusal; empty: the replica is deleted
	}{
		"two good ones → removed":           {objs: served(2)},
		"two good ones, detached → removed": {objs: served(2, stopped)},
		"the only one → refused":            {objs: served(1), problem: refused},
		"the only one, detached → refused":  {objs: served(1, stopped), problem: refused},
		"the only one of a volume that was never attached → removed": {
			objs: served(1, stopped, func(e *longhorn.Engine, _ []*longhorn.Replica) { e.Spec.NodeID, e.Status.Epoch = "", nil }),
		},
		"the same, about to be attached → refused": {
			objs: served(1, stopped, func(e *longhorn.Engine, _ []*longhorn.Replica) { e.Status.Epoch = nil }), problem: refused,
		},
		"the same without its engine → refused": {
			objs: slices.DeleteFunc(served(1), func(o runtime.Object) bool { _, is := o.(*longhorn.Engine); return is }), problem: refused,
		},
		"the other one is not served → refused": {
			objs: served(2, func(e *longhorn.Engine, _ []*longhorn.Replica) {
				e.Status.ReplicaModeMap["r-2"] = longhorn.ReplicaModeERR
			}), problem: refused,
		},
		"the other one is being rebuilt → refused": {
			objs: served(2, func(e *longhorn.Engine, _ []*longhorn.Replica) { e.Status.Epoch.Members = []string{"r-1"} }), problem: refused,
		},
		"the other one failed, detached → refused": {
			objs: served(2, stopped, func(_ *longhorn.Engine, r []*longhorn.Replica) { r[1].Spec.FailedAt = "2030-01-01T00:00:00Z" }), problem: refused,
		},
		"the other one cannot be opened, which the engine has not noted → refused": {
			objs: served(2, stopped, func(_ *longhorn.Engine, r []*longhorn.Replica) {
				r[1].Status.CurrentState = longhorn.InstanceStateError
			}), problem: refused,
		},
		"the other one's node does not answer, which the leader has not noted on this one → refused": {
			objs: having(served(2, stopped), node2(func(n *longhorn.Node) {
				n.Status.Conditions = []longhorn.Condition{condition(types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady, "m")}
			})), problem: refused,
		},
		"the other one's disk is not ready → refused": {
			objs: having(served(2, stopped), node2(build.WithDiskStatus("disk-1", "uuid-2", func(d *longhorn.DiskStatus) { d.Conditions = nil }))), problem: refused,
		},
		"the other one's node is gone → refused": {
			objs: slices.DeleteFunc(served(2, stopped), func(o runtime.Object) bool { n, ok := o.(*longhorn.Node); return ok && n.Name == "node-2" }), problem: refused,
		},
		"there is no engine → refused": {
			objs: slices.DeleteFunc(served(2), func(o runtime.Object) bool { _, ok := o.(*longhorn.Engine); return ok }), problem: refused,
		},
		"nothing was ever written → refused": {
			objs: served(2, stopped, func(e *longhorn.Engine, _ []*longhorn.Replica) { e.Status.Epoch = nil }), problem: refused,
		},
		"the volume is being deleted → refused": {
			objs:    having(served(2), func(v *longhorn.Volume) { v.DeletionTimestamp, v.Finalizers = &metav1.Time{}, []string{"longhorn.io"} }),
			problem: `volume "vol" is being deleted`,
		},
		"the other one is of an earlier volume of the name → refused": {
			objs: served(2, func(_ *longhorn.Engine, r []*longhorn.Replica) { r[1].OwnerReferences[0].UID = "earlier" }), problem: refused,
		},
		"the other one is being deleted → refused": {
			objs: served(2, func(_ *longhorn.Engine, r []*longhorn.Replica) { r[1].DeletionTimestamp = &metav1.Time{} }), problem: refused,
		},
		"the leader found that no other can be reached → refused": {
			objs: served(2, func(_ *longhorn.Engine, r []*longhorn.Replica) {
				r[0].Annotations = map[string]string{types.AnnotationLastGoodCopy: ""}
			}), problem: refused,
		},
		"this one failed, another is good → removed": {
			objs: served(2, func(e *longhorn.Engine, r []*longhorn.Replica) { e.Status.Epoch.Members = []string{"r-2"} }),
		},
		"this one failed, so did the other → refused": {
			objs: served(2, func(e *longhorn.Engine, _ []*longhorn.Replica) { e.Status.ReplicaModeMap = nil }), problem: refused,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.objs...)
			_, err := b.RemoveReplica(t.Context(), "vol", "r-1")
			if c.problem != "" {
				wantProblem(t, err, ErrConflict, c.problem)
				b.ExpectWrites()
				return
			}
			require.NoError(t, err)
			b.ExpectWrites("delete replicas/r-1")
		})
	}
	t.Run("another volume's → refused by name", func(t *testing.T) {
		b := newBench(t, append(served(2), owned(build.PlacedReplica("other", "vol-2", "node-1", "uuid-1"), "vol-2"))...)
		for _, replica := range []string{"other", "none", "", "..", "a/b", "vol%2f", strings.Repeat("a", 1<<19)} {
			_, err := b.RemoveReplica(t.Context(), "vol", replica)
			var invalid *Invalid
			require.ErrorAs(t, err, &invalid, "%.10s", replica)
			assert.Equal(t, Invalid{Field: "name", Value: replica, Rule: `is not a replica of volume "vol"`}, *invalid)
		}
		b.ExpectWrites()
	})
	t.Run("asked for twice → deleted once", func(t *testing.T) {
		b := newBench(t, served(2)...)
		for range 2 {
			_, err := b.RemoveReplica(t.Context(), "vol", "r-1")
			require.NoError(t, err)
		}
		b.ExpectWrites("delete replicas/r-1")
	})
}

// during is a store that calls a function while an object is being deleted.
type during struct {
	ReplicaStore
	deletion func(datastore.Preconditions)
}

func (d during) Delete(ctx context.Context, name string, p datastore.Preconditions) error {
	d.deletion(p)
	return d.ReplicaStore.Delete(ctx, name, p)
}

// Each of two concurrent removals would consider the replica of the other removal good.
func TestRemovalsComeOneAfterTheOther(t *testing.T) {
	b := newBench(t, served(2)...)
	replicas := b.deps.Replicas
	b.deps.Replicas = during{replicas, func(datastore.Preconditions) {
		b.deps.Replicas = replicas
		noTime, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := b.RemoveReplica(noTime, "vol", "r-2")
		require.ErrorIs(t, err, context.Canceled, "it did not wait")
	}}
	_, err := b.RemoveReplica(t.Context(), "vol", "r-1")
	require.NoError(t, err)
	_, err = b.RemoveReplica(t.Context(), "vol", "r-2")
	wantProblem(t, err, ErrConflict, `replica r-2 is the last healthy replica of volume vol (no other healthy replica available): it cannot be deleted; to delete the volume, run kubectl -n longhorn-system delete volumes.longhorn.io vol`)
	b.ExpectWrites("delete replicas/r-1")
}

func TestOnlyTheReplicaThatWasReadIsRemoved(t *testing.T) {
	objs := served(2)
	b := newBench(t, objs...)
	seen, err := b.deps.Replicas.Live(t.Context(), "r-1")
	require.NoError(t, err)
	replicas := b.deps.Replicas
	b.deps.Replicas = during{replicas, func(p datastore.Preconditions) {
		b.deps.Replicas = replicas
		assert.Equal(t, datastore.Preconditions{UID: seen.UID, ResourceVersion: seen.ResourceVersion}, p)
		marked := seen.DeepCopy()
		marked.Annotations = map[string]string{types.AnnotationLastGoodCopy: ""}
		b.Overwrite(marked)
	}}
	_, err = b.RemoveReplica(t.Context(), "vol", "r-1")
	wantProblem(t, err, ErrConflict, `replica r-1 is the last healthy replica of volume vol (no other healthy replica available): it cannot be deleted; to delete the volume, run kubectl -n longhorn-system delete volumes.longhorn.io vol`)
	b.ExpectWrites("delete replicas/r-1") // this was refused
	_, err = replicas.Live(t.Context(), "r-1")
	assert.NoError(t, err)
}

// counting is a store that counts versions of the spec, as the API server does.
type counting struct{ VolumeStore }

func (c counting) Update(ctx context.Context, v *Volume) (*Volume, error) {
	updated, err := c.VolumeStore.Update(ctx, v)
	if err == nil {
		updated.Generation++
	}
	return updated, err
}

// The answer comes when the next read sees the change, or after two seconds.
func TestAChangeIsSeenByTheNextRead(t *testing.T) {
	const patience = 100 // number of checks of the cache
	for name, use := range map[string]func(*bench) error{
		"a volume is changed": func(b *bench) error {
			return second(b.UpdateVolume(t.Context(), "vol", VolumeUpdate{NumberOfReplicas: ptr(1)}))
		},
		"a replica is removed": func(b *bench) error { return second(b.RemoveReplica(t.Context(), "vol", "r-1")) },
	} {
		t.Run(name+", the cache is late → waits", func(t *testing.T) {
			b := newBench(t, served(2)...)
			b.deps.Volumes = counting{b.deps.Volumes}
			require.NoError(t, use(b))
			assert.Len(t, b.hasty.delays, patience)
		})
	}
	t.Run("a replica is removed, the cache shows it soon → answers then", func(t *testing.T) {
		b := newBench(t, served(2)...)
		b.hasty.during = func() {
			if len(b.hasty.delays) == 3 {
				b.CatchUp()
			}
		}
		require.NoError(t, second(b.RemoveReplica(t.Context(), "vol", "r-1")))
		assert.Len(t, b.hasty.delays, 3)
	})
}

// RemoveReplica reads live all that the removal depends on: these caches still show the earlier state of the other
// replica.
func TestARemovalReadsLiveObjects(t *testing.T) {
	changes := map[string]func([]runtime.Object) runtime.Object{
		"the other one is being deleted": func(objs []runtime.Object) runtime.Object {
			r := objs[4].(*longhorn.Replica).DeepCopy()
			r.DeletionTimestamp = &metav1.Time{Time: testutil.Now}
			return r
		},
		"the engine has left the other one out": func(objs []runtime.Object) runtime.Object {
			e := objs[1].(*longhorn.Engine).DeepCopy()
			e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 2, Members: []string{"r-1"}}
			return e
		},
		"the other one is of a later volume of the name": func(objs []runtime.Object) runtime.Object {
			r := objs[4].(*longhorn.Replica).DeepCopy()
			r.OwnerReferences[0].UID = "later"
			return r
		},
		"the leader has marked this one": func(objs []runtime.Object) runtime.Object {
			r := objs[2].(*longhorn.Replica).DeepCopy()
			r.Annotations = map[string]string{types.AnnotationLastGoodCopy: ""}
			return r
		},
	}
	for name, change := range changes {
		t.Run(name+" → refused", func(t *testing.T) {
			objs := served(2)
			b := newBench(t, objs...)
			b.Overwrite(change(objs))
			_, err := b.RemoveReplica(t.Context(), "vol", "r-1")
			wantProblem(t, err, ErrConflict, `replica r-1 is the last healthy replica of volume vol (no other healthy replica available): it cannot be deleted; to delete the volume, run kubectl -n longhorn-system delete volumes.longhorn.io vol`)
			b.ExpectWrites()
		})
	}
}

// Clients cannot request such names, and fail. This is not a failure of the server.
func TestInvalidNamesAreNotRead(t *testing.T) {
	b := newBench(t, threeNodes()...)
	ctx := t.Context()
	for _, name := range []string{"", "..", "a/b", "a%b", strings.Repeat("a", 254)} {
		b.Fail("get", "volumes", errors.New("asked for"))
		b.Fail("get", "nodes", errors.New("asked for"))
		for use, err := range map[string]error{
			"read":    second(b.Volume(ctx, name)),
			"change":  second(b.UpdateVolume(ctx, name, VolumeUpdate{NumberOfReplicas: ptr(2)})),
			"remove":  second(b.RemoveReplica(ctx, name, "r")),
			"delete":  b.DeleteVolume(ctx, name),
			"attach":  second(b.AttachVolume(ctx, name, AttachRequest{NodeID: "node-1"})),
			"detach":  second(b.DetachVolume(ctx, name, DetachRequest{})),
			"node":    second(b.UpdateNode(ctx, name, NodeUpdate{})),
			"no node": b.DeleteNode(ctx, name),
		} {
			assert.ErrorIs(t, err, ErrNotFound, "%s %.10s", use, name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestAViewShowsDegradedAtOnce checks the view before the controller has seen the change.
func TestAViewShowsDegradedAtOnce(t *testing.T) {
	read := func(t *testing.T, b *bench) longhorn.VolumeRobustness {
		t.Helper()
		b.CatchUp()
		view, err := b.Volume(t.Context(), "vol")
		require.NoError(t, err)
		return view.Robustness
	}
	t.Run("all is there → healthy", func(t *testing.T) {
		assert.Equal(t, longhorn.VolumeRobustnessHealthy, read(t, newBench(t, served(2)...)))
	})
	t.Run("the controller says less → that counts", func(t *testing.T) {
		for _, said := range []longhorn.VolumeRobustness{longhorn.VolumeRobustnessDegraded, longhorn.VolumeRobustnessFaulted, longhorn.VolumeRobustnessUnknown} {
			assert.Equal(t, said, read(t, newBench(t, having(served(2), func(v *longhorn.Volume) { v.Status.Robustness = said })...)))
		}
	})
	t.Run("a replica is removed → degraded", func(t *testing.T) {
		b := newBench(t, served(2)...)
		_, err := b.RemoveReplica(t.Context(), "vol", "r-1")
		require.NoError(t, err)
		assert.Equal(t, longhorn.VolumeRobustnessDegraded, read(t, b))
	})
	t.Run("more are asked for → degraded", func(t *testing.T) {
		b := newBench(t, served(2)...)
		view, err := b.UpdateVolume(t.Context(), "vol", VolumeUpdate{NumberOfReplicas: ptr(3)})
		require.NoError(t, err)
		assert.Equal(t, longhorn.VolumeRobustnessDegraded, view.Robustness)
		assert.Equal(t, longhorn.VolumeRobustnessDegraded, read(t, b))
	})
	t.Run("fewer are asked for → healthy", func(t *testing.T) {
		b := newBench(t, served(3)...)
		_, err := b.UpdateVolume(t.Context(), "vol", VolumeUpdate{NumberOfReplicas: ptr(2)})
		require.NoError(t, err)
		assert.Equal(t, longhorn.VolumeRobustnessHealthy, read(t, b))
	})
}
