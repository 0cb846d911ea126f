package volume

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	object "k8s.io/apimachinery/pkg/runtime"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestWhatABegunRebuildIsWorthUntilTheCacheShowsIt(t *testing.T) {
	const stale, fresh = true, false
	mine := copies.Claim{Volume: "v", Since: "s", Wants: []string{"b"}}
	begun := copies.Claim{Volume: "v", Since: "s", Runs: "b"}
	for _, tc := range []struct {
		name   string
		before func(*turns)
		engine *longhorn.Engine
		stale  bool
		want   copies.Claim
	}{
		{"nothing was begun → the cache is right", func(*turns) {}, &longhorn.Engine{}, stale, mine},
		{"begun, and not written yet → it runs", func(s *turns) { s.take("v", "b") }, &longhorn.Engine{}, fresh, begun},
		{"written, and the cache is late → it runs", func(s *turns) { s.take("v", "b"); s.wrote("v") }, &longhorn.Engine{}, stale, begun},
		{"written, and the cache has it → the cache is right", func(s *turns) { s.take("v", "b"); s.wrote("v") }, &longhorn.Engine{}, fresh, mine},
		{"written, and the next has begun → it runs", func(s *turns) { s.take("v", "a"); s.wrote("v"); s.take("v", "b") }, &longhorn.Engine{}, fresh, begun},
		{"the engine is gone → the cache is right", func(s *turns) { s.take("v", "b") }, nil, fresh, mine},
		{"another volume has begun → the cache is right", func(s *turns) { s.take("other", "b") }, &longhorn.Engine{}, stale, mine},
		{"the volume was gone meanwhile → the cache is right", func(s *turns) { s.take("v", "b"); s.forget("v") }, &longhorn.Engine{}, stale, mine},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s turns
			tc.before(&s)
			assert.Equal(t, tc.want, s.correct(mine, tc.engine, func(*longhorn.Engine) bool { return tc.stale }))
		})
	}
}

// The volume that was degraded first may only later be able to start its rebuild. A rebuild that another volume
// started in this time counts, although the cache does not show it.
func TestATurnThatWasJustTakenCounts(t *testing.T) {
	const late = "v000" // by i*7%6 the order is the order of the numbers
	objs := returned(6)
	for _, o := range objs {
		if r, ok := o.(*longhorn.Replica); ok && r.Spec.FailedAt != "" && r.Spec.VolumeName == late {
			r.Spec.FailedAt = types.Timestamp(testutil.Now)
		}
	}
	h, c := begin(t, objs...)
	sync := func(names ...string) {
		for _, name := range names {
			_, err := c.sync(t.Context(), name)
			require.NoError(t, err)
		}
	}
	others := []string{"v001", "v002", "v003", "v004", "v005"}
	sync(others...)
	require.Equal(t, others, asking(t, c))
	h.Clock.Step(types.RebuildSettle + time.Second)
	sync(late) // the cache does not show the writes of the others
	assert.Equal(t, others, asking(t, c))
	h.CatchUp()
	sync(late)
	assert.Equal(t, others, asking(t, c))
}

// The cache catches up between the read of an engine and the check of its turn: the claim of the old engine is wrong.
func TestAnEngineThatTheCacheHasPassedIsOutdated(t *testing.T) {
	h, c := begin(t, returned(1)...)
	read := func() *longhorn.Engine {
		e, err := c.deps.Engines.GetRO(types.EngineName("v000"))
		require.NoError(t, err)
		return e
	}
	first := read()
	assert.False(t, c.isOutdated(first))
	e := first.DeepCopy()
	e.Spec.DisableFrontend = !e.Spec.DisableFrontend
	_, err := c.deps.Engines.Update(t.Context(), e)
	require.NoError(t, err)
	assert.True(t, c.isOutdated(first), "the cache does not show the write")
	h.CatchUp()
	second := read()
	assert.False(t, c.isOutdated(second))
	h.Overwrite(second.DeepCopy()) // no write is remembered for it, as after a write that the cache has shown
	h.CatchUp()
	assert.True(t, c.isOutdated(second), "the cache shows a later version")
	assert.False(t, c.isOutdated(read()))
}

// returned are volumes with a member on node a and a failed replica on node b. Node b is back.
func returned(n int) []object.Object {
	var objs []object.Object
	at := types.Timestamp(testutil.Now.Add(-2 * time.Hour))
	for i := range n {
		name := fmt.Sprintf("v%03d", i)
		of := []metav1.OwnerReference{{APIVersion: "longhorn.io/v1beta2", Kind: "Volume", Name: name, UID: kubetypes.UID("uid-" + name)}}
		replica := func(id, node, ip string, failed bool) *longhorn.Replica {
			return build.PlacedReplica(name+id, name, node, "disk-"+node, func(r *longhorn.Replica) {
				r.OwnerReferences = of
				r.Spec.DesireState, r.Status.CurrentState = longhorn.DesireStateRunning, longhorn.InstanceStateRunning
				r.Status.IP, r.Status.Port, r.Status.UUID, r.Spec.ServedUUID = ip, 8500, "p", "p"
				r.Spec.HealthyAt, r.Spec.LastHealthyAt = at, at
				if failed {
					r.Spec.FailedAt = types.Timestamp(testutil.Now.Add(-time.Hour))
					r.Spec.LastFailedAt = r.Spec.FailedAt
				}
			})
		}
		objs = append(objs,
			build.Volume(name, finalized, func(v *longhorn.Volume) {
				v.Spec.NumberOfReplicas, v.Spec.NodeID = 2, "a"
				v.Status = longhorn.VolumeStatus{
					OwnerID: "leader", State: longhorn.VolumeStateAttached, CurrentNodeID: "a", AttachedAt: ago(long), Robustness: longhorn.VolumeRobustnessDegraded, Size: build.GiB, ObservedReplicaCount: 2,
					LastDegradedAt: types.Timestamp(testutil.Now.Add(time.Duration(-n+(i*7)%n) * time.Second)),
					Conditions: []longhorn.Condition{
						{Type: types.ConditionScheduled, Status: longhorn.ConditionTrue},
						{Type: types.ConditionFaulted, Status: longhorn.ConditionFalse},
					},
				}
			}),
			build.VolumeAttachment(name, func(va *longhorn.VolumeAttachment) { va.OwnerReferences = of }),
			build.Engine(name, func(e *longhorn.Engine) {
				e.OwnerReferences = of
				addresses := map[string]string{name + "-r1": "10.0.0.1:8500"}
				e.Spec.NodeID, e.Spec.DesireState, e.Spec.ReplicaAddressMap = "a", longhorn.DesireStateRunning, addresses
				e.Status.CurrentState, e.Status.Generation, e.Status.Session, e.Status.UUID = longhorn.InstanceStateRunning, 1, "s", "p"
				e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 2, Members: []string{name + "-r1"}}
				e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{name + "-r1": longhorn.ReplicaModeRW}
				e.Status.CurrentReplicaAddressMap, e.Status.CurrentSize = addresses, build.GiB
			}),
			replica("-r1", "a", "10.0.0.1", false), replica("-r2", "b", "10.0.0.2", true))
	}
	return objs
}

// asking lists the volumes where the engine's spec lists the replica that is not good.
func asking(t *testing.T, c *Controller) []string {
	t.Helper()
	var names []string
	volumes, err := c.deps.Volumes.List(labels.Everything())
	require.NoError(t, err)
	for i := range volumes {
		name := fmt.Sprintf("v%03d", i)
		e, err := c.deps.Engines.Live(t.Context(), types.EngineName(name))
		require.NoError(t, err)
		if len(e.Spec.ReplicaAddressMap) == 2 {
			names = append(names, name)
		}
	}
	return names
}

func TestVolumesOfANodeThatIsBackTakeTurns(t *testing.T) {
	const volumes = 20
	h, c := begin(t, returned(volumes)...)
	syncAll := func() {
		for i := range volumes {
			_, err := c.sync(t.Context(), fmt.Sprintf("v%03d", i))
			require.NoError(t, err)
		}
	}
	syncAll()                                                 // the cache does not show a volume the writes of the others
	first := []string{"v000", "v003", "v006", "v009", "v012"} // i*7%20 is 0, 1, 2, 3 and 4
	assert.Equal(t, first, asking(t, c))
	h.CatchUp()
	h.Writes()
	h.Recorder.Take()
	for range 3 {
		h.Clock.Step(20 * time.Second)
		syncAll()
	}
	h.ExpectWrites() // a volume that waits writes nothing
	h.ExpectEvents()

	// One ends: the next volume is woken, and starts its rebuild.
	before, err := c.deps.Engines.Live(t.Context(), types.EngineName("v000"))
	require.NoError(t, err)
	after := before.DeepCopy()
	after.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 3, Members: []string{"v000-r1", "v000-r2"}}
	after.Status.ReplicaModeMap["v000-r2"] = longhorn.ReplicaModeRW
	h.Overwrite(after)
	h.CatchUp()
	assert.Contains(t, c.whenEngine(before, after), "v015", "i*7%20 is 5")
	syncAll()
	assert.Equal(t, append(slices.Clone(first), "v015"), asking(t, c))
}
