package upgrade

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// engineIs changes the engine of vol.
func engineIs(t *testing.T, h *testutil.Harness, change func(*longhorn.Engine)) {
	t.Helper()
	e, err := h.Longhorn.LonghornV1beta2().Engines(types.Namespace).Get(t.Context(), types.EngineName("vol"), metav1.GetOptions{})
	require.NoError(t, err)
	change(e)
	h.Overwrite(e)
}

// turns counts the requests for the Lease.
func turns(h *testutil.Harness) int {
	n := 0
	for _, a := range h.Kube.Actions() {
		if a.GetResource().Resource == "leases" {
			n++
		}
	}
	return n
}

func TestASilentProcessIsNotReplaced(t *testing.T) {
	h, c, plane := begin(t, longhorn.VolumeRobustnessHealthy)
	plane.silent = true
	syncOf(t, c)
	assert.Zero(t, plane.replaced)
	h.ExpectWrites()
}

// The obstacles cause no events.
func TestWhatTheUpgradeWaitsForIsLookedAtAgain(t *testing.T) {
	h, c, plane := begin(t, longhorn.VolumeRobustnessDegraded)
	r, err := c.sync(t.Context(), "node-1")
	require.NoError(t, err)
	assert.Equal(t, again, r.RequeueAfter)
	volumeIs(h, longhorn.VolumeRobustnessHealthy)
	syncOf(t, c)
	require.Equal(t, 1, plane.replaced)
	assert.True(t, plane.deadline, "a replacement that hangs keeps the turn for ever")
	r, err = c.sync(t.Context(), "node-1")
	require.NoError(t, err)
	assert.Equal(t, settle, r.RequeueAfter)
	h.Clock.Step(settle)
	r, err = c.sync(t.Context(), "node-1")
	require.NoError(t, err)
	assert.Equal(t, again, r.RequeueAfter)
}

// Engines elsewhere must notice first, even if they seem to have noticed at once.
func TestTheTurnIsKeptForAWhile(t *testing.T) {
	h, c, _ := begin(t, longhorn.VolumeRobustnessHealthy)
	syncOf(t, c)
	engineNotices(t, h)
	syncOf(t, c)
	assert.Equal(t, "node-1", holder(t, h))
	h.Clock.Step(settle)
	syncOf(t, c)
	assert.Empty(t, holder(t, h))
}

// TestWhatTheTurnWaitsFor: the turn waits until engines elsewhere report that they lost their replica here, and for
// nothing else.
func TestWhatTheTurnWaitsFor(t *testing.T) {
	for _, tc := range []struct {
		name          string
		before, after func(*longhorn.Engine)
		want          string
	}{
		{"nothing changed → kept", nil, nil, "node-1"},
		{"the engine was started anew → given back", nil, func(e *longhorn.Engine) { e.Status.Epoch.Generation++ }, ""},
		{"the engine runs here → given back", func(e *longhorn.Engine) { e.Spec.NodeID = "node-1" }, nil, ""},
		{"the replica here is not in the epoch → given back", func(e *longhorn.Engine) { e.Status.Epoch.Members = []string{"vol-r-2"} }, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, c, plane := begin(t, longhorn.VolumeRobustnessHealthy)
			if tc.before != nil {
				engineIs(t, h, tc.before)
			}
			syncOf(t, c)
			require.Equal(t, 1, plane.replaced)
			if tc.after != nil {
				engineIs(t, h, tc.after)
			}
			h.Clock.Step(settle)
			syncOf(t, c)
			assert.Equal(t, tc.want, holder(t, h))
		})
	}
}

// A volume that was detached in between has no engine that could notice anything.
func TestTheTurnDoesNotWaitForAnEngineThatStopped(t *testing.T) {
	h, c, _ := begin(t, longhorn.VolumeRobustnessHealthy)
	syncOf(t, c)
	engineIs(t, h, func(e *longhorn.Engine) { e.Status.CurrentState = longhorn.InstanceStateStopped })
	h.Overwrite(build.Volume("vol", func(v *longhorn.Volume) { v.Status.State = longhorn.VolumeStateDetached }))
	h.Clock.Step(settle)
	syncOf(t, c)
	assert.Empty(t, holder(t, h))
}

// TestAtRestTheLeaseIsNotRead: otherwise each node would read it after each report of its data plane.
func TestAtRestTheLeaseIsNotRead(t *testing.T) {
	h, c, plane := begin(t, longhorn.VolumeRobustnessHealthy)
	plane.version = "2"
	syncOf(t, c)
	once := turns(h)
	syncOf(t, c)
	assert.Equal(t, once, turns(h), "there is none")

	plane.version = "1" // an earlier version's daemon created the pod again
	syncOf(t, c)
	require.Equal(t, "node-1", holder(t, h))
	engineNotices(t, h)
	h.Clock.Step(settle)
	syncOf(t, c)
	require.Empty(t, holder(t, h), "a turn that was taken after it was looked for is given back too")
	once = turns(h)
	syncOf(t, c)
	assert.Equal(t, once, turns(h), "it was given back")
}

func TestATurnThatIsTakenAgainHasItsWholeTime(t *testing.T) {
	h, c, _ := begin(t, longhorn.VolumeRobustnessHealthy)
	_, err := c.take(t.Context())
	require.NoError(t, err)
	_, err = c.release(t.Context())
	require.NoError(t, err)
	h.Clock.Step(leaseTime)
	_, err = c.take(t.Context())
	require.NoError(t, err)
	l, err := h.Kube.CoordinationV1().Leases(types.Namespace).Get(t.Context(), types.UpgradeLeaseName, metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, l.Spec.RenewTime)
	assert.True(t, l.Spec.RenewTime.Time.Equal(h.Clock.Now()))
}

// Both nodes saw that the Lease is free. The slower node sees that it is not when it tries to take it.
func TestATurnIsNotTakenFromAnotherNode(t *testing.T) {
	h, c, _ := begin(t, longhorn.VolumeRobustnessHealthy)
	other := New(c.deps)
	h.EndWithTest(other.Run)
	other.deps.Node = "node-2"
	_, err := other.take(t.Context())
	require.NoError(t, err)
	got, err := c.take(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "node-2", got)
	assert.Equal(t, "node-2", holder(t, h))
	blockers, err := c.takeTurn(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"another node is being upgraded"}, blockers)
}

// An attached volume without a replica here also loses its engine's process.
func TestAnEngineHereIsLookedAtWithoutAReplica(t *testing.T) {
	_, c, plane := begin(t, longhorn.VolumeRobustnessHealthy,
		build.Volume("far", func(v *longhorn.Volume) {
			v.Status.State, v.Status.Robustness, v.Status.CurrentNodeID = longhorn.VolumeStateAttached, longhorn.VolumeRobustnessDegraded, "node-1"
		}),
		build.Engine("far", func(e *longhorn.Engine) { e.Spec.NodeID = "node-1" }))
	syncOf(t, c)
	assert.Zero(t, plane.replaced)
}

// The only two copies of a volume are on one node, which its anti-affinity may allow.
func TestAllCopiesHereAreLookedAt(t *testing.T) {
	_, c, plane := begin(t, longhorn.VolumeRobustnessHealthy, build.PlacedReplica("vol-r-2", "vol", "node-1", "disk-2"))
	syncOf(t, c)
	assert.Zero(t, plane.replaced)
}

// A replica that exists for a moment longer than its volume has nothing to lose.
func TestAReplicaWithoutAVolumeForbidsNothing(t *testing.T) {
	_, c, plane := begin(t, longhorn.VolumeRobustnessHealthy, build.PlacedReplica("old-r-1", "old", "node-1", "disk-1"))
	syncOf(t, c)
	assert.Equal(t, 1, plane.replaced)
}

// An object that cannot be read now does not count as absent.
func TestWhatCannotBeReadForbidsTheReplacement(t *testing.T) {
	for _, resource := range []string{"engines", "volumes"} {
		t.Run(resource, func(t *testing.T) {
			h, c, plane := begin(t, longhorn.VolumeRobustnessHealthy)
			broken := errors.New("no answer")
			h.Longhorn.PrependReactor("get", resource, func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, broken })
			_, err := c.sync(t.Context(), "node-1")
			require.ErrorIs(t, err, broken)
			assert.Zero(t, plane.replaced)
			_, err = (&Controller{deps: c.deps, unseen: map[string]longhorn.Epoch{"vol": {}}}).unnoticed(t.Context())
			if resource == "engines" {
				require.ErrorIs(t, err, broken)
			}
		})
	}
}

// Another upgrade has its own failures and messages.
func TestAReplacementThatWentWellBeginsAnew(t *testing.T) {
	h, c, plane := begin(t, longhorn.VolumeRobustnessDegraded)
	waits := "Normal UpgradeWaits " + im + ": the data plane stays at version 1 for now: volume vol is degraded"
	syncOf(t, c)
	h.ExpectEvents(waits)
	volumeIs(h, longhorn.VolumeRobustnessHealthy)
	plane.err = errors.New("it did not come up")
	syncOf(t, c)
	h.Clock.Step(retryFailed)
	plane.err = nil
	syncOf(t, c)
	require.Equal(t, 2, plane.replaced)
	plane.version, plane.err = "1", errors.New("it did not come up")
	syncOf(t, c)
	h.Clock.Step(retryFailed)
	plane.err = nil
	syncOf(t, c)
	assert.Equal(t, 4, plane.replaced, "failures before the last success are counted")
	plane.version = "1"
	volumeIs(h, longhorn.VolumeRobustnessDegraded)
	upgraded := "Normal Upgraded " + im + ": the data plane was upgraded to version 2 from version 1; the new process has taken over the devices in use"
	failed := "Warning UpgradeFailed " + im + ": the data plane stays at version 1: the upgrade to version 2 failed: it did not come up"
	h.ExpectEvents(failed, upgraded, failed, upgraded)
	syncOf(t, c)
	h.ExpectEvents(waits)
}

// While a failed version is not tried again, the turn is released as soon as the volumes allow it.
func TestAFailureDoesNotKeepTheTurn(t *testing.T) {
	h, c, plane := begin(t, longhorn.VolumeRobustnessHealthy)
	plane.err = errors.New("it did not come up")
	syncOf(t, c)
	volumeIs(h, longhorn.VolumeRobustnessDegraded)
	r, err := c.sync(t.Context(), "node-1")
	require.NoError(t, err)
	assert.Equal(t, again, r.RequeueAfter)
	assert.Equal(t, "node-1", holder(t, h))
}
