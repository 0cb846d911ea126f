package csidriver

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func driver(capacity *bool) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: types.DriverName, Labels: map[string]string{"a": "b"}},
		Spec:       storagev1.CSIDriverSpec{StorageCapacity: capacity, PodInfoOnMount: new(true)},
	}
}

func start(t *testing.T, objs ...runtime.Object) (*testutil.Harness, *Controller) {
	t.Helper()
	h := testutil.New(t, objs...)
	d := h.Datastore(datastore.Options{})
	c, err := New(Deps{Env: h.Env(), Drivers: d.CSIDrivers, Settings: d.Settings, Setting: d.Setting})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	return h, c
}

func TestTheDriverSaysWhatTheSettingSays(t *testing.T) {
	for _, c := range []struct {
		name, setting string
		is            *bool
		want          bool
		writes        []string
	}{
		{"off, and was never on → left alone", "false", nil, false, nil},
		{"off, and is off → left alone", "false", new(false), false, nil},
		{"on, and was never on → on", "true", nil, true, []string{"update csidrivers/driver.longhorn.io"}},
		{"on, and is on → left alone", "true", new(true), true, nil},
		{"off, and is on → off", "false", new(true), false, []string{"update csidrivers/driver.longhorn.io"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, controller := start(t, build.Setting(settings.CSIStorageCapacityTracking, c.setting), driver(c.is))
			r, err := controller.sync(t.Context(), types.DriverName)
			require.NoError(t, err)
			h.ExpectWrites(c.writes...)
			got, err := h.Kube.StorageV1().CSIDrivers().Get(t.Context(), types.DriverName, metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, c.want, got.Spec.StorageCapacity != nil && *got.Spec.StorageCapacity)
			assert.True(t, *got.Spec.PodInfoOnMount, "another field was changed")
			assert.Equal(t, c.want, r.RequeueAfter > 0, "the object is looked at again while it matters")
		})
	}
}

func TestWithoutADriverThereIsNothingToDo(t *testing.T) {
	h, c := start(t, build.Setting(settings.CSIStorageCapacityTracking, "true"))
	r, err := c.sync(t.Context(), types.DriverName)
	require.NoError(t, err)
	assert.Equal(t, again, r.RequeueAfter, "the manifests may make it later")
	h.ExpectWrites()
	h.Seed(driver(nil))
	h.Fail("update", "csidrivers", errors.New("timeout"))
	_, err = c.sync(t.Context(), types.DriverName)
	require.ErrorContains(t, err, "storageCapacity of CSIDriver driver.longhorn.io")
}
