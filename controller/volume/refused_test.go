package volume

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestAChildThatTheAPIServerRefusesIsToldOnceAndUntilItIsTaken(t *testing.T) {
	h, c := begin(t, build.Volume("vol", finalized), build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) { va.OwnerReferences = owner() }))
	quota := apierrors.NewForbidden(schema.GroupResource{Group: "longhorn.io", Resource: "engines"}, "vol-e-0", errors.New("exceeded quota"))
	refusal := func() longhorn.Condition {
		v, err := c.deps.Volumes.Live(t.Context(), "vol")
		require.NoError(t, err)
		return types.FindCondition(v.Status.Conditions, "ChildRefused")
	}
	const message = `create the engine: create engines.longhorn.io vol-e-0: engines.longhorn.io "vol-e-0" is forbidden: exceeded quota`

	h.Fail("create", "engines", quota)
	_, err := c.sync(t.Context(), "vol")
	require.ErrorIs(t, err, quota)
	assert.Equal(t, longhorn.ConditionTrue, refusal().Status)
	assert.Equal(t, "Forbidden", refusal().Reason)
	assert.Contains(t, refusal().Message, "exceeded quota")
	h.ExpectEvents("Warning ChildRefused vol: " + message)
	h.CatchUp()
	h.Writes()

	h.Fail("create", "engines", quota)
	_, err = c.sync(t.Context(), "vol")
	require.Error(t, err)
	h.ExpectWrites("create secrets/vol-data-plane", "create engines/vol-e-0") // the Event was recorded already
	h.ExpectEvents()

	_, err = c.sync(t.Context(), "vol")
	require.NoError(t, err)
	assert.Equal(t, longhorn.ConditionFalse, refusal().Status)
	assert.Empty(t, refusal().Message)
}

// The figures of a quota differ at each attempt. If the status followed them, each write would cause the next attempt
// at once.
func TestARefusalWhoseFiguresDifferAtEachAttemptIsWrittenOnce(t *testing.T) {
	h, c := begin(t, build.Volume("vol", finalized), build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) { va.OwnerReferences = owner() }))
	quota := func(used string) error {
		return apierrors.NewForbidden(schema.GroupResource{Group: "longhorn.io", Resource: "engines"}, "vol-e-0", errors.New("exceeded quota, used "+used))
	}
	h.Fail("create", "engines", quota("1"), quota("2"))
	h.Fail("update", "volumes", errors.New("away"))
	_, err := c.sync(t.Context(), "vol")
	require.Error(t, err)
	h.ExpectEvents()
	h.Writes()

	_, err = c.sync(t.Context(), "vol")
	require.Error(t, err)
	assert.Len(t, h.Recorder.Take(), 1, "a status that could not be written is written at the next attempt")
	h.CatchUp()
	h.Writes()

	h.Fail("create", "engines", quota("3"))
	_, err = c.sync(t.Context(), "vol")
	require.Error(t, err)
	h.ExpectWrites("create secrets/vol-data-plane", "create engines/vol-e-0")
	h.ExpectEvents()
}

func TestAFailureThatIsNoRefusalIsNotShownAsOne(t *testing.T) {
	h, c := begin(t, build.Volume("vol", finalized), build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) { va.OwnerReferences = owner() }))
	h.Fail("create", "engines", errors.New("away"))
	_, err := c.sync(t.Context(), "vol")
	require.Error(t, err)
	h.ExpectEvents()
	v, err := c.deps.Volumes.Live(t.Context(), "vol")
	require.NoError(t, err)
	assert.Equal(t, longhorn.ConditionUnknown, types.FindCondition(v.Status.Conditions, "ChildRefused").Status)
}

func TestAVolumeShowsThatItsDeviceIsInUse(t *testing.T) {
	used := build.Engine("vol", owned, func(e *longhorn.Engine) {
		e.Status.Conditions = []longhorn.Condition{{Type: "DeviceInUse", Status: longhorn.ConditionTrue, Reason: "DeviceInUse", Message: "it is mounted at /x"}}
	})
	free := build.Engine("vol", owned)
	v := build.Volume("vol", finalized)

	var s longhorn.VolumeStatus
	mirrorInUse(Input{Facts: copies.Facts{Volume: v, Engine: free}}, &s)
	assert.Empty(t, s.Conditions, "never in use → nothing is said")
	mirrorInUse(Input{Facts: copies.Facts{Volume: v, Engine: used}}, &s)
	assert.Equal(t, "it is mounted at /x", types.FindCondition(s.Conditions, "DeviceInUse").Message)
	events := transitions(Input{Facts: copies.Facts{Volume: v}}, &s)
	require.Len(t, events, 1)
	assert.Equal(t, Event{"Warning", "DeviceInUse", "volume vol cannot be detached: it is mounted at /x"}, events[0])
	v.Status = s
	assert.Empty(t, transitions(Input{Facts: copies.Facts{Volume: v}}, &s), "told once")
	mirrorInUse(Input{Facts: copies.Facts{Volume: v, Engine: free}}, &s)
	assert.Equal(t, longhorn.ConditionFalse, types.FindCondition(s.Conditions, "DeviceInUse").Status)

	for _, status := range []longhorn.VolumeStatus{plan(Input{Facts: copies.Facts{Volume: build.Volume("vol", finalized), Engine: used}}).Status, planDeletion(Input{Facts: copies.Facts{Volume: build.Volume("vol"), Engine: used}}).Status} {
		assert.Equal(t, longhorn.ConditionTrue, types.FindCondition(status.Conditions, "DeviceInUse").Status)
	}
}

// Two volumes want a rebuild on node b, which may run one at a time. The API server refuses the update of the first
// one's engine.
func TestAVolumeThatIsRefusedDoesNotHoldTheTurnOfOthers(t *testing.T) {
	h, c := begin(t, append(returned(2), build.Setting(settings.ConcurrentReplicaRebuildPerNodeLimit, "1"))...)
	refused := apierrors.NewForbidden(schema.GroupResource{Group: "longhorn.io", Resource: "engines"}, "v000-e-0", errors.New("a rule of the cluster's own"))
	state := func() longhorn.ConditionStatus {
		v, err := c.deps.Volumes.Live(t.Context(), "v000")
		require.NoError(t, err)
		return types.FindCondition(v.Status.Conditions, "ChildRefused").Status
	}
	sync := func(name string) error {
		_, err := c.sync(t.Context(), name)
		h.CatchUp()
		return err
	}
	rebuilds := func(name string) bool {
		e, err := c.deps.Engines.Live(t.Context(), types.EngineName(name))
		require.NoError(t, err)
		return len(e.Spec.ReplicaAddressMap) == 2
	}

	require.NoError(t, sync("v001"))
	require.False(t, rebuilds("v001"), "v000 was degraded before")
	h.Fail("update", "engines", refused)
	require.ErrorIs(t, sync("v000"), refused)
	require.NoError(t, sync("v001"))
	assert.True(t, rebuilds("v001"), "it has the turn of the one that is refused")

	h.Recorder.Take()
	require.NoError(t, sync("v000"))
	assert.False(t, rebuilds("v000"), "the node has no rebuild to spare")
	assert.Equal(t, longhorn.ConditionTrue, state(), "nothing was attempted, so nothing shows that it would be taken now")
	h.ExpectEvents()

	e, err := c.deps.Engines.Live(t.Context(), "v001-e-0")
	require.NoError(t, err)
	e.Spec.ReplicaAddressMap = map[string]string{"v001-r1": "10.0.0.1:8500"} // its rebuild was canceled, and is due again
	h.Overwrite(e)
	h.CatchUp()
	require.NoError(t, sync("v000"))
	assert.True(t, rebuilds("v000"), "it was degraded before, and is not refused any more")
	assert.Equal(t, longhorn.ConditionFalse, state())
	require.NoError(t, sync("v001"))
	assert.False(t, rebuilds("v001"), "v000 has its claim again")
}

func TestARefusalEndsWhenAnObjectIsTakenOrNoneIsToBeWritten(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(h *testutil.Harness, c *Controller)
		want   longhorn.ConditionStatus
	}{
		{"its rebuild waits for a turn → it stays", func(*testutil.Harness, *Controller) {}, longhorn.ConditionTrue},
		{"its rebuild waits for a turn, and a replica is taken → it ends", func(h *testutil.Harness, c *Controller) {
			list, err := c.deps.Replicas.ListLive(t.Context(), metav1.ListOptions{LabelSelector: types.LabelVolume + "=v001"})
			require.NoError(t, err)
			for _, r := range list {
				r.Spec.ServedUUID = "an earlier process"
				h.Overwrite(r)
			}
		}, longhorn.ConditionFalse},
		{"fewer copies are asked for, so none is to be rebuilt → it ends", func(h *testutil.Harness, c *Controller) {
			v, err := c.deps.Volumes.Live(t.Context(), "v001")
			require.NoError(t, err)
			v.Spec.NumberOfReplicas = 1
			h.Overwrite(v)
		}, longhorn.ConditionFalse},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, c := begin(t, append(returned(2), build.Setting(settings.ConcurrentReplicaRebuildPerNodeLimit, "1"))...)
			v, err := c.deps.Volumes.Live(t.Context(), "v001")
			require.NoError(t, err)
			v.Status.Conditions = append(v.Status.Conditions, longhorn.Condition{Type: types.ConditionChildRefused, Status: longhorn.ConditionTrue})
			h.Overwrite(v)
			tc.change(h, c)
			h.CatchUp()
			_, err = c.sync(t.Context(), "v001")
			require.NoError(t, err)
			v, err = c.deps.Volumes.Live(t.Context(), "v001")
			require.NoError(t, err)
			assert.Equal(t, tc.want, types.FindCondition(v.Status.Conditions, types.ConditionChildRefused).Status)
		})
	}
}
