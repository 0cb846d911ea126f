package node

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

func TestANodeIsRegisteredAfterTheConfigMapWasApplied(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"), build.Setting(settings.DefaultDataPath, "/var/lib/longhorn"),
		build.ConfigMap("longhorn-default-setting", "default-setting.yaml", "default-data-path: /data\nstorage-reserved-percentage-for-default-disk: 200\n"))
	f.disks.records["/data"] = found(withoutFile)

	f.mustSync()
	f.ExpectWrites()

	cm, err := f.store.DefaultSettings.Live(t.Context(), "longhorn-default-setting")
	require.NoError(t, err)
	f.Overwrite(build.Setting(settings.DefaultDataPath, "/data", func(s *longhorn.Setting) {
		s.Annotations = map[string]string{"longhorn.io/configmap-resource-version": cm.ResourceVersion}
	}))
	f.CatchUp()
	f.mustSync()
	f.ExpectWrites("create nodes/node-1")
	for _, d := range f.live().Spec.Disks {
		assert.Equal(t, "/data", d.Path)
	}
	assert.Len(t, f.live().Spec.Disks, 1)
}

func TestANodeDoesNotWaitForSettingsThatDoNotConcernIt(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"), build.ConfigMap("longhorn-default-setting", "default-setting.yaml", "default-replica-count: 2\n"))
	f.mustSync()
	f.ExpectWrites("create nodes/node-1")
}

func TestANodeIsNotRegisteredWhileTheConfigMapCannotBeRead(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"))
	f.Fail("get", "configmaps", errors.New("timeout"))
	_, err := f.sync(t.Context(), "node-1")
	require.ErrorContains(t, err, "read the default settings for the registration of the node")
	f.ExpectWrites()
	f.mustSync()
	f.ExpectWrites("create nodes/node-1")
}
