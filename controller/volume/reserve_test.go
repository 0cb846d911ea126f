package volume

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	object "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

// newVolumes are volumes that have an engine and no replicas yet.
func newVolumes(n int, change func(*longhorn.Volume)) []object.Object {
	var objs []object.Object
	for i := range n {
		name := fmt.Sprintf("v%03d", i)
		of := []metav1.OwnerReference{{APIVersion: "longhorn.io/v1beta2", Kind: "Volume", Name: name, UID: kubetypes.UID("uid-" + name)}}
		objs = append(objs,
			build.Volume(name, finalized, change),
			build.Engine(name, func(e *longhorn.Engine) { e.OwnerReferences = of }),
			build.VolumeAttachment(name, func(va *longhorn.VolumeAttachment) { va.OwnerReferences = of }))
	}
	return objs
}

// placing is a controller on nodes with a disk of 100 GiB each.
func placing(t *testing.T, nodes int, objs ...object.Object) (*testutil.Harness, *Controller) {
	t.Helper()
	for i := range nodes {
		node := fmt.Sprintf("n%02d", i)
		objs = append(objs, build.ReadyNode(node, "disk-"+node), build.RunningInstanceManager(node, "10.0.0.1", "p"))
	}
	h := testutil.New(t, objs...)
	d := DepsOf(h.Datastore(datastore.Options{}))
	d.Env, d.Owner = h.Env(), "leader"
	setting := d.Setting
	d.Setting = func(name settings.Name) string {
		runtime.Gosched() // between reading the room and deciding: allow other volumes to do the same
		return setting(name)
	}
	c, err := New(d)
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	return h, c
}

// scheduledOn is the space that is scheduled on each disk, and the number of replicas there.
func scheduledOn(t *testing.T, c *Controller) (bytes map[string]int64, replicas map[string]int) {
	t.Helper()
	live, err := c.deps.Replicas.ListLive(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	bytes, replicas = map[string]int64{}, map[string]int{}
	for _, r := range live {
		bytes[r.Spec.DiskID] += int64(r.Spec.VolumeSize)
		replicas[r.Spec.DiskID]++
	}
	return bytes, replicas
}

func TestTwoVolumesThatOneDiskCannotHoldBoth(t *testing.T) {
	h, c := placing(t, 1, newVolumes(2, func(v *longhorn.Volume) { v.Spec.Size, v.Spec.NumberOfReplicas = 60*build.GiB, 1 })...)
	for _, name := range []string{"v000", "v001"} { // the cache does not show the first one's replicas to the second
		_, err := c.sync(t.Context(), name)
		require.NoError(t, err)
	}
	bytes, _ := scheduledOn(t, c)
	assert.Equal(t, map[string]int64{"disk-n00": 60 * build.GiB}, bytes)
	h.CatchUp()
	_, err := c.sync(t.Context(), "v001")
	require.NoError(t, err)
	bytes, _ = scheduledOn(t, c)
	assert.Equal(t, map[string]int64{"disk-n00": 60 * build.GiB}, bytes, "once the cache shows it")
}

// All volumes are planned at once, by as many workers as the controller has, and the cache shows none of the created
// replicas.
func TestABurstOfVolumesKeepsTheLimitsAndSpreads(t *testing.T) {
	if testing.Short() {
		t.Skip("placing 500 volumes takes seconds: not with -short")
	}
	const volumes, nodes, workers = 500, 10, 4
	_, c := placing(t, nodes, newVolumes(volumes, func(v *longhorn.Volume) { v.Spec.Size = 512 << 20 })...)
	names := make(chan string, volumes)
	for i := range volumes {
		names <- fmt.Sprintf("v%03d", i)
	}
	close(names)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for name := range names {
				_, err := c.sync(t.Context(), name)
				assert.NoError(t, err, name)
			}
		})
	}
	wg.Wait()
	bytes, replicas := scheduledOn(t, c)
	// 200 replicas of 512 MiB fill a disk of 100 GiB. In all there is room for 2000.
	total, least, most := 0, volumes*3, 0
	for _, n := range replicas {
		total, least, most = total+n, min(least, n), max(most, n)
	}
	assert.Equal(t, volumes*3, total)
	assert.Len(t, replicas, nodes)
	assert.LessOrEqual(t, most-least, 1, "between equal disks: %v", replicas)
	for disk, sum := range bytes {
		assert.LessOrEqual(t, sum, int64(100*build.GiB), disk)
	}
}

// The same where there is not room for all: the replicas that fit are created, and no others.
func TestABurstBeyondTheRoomStopsAtTheLimit(t *testing.T) {
	_, c := placing(t, 3, newVolumes(30, func(v *longhorn.Volume) { v.Spec.Size = 7 * build.GiB })...)
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			_, err := c.sync(t.Context(), fmt.Sprintf("v%03d", i))
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	_, replicas := scheduledOn(t, c)
	assert.Equal(t, map[string]int{"disk-n00": 14, "disk-n01": 14, "disk-n02": 14}, replicas)
}

func TestRoomOfReplicasThatWereNotMadeIsGivenBack(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "replicas"}, "r", errors.New("quota"))
	for _, tc := range []struct {
		name string
		err  error
		want int64 // scheduled at the end, GiB
	}{
		{"the API server refuses → the other volume gets the room", refused, 60},
		{"it does not answer → the replica may be there, and keeps its room", errors.New("connection reset"), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, c := placing(t, 1, newVolumes(2, func(v *longhorn.Volume) { v.Spec.Size, v.Spec.NumberOfReplicas = 60*build.GiB, 1 })...)
			h.Fail("create", "replicas", tc.err)
			_, err := c.sync(t.Context(), "v000")
			require.Error(t, err)
			_, err = c.sync(t.Context(), "v001")
			require.NoError(t, err)
			bytes, _ := scheduledOn(t, c)
			assert.Equal(t, tc.want*build.GiB, bytes["disk-n00"])

			// Its own attempt does not block the first volume, and blocks no other volume for long.
			h.Clock.Step(assumeFor + time.Second)
			h.CatchUp()
			_, err = c.sync(t.Context(), "v000")
			require.NoError(t, err)
			bytes, _ = scheduledOn(t, c)
			assert.Equal(t, int64(60*build.GiB), bytes["disk-n00"])
		})
	}
}

func TestRoomOfAnAttemptWithoutAnswerIsGivenBackInTheEnd(t *testing.T) {
	h, c := placing(t, 1, newVolumes(2, func(v *longhorn.Volume) { v.Spec.Size, v.Spec.NumberOfReplicas = 60*build.GiB, 1 })...)
	h.Fail("create", "replicas", errors.New("connection reset"))
	_, err := c.sync(t.Context(), "v000")
	require.Error(t, err)
	for _, step := range []struct {
		after time.Duration
		want  int64 // scheduled, GiB
	}{{0, 0}, {5 * time.Minute, 0}, {time.Second, 60}} {
		h.Clock.Step(step.after)
		h.CatchUp()
		_, err = c.sync(t.Context(), "v001")
		require.NoError(t, err)
		bytes, _ := scheduledOn(t, c)
		assert.Equal(t, step.want*build.GiB, bytes["disk-n00"], "%s later", step.after)
	}
}

func TestAnAttemptThatSucceedsGivesBackTheRoomOfThoseBefore(t *testing.T) {
	h, c := placing(t, 1, newVolumes(2, func(v *longhorn.Volume) {
		v.Spec.Size, v.Spec.NumberOfReplicas = 60*build.GiB, 1
		if v.Name == "v000" {
			v.Spec.Size = 30 * build.GiB
		}
	})...)
	h.Fail("create", "replicas", errors.New("connection reset"))
	_, err := c.sync(t.Context(), "v000")
	require.Error(t, err)
	for _, name := range []string{"v000", "v001"} {
		_, err = c.sync(t.Context(), name)
		require.NoError(t, err)
	}
	bytes, _ := scheduledOn(t, c)
	assert.Equal(t, int64(90*build.GiB), bytes["disk-n00"])
}

func TestAnAttemptDoesNotKeepItsOwnVolumeOut(t *testing.T) {
	h, c := placing(t, 1, newVolumes(1, func(v *longhorn.Volume) { v.Spec.Size, v.Spec.NumberOfReplicas = 60*build.GiB, 1 })...)
	h.Fail("create", "replicas", errors.New("connection reset"))
	_, err := c.sync(t.Context(), "v000")
	require.Error(t, err)
	_, err = c.sync(t.Context(), "v000")
	require.NoError(t, err)
	bytes, _ := scheduledOn(t, c)
	assert.Equal(t, int64(60*build.GiB), bytes["disk-n00"])
}

func TestWhatIsAssumedIsForgottenWhenTheCacheShowsIt(t *testing.T) {
	h, c := placing(t, 3, newVolumes(5, func(*longhorn.Volume) {})...)
	for i := range 5 {
		_, err := c.sync(t.Context(), fmt.Sprintf("v%03d", i))
		require.NoError(t, err)
	}
	assert.Len(t, c.placed.assumed, 15)
	h.CatchUp()
	cached, err := c.deps.Replicas.List(labels.Everything())
	require.NoError(t, err)
	assert.Len(t, c.placed.with(cached, ""), 15)
	assert.Empty(t, c.placed.assumed)
}

// The scheduler alone, without objects: each volume is placed in the room that the volumes before it left.
func TestVolumesPlacedOneAfterTheOtherSpread(t *testing.T) {
	s := scheduler.Snapshot{Settings: scheduler.Settings{
		OverProvisioningPercent: 200, ZoneSoftAntiAffinity: true, DiskSoftAntiAffinity: true, AllowEmptyNodeSelector: true, AllowEmptyDiskSelector: true,
	}}
	for i := range 7 {
		n := scheduler.Node{Name: fmt.Sprintf("n%d", i), Ready: true, Schedulable: true, AllowScheduling: true, InstanceManagerRunning: true}
		for j := range 2 {
			n.Disks = append(n.Disks, scheduler.Disk{
				Name: fmt.Sprint(j), UUID: fmt.Sprintf("%d-%d", i, j), AllowScheduling: true, Ready: true, Schedulable: true,
				StorageMaximum: 60 * build.GiB, StorageAvailable: 60 * build.GiB,
			})
		}
		s.Nodes = append(s.Nodes, n)
	}
	count := map[string]int{}
	for range 500 {
		s.Replicas = nil
		placed, err := scheduler.ScheduleAll(s, scheduler.Request{SizeBytes: build.GiB}, 3)
		require.NoError(t, err)
		for _, p := range placed {
			s = s.With(p)
			count[p.DiskUUID]++
		}
	}
	assert.Len(t, count, 14)
	for disk, n := range count {
		assert.Contains(t, []int{107, 108}, n, disk) // 1500 replicas on 14 disks
	}
}

// The room is reserved between the record of a larger size and the update of the replicas. It is also reserved before
// the cache shows the record.
func TestRoomOfAGrowingVolumeIsTaken(t *testing.T) {
	grown := build.Volume("vol", func(v *longhorn.Volume) { v.Status.Size = 2 * build.GiB })
	_, c := begin(t, grown, build.PlacedReplica("r", "vol", "a", "disk-a", ownedReplica))
	sizes := func() longhorn.Bytes {
		o, err := c.objects()
		require.NoError(t, err)
		return c.promised(o.Replicas)[0].Spec.VolumeSize
	}
	require.EqualValues(t, 2*build.GiB, sizes(), "recorded")
	c.placed.assumeSize(grown, 3*build.GiB)
	require.EqualValues(t, 3*build.GiB, sizes(), "about to be recorded")
	c.placed.assumeSize(grown, build.GiB)
	require.EqualValues(t, 2*build.GiB, sizes(), "the cache shows more by now")
}

// A replica that was not created reserves no room, however often its creation is tried.
func TestRoomIsGivenBackWhenWhatComesBeforeReplicasFails(t *testing.T) {
	var objs []object.Object
	for i, o := range newVolumes(1, func(v *longhorn.Volume) { v.Spec.Size, v.Spec.NumberOfReplicas = 10*gib, 1 }) {
		if i != 2 { // the attachment, so that it must be created
			objs = append(objs, o)
		}
	}
	h, c := placing(t, 1, objs...)
	for range 12 {
		h.Fail("create", "volumeattachments", errors.New("refused by a webhook"))
		_, err := c.sync(t.Context(), "v000")
		require.Error(t, err)
		h.CatchUp()
		h.Clock.Step(10 * time.Second)
	}
	assert.Empty(t, c.placed.assumed)
}
