package heartbeat

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const writes = "leases/node-n"

func begin(t *testing.T, objs ...runtime.Object) (*testutil.Harness, *Heartbeat) {
	h := testutil.New(t, append(objs, build.Node("n"))...)
	d := h.Datastore(datastore.Options{Node: "n"})
	beat, err := New(Deps{Env: h.Env(), Node: "n", Pods: d.Pods, Leases: d.Leases, Nodes: d.Nodes})
	require.NoError(t, err)
	h.EndWithTest(beat.Run)
	return h, beat
}

func sync(t *testing.T, beat *Heartbeat, want time.Duration) {
	t.Helper()
	result, err := beat.sync(t.Context(), "n")
	require.NoError(t, err)
	assert.Equal(t, want, result.RequeueAfter)
}

func sharePod(node string, with ...func(*corev1.Pod)) *corev1.Pod {
	pod := build.Pod(types.ShareManagerPodName("vol"), node, with...)
	pod.Labels = types.ShareManagerSelector("vol")
	return pod
}

func TestALeaseIsKeptWhileANodeServesShares(t *testing.T) {
	h, beat := begin(t, build.Pod("longhorn-manager-x", "n"))
	sync(t, beat, 0)
	h.ExpectWrites() // no share, no lease

	h.Seed(sharePod("n"))
	h.CatchUp()
	sync(t, beat, types.NodeLeaseRenewal)
	h.ExpectWrites("create " + writes)
	made, err := beat.deps.Leases.Live(t.Context(), "node-n")
	require.NoError(t, err)
	assert.Equal(t, "n", types.NodeOfLease(made))
	assert.True(t, types.IsNodeLeaseHeld(made))
	assert.Equal(t, "Node", made.OwnerReferences[0].Kind, "what removes a Node removes its lease")
	assert.Nil(t, made.OwnerReferences[0].BlockOwnerDeletion)

	h.Clock.Step(types.NodeLeaseRenewal)
	sync(t, beat, types.NodeLeaseRenewal)
	h.ExpectWrites("update " + writes)
	renewed, err := beat.deps.Leases.Live(t.Context(), "node-n")
	require.NoError(t, err)
	assert.Equal(t, types.NodeLeaseRenewal, renewed.Spec.RenewTime.Sub(made.Spec.RenewTime.Time))

	h.Overwrite(sharePod("n", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))
	h.CatchUp()
	sync(t, beat, 0)
	h.ExpectWrites("update " + writes)
	given, err := beat.deps.Leases.Live(t.Context(), "node-n")
	require.NoError(t, err)
	assert.False(t, types.IsNodeLeaseHeld(given))
	sync(t, beat, 0)
	h.ExpectWrites()
}

// The node was dead, its shares are elsewhere: nobody may wait for its lease any more.
func TestADaemonThatComesBackGivesAnOldLeaseBack(t *testing.T) {
	h, first := begin(t, sharePod("n"))
	sync(t, first, types.NodeLeaseRenewal)
	lease, err := first.deps.Leases.Live(t.Context(), "node-n")
	require.NoError(t, err)
	h2, second := begin(t, lease)
	sync(t, second, 0)
	h2.ExpectWrites("update " + writes)
	lease, err = second.deps.Leases.Live(t.Context(), "node-n")
	require.NoError(t, err)
	assert.False(t, types.IsNodeLeaseHeld(lease))
	h.ExpectWrites("create " + writes)
}

// The patience of a queue would be taken for the node's death.
func TestWhatFailsIsTriedAgainAtTheNextRenewal(t *testing.T) {
	h, beat := begin(t, sharePod("n"))
	sync(t, beat, types.NodeLeaseRenewal)
	failures := make([]error, 6)
	for i := range failures {
		failures[i] = errors.New("the API server is away")
	}
	h.Fail("*", "leases", failures...)
	for range failures {
		sync(t, beat, types.NodeLeaseRenewal)
	}
	h.Writes()
	sync(t, beat, types.NodeLeaseRenewal)
	h.ExpectWrites("update " + writes)
}
