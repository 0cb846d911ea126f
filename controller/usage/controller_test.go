package usage

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func begin(t *testing.T, v *longhorn.Volume, pods ...corev1.Pod) (*testutil.Harness, *Controller, *datastore.Datastore) {
	t.Helper()
	h := testutil.New(t, v)
	for i := range pods {
		h.Seed(&pods[i])
	}
	workloads := datastore.NewWorkloads(h.Kube)
	require.NoError(t, workloads.Replace([]*corev1.PersistentVolume{pv("Bound", "data")}))
	store := h.Datastore(datastore.Options{})
	c, err := New(Deps{Env: h.Env(), Volumes: store.Volumes, Workloads: workloads})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	return h, c, store
}

func TestTheLastPodsAreKeptWhenTheVolumeIsDetached(t *testing.T) {
	h, c, store := begin(t, volume(longhorn.VolumeStateAttached, longhorn.KubernetesStatus{}, types.Timestamp(testutil.Now.Add(-time.Hour))), pod("db-0", "data", owned))
	result, err := c.sync(t.Context(), "vol")
	require.NoError(t, err)
	assert.Equal(t, queue.Result{}, result)
	h.ExpectWrites("update volumes/vol/status")
	_, err = c.sync(t.Context(), "vol")
	require.ErrorIs(t, err, queue.ErrStale, "the cache is late")
	h.CatchUp()
	_, err = c.sync(t.Context(), "vol")
	require.NoError(t, err)
	h.ExpectWrites() // at rest

	v, err := store.Volumes.Get("vol")
	require.NoError(t, err)
	v.Status.State, v.Status.CurrentNodeID, v.Status.AttachedAt = longhorn.VolumeStateDetached, "", ""
	_, err = store.Volumes.UpdateStatus(t.Context(), v)
	require.NoError(t, err)
	h.CatchUp()
	h.Writes()
	_, err = c.sync(t.Context(), "vol")
	require.NoError(t, err)
	h.ExpectWrites("update volumes/vol/status")
	h.CatchUp()
	v, err = store.Volumes.Get("vol")
	require.NoError(t, err)
	assert.Equal(t, longhorn.KubernetesStatus{
		PVName: "pv", PVStatus: "Bound", Namespace: "default", PVCName: "data", LastPodRefAt: at,
		WorkloadsStatus: []longhorn.WorkloadStatus{{PodName: "db-0", PodStatus: "Running", WorkloadName: "db", WorkloadType: "StatefulSet"}},
	}, v.Status.KubernetesStatus)
}

func TestPodsThatCannotBeReadAreListedAgain(t *testing.T) {
	h, c, _ := begin(t, volume(longhorn.VolumeStateAttached, longhorn.KubernetesStatus{}, types.Timestamp(testutil.Now.Add(-time.Hour))), pod("db-0", "data"))
	away := errors.New("away")
	h.Fail("list", "pods", away)
	_, err := c.sync(t.Context(), "vol")
	require.ErrorIs(t, err, away)
	h.ExpectWrites()
	_, err = c.sync(t.Context(), "vol")
	require.NoError(t, err)
	h.ExpectWrites("update volumes/vol/status")
}

func TestAVolumeThatIsGoneNeedsNothing(t *testing.T) {
	h, c, _ := begin(t, volume(longhorn.VolumeStateDetached, longhorn.KubernetesStatus{}, ""))
	_, err := c.sync(t.Context(), "other")
	require.NoError(t, err)
	h.ExpectWrites()
	assert.Equal(t, []string{"vol"}, volumeOf(pv("Bound", "data")))
	assert.Nil(t, volumeOf(&corev1.PersistentVolume{}))
}
