package setting

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func configMap(t *testing.T, h *testutil.Harness, name string) *corev1.ConfigMap {
	t.Helper()
	cm, err := h.Kube.CoreV1().ConfigMaps(types.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return cm
}

func TestMissingConfigMapsAreCreatedEmpty(t *testing.T) {
	h, d, c := newController(t)
	c.deps.ConfigMaps = d.DefaultSettings
	again, err := c.sync(t.Context(), key{configMap: true})
	require.NoError(t, err)
	assert.Equal(t, configMapsAgain, again.RequeueAfter)
	for name, data := range map[string]map[string]string{
		"longhorn-default-setting": {"default-setting.yaml": ""}, "longhorn-default-resource": {"default-resource.yaml": ""},
	} {
		cm := configMap(t, h, name)
		assert.Equal(t, data, cm.Data)
		assert.Equal(t, map[string]string{"longhorn.io/installation": "lep"}, cm.Labels)
	}
	h.ExpectWrites("create configmaps/longhorn-default-setting", "create configmaps/longhorn-default-resource")
	h.CatchUp()
	_, err = c.sync(t.Context(), key{configMap: true})
	require.NoError(t, err)
	h.ExpectWrites()
	h.ExpectEvents()
}

// An operator may create either ConfigMap before the leader reads it, or between that read and the leader's create.
func TestAnOperatorsConfigMapStaysAsItIs(t *testing.T) {
	setting := build.ConfigMap("longhorn-default-setting", "default-setting.yaml", "default-replica-count: 2\n")
	resource := build.ConfigMap("longhorn-default-resource", "default-resource.yaml", "\"backup-target\": \"\"\n")
	t.Run("they exist → nothing is written", func(t *testing.T) {
		h, d, c := newController(t, setting, resource)
		c.deps.ConfigMaps = d.DefaultSettings
		_, err := c.sync(t.Context(), key{configMap: true})
		require.NoError(t, err)
		h.ExpectWrites()
		h.ExpectEvents()
	})
	t.Run("the cache is late → the create is refused and nothing changes", func(t *testing.T) {
		h, d, c := newController(t)
		c.deps.ConfigMaps = d.DefaultSettings
		h.Seed(setting.DeepCopy(), resource.DeepCopy())
		_, err := c.keepConfigMaps(t.Context(), nil)
		require.NoError(t, err)
		assert.Equal(t, setting.Data, configMap(t, h, "longhorn-default-setting").Data)
		assert.Equal(t, resource.Data, configMap(t, h, "longhorn-default-resource").Data)
	})
}

func TestABackupTargetIsToldToHaveNoEffectOnce(t *testing.T) {
	h, d, c := newController(t, build.ConfigMap("longhorn-default-setting", "default-setting.yaml", ""),
		build.ConfigMap("longhorn-default-resource", "default-resource.yaml", "backup-target: s3://bucket@region/\n"))
	c.deps.ConfigMaps = d.DefaultSettings
	for range 2 {
		_, err := c.sync(t.Context(), key{configMap: true})
		require.NoError(t, err)
	}
	h.ExpectEvents(`Warning DefaultSettingInvalid longhorn-default-resource: backup-target with value "s3://bucket@region/" has no effect: backups are not offered`)
}

func TestManifestsOfAnEarlierReleaseDoNotLetTheResourceBeRead(t *testing.T) {
	h, d, c := newController(t, build.ConfigMap("longhorn-default-setting", "default-setting.yaml", ""))
	c.deps.ConfigMaps = d.DefaultSettings
	h.Fail("get", "configmaps", apierrors.NewForbidden(corev1.Resource("configmaps"), "longhorn-default-resource", nil))
	again, err := c.sync(t.Context(), key{configMap: true})
	require.NoError(t, err)
	assert.Zero(t, again.RequeueAfter)
	h.ExpectWrites()
}

func TestARefusedConfigMapIsAnEventOnce(t *testing.T) {
	h, d, c := newController(t)
	c.deps.ConfigMaps = d.DefaultSettings
	refused := apierrors.NewForbidden(corev1.Resource("configmaps"), "longhorn-default-setting", errors.New("exceeded quota"))
	h.Fail("create", "configmaps", refused, refused)
	for range 2 {
		_, err := c.sync(t.Context(), key{configMap: true})
		require.ErrorIs(t, err, refused)
	}
	h.ExpectEvents(`Warning ChildRefused longhorn-default-setting: create configmaps longhorn-default-setting: configmaps "longhorn-default-setting" is forbidden: exceeded quota`)
	_, err := c.sync(t.Context(), key{configMap: true})
	require.NoError(t, err)
	h.ExpectEvents()
}
