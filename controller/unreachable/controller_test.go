package unreachable

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, objs ...runtime.Object) (*testutil.Harness, *Controller) {
	t.Helper()
	h := testutil.New(t, objs...)
	store := h.Datastore(datastore.Options{})
	c, err := New(Deps{Env: h.Env(), Nodes: store.Nodes, Replicas: store.Replicas, Managers: store.InstanceManagers})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	return h, c
}

func runs(r *longhorn.Replica) { r.Status.CurrentState = longhorn.InstanceStateRunning }

func TestTheStateUnknownIsWrittenOnce(t *testing.T) {
	im := types.InstanceManagerName("n")
	h, c := start(t, down, build.RunningInstanceManager("n", "10.0.0.1", "process"),
		build.PlacedReplica("r", "vol", "n", "disk", runs), build.PlacedReplica("elsewhere", "vol", "m", "disk-m", runs))
	_, err := c.sync(t.Context(), "n")
	require.NoError(t, err)
	h.ExpectWrites("update instancemanagers/"+im+"/status", "update replicas/r/status")
	_, err = c.sync(t.Context(), "n")
	require.ErrorIs(t, err, queue.ErrStale)
	h.CatchUp()
	_, err = c.sync(t.Context(), "n")
	require.NoError(t, err)
	h.ExpectWrites()
}

func TestANodeThatIsNotRegisteredIsLeftAlone(t *testing.T) {
	h, c := start(t, build.PlacedReplica("r", "vol", "n", "disk", runs))
	_, err := c.sync(t.Context(), "n")
	require.True(t, apierrors.IsNotFound(err), "the node's event brings it back: %v", err)
	h.ExpectWrites()
}

func TestWhichChangesRequeueANode(t *testing.T) {
	assert.Equal(t, []string{"n"}, whenNode(nil, down), "a leader that begins")
	assert.Equal(t, []string{"n"}, whenNode(ready, down))
	assert.Equal(t, []string{"n"}, whenNode(down, ready))
	assert.Empty(t, whenNode(down, down))
	assert.Empty(t, whenNode(down, nil))
	r := build.PlacedReplica("r", "vol", "n", "disk", runs)
	grown := r.DeepCopy()
	grown.Status.AllocatedBytes = 1
	assert.Empty(t, whenReplica(r, grown), "what a replica takes on its disk changes often")
	assert.Equal(t, []string{"n"}, whenReplica(build.PlacedReplica("r", "vol", "n", "disk"), r))
	assert.Equal(t, []string{"n"}, whenManager(build.InstanceManager("n"), build.RunningInstanceManager("n", "10.0.0.1", "process")))
}
