package setting

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestARefusedSettingIsAnEventOnce(t *testing.T) {
	const name = "default-replica-count"
	const words = `settings.longhorn.io default-replica-count: settings.longhorn.io "default-replica-count" is forbidden: denied by a policy`
	refused := apierrors.NewForbidden(schema.GroupResource{Group: "longhorn.io", Resource: "settings"}, name, errors.New("denied by a policy"))
	cm := build.ConfigMap(types.DefaultSettingsConfigMap, types.DefaultSettingsKey, name+": 2")

	t.Run("there is no object → of the ConfigMap", func(t *testing.T) {
		h, _, c := newController(t, cm)
		h.Fail("create", "settings", refused, refused)
		for range 2 {
			_, err := c.sync(t.Context(), key{setting: name})
			require.ErrorIs(t, err, refused)
		}
		h.ExpectEvents("Warning ChildRefused longhorn-default-setting: create " + words)
		_, err := c.sync(t.Context(), key{setting: name})
		require.NoError(t, err)
		h.ExpectEvents()
	})
	t.Run("there is one → of the setting", func(t *testing.T) {
		h, _, c := newController(t, cm, build.Setting(name, "3"))
		h.Fail("patch", "settings", refused)
		h.Fail("update", "settings", refused)
		_, err := c.sync(t.Context(), key{setting: name})
		require.ErrorIs(t, err, refused)
		h.ExpectEvents("Warning ChildRefused default-replica-count: update " + words)
	})
}
