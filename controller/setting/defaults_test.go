package setting

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestPlan(t *testing.T) {
	annotations := func(version string) map[string]string {
		return map[string]string{"longhorn.io/configmap-resource-version": version}
	}
	object := func(name, value string, annotations map[string]string) *longhorn.Setting {
		return &longhorn.Setting{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Value: value}
	}
	defaults := settings.DefaultSettings{Version: "7", Values: map[settings.Name]string{"default-replica-count": "2", "engine-replica-timeout": "9"}}
	for _, tc := range []struct {
		name    string
		setting settings.Name
		object  *longhorn.Setting
		want    Plan
	}{
		{"no object, nothing given → made with the default", "default-data-path", nil, Plan{Create: object("default-data-path", "/var/lib/longhorn", nil)}},
		{"no object, a value given → made with that value", "default-replica-count", nil, Plan{Create: object("default-replica-count", "2", annotations("7"))}},
		{"no object, nothing acts on it → not made", "csi-allowed-topology-keys", nil, Plan{}},
		{"no object, nothing acts on it, a value given → made, so that the value is not lost", "engine-replica-timeout", nil, Plan{Create: object("engine-replica-timeout", "9", annotations("7"))}},
		{"no object, it is told by REST → not made", "current-longhorn-version", nil, Plan{}},
		{"no object of an unknown name → not made", "no-such-setting", nil, Plan{}},
		{
			"a value that an older version gave → given anew, whatever the user made of it", "default-replica-count",
			object("default-replica-count", "5", annotations("6")),
			Plan{Update: object("default-replica-count", "2", annotations("7"))},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, plan(Input{Name: tc.setting, Setting: tc.object, Defaults: defaults, Now: testutil.Now}))
		})
	}
	t.Run("the user changed what this version gave → stays", func(t *testing.T) {
		p := plan(Input{Name: "default-replica-count", Setting: object("default-replica-count", "5", annotations("7")), Defaults: defaults})
		require.NotNil(t, p.Status)
		assert.Nil(t, p.Update)
		assert.Equal(t, "5", p.Status.ValueInForce)
	})
}

// syncAll syncs until the controller writes nothing.
func syncAll(t *testing.T, h *testutil.Harness, c *Controller, names ...string) {
	t.Helper()
	for range 3 {
		for _, name := range names {
			_, err := c.sync(t.Context(), key{setting: name})
			require.NoError(t, err)
			h.CatchUp()
		}
	}
	_, err := c.sync(t.Context(), key{configMap: true})
	require.NoError(t, err)
}

// setDefaults changes the text of the ConfigMap.
func setDefaults(t *testing.T, h *testutil.Harness, text string) {
	t.Helper()
	h.Overwrite(build.ConfigMap("longhorn-default-setting", "default-setting.yaml", text))
	h.CatchUp()
}

func valueOf(t *testing.T, d *datastore.Datastore, name string) string {
	t.Helper()
	s, err := d.Settings.GetRO(name)
	require.NoError(t, err)
	return s.Value
}

func TestTheConfigMapIsAppliedOnceAndAgainWhenItChanges(t *testing.T) {
	const count, path = "default-replica-count", "default-data-path"
	h, d, c := newController(t, build.Setting(path, "/mnt/user"), build.ConfigMap("longhorn-default-setting", "default-setting.yaml", count+": 2\n"))
	syncAll(t, h, c, count, path)
	h.ExpectWrites("create settings/default-replica-count", "update settings/default-data-path/status", "update settings/default-replica-count/status")
	assert.Equal(t, int64(2), settings.Values(d.Setting).Int(count))
	syncAll(t, h, c, count, path)
	h.ExpectWrites()

	s, err := d.Settings.Get(count)
	require.NoError(t, err)
	s.Value = "5" // a user sets it
	h.Overwrite(s)
	h.CatchUp()
	syncAll(t, h, c, count, path)
	assert.Equal(t, "5", valueOf(t, d, count))

	setDefaults(t, h, count+": 4\n"+path+": /mnt/both\n")
	syncAll(t, h, c, count, path)
	assert.Equal(t, "4", valueOf(t, d, count))
	assert.Equal(t, "/mnt/both", valueOf(t, d, path))

	setDefaults(t, h, path+": /mnt/both\n")
	syncAll(t, h, c, count, path)
	assert.Equal(t, "4", valueOf(t, d, count), "a setting that the ConfigMap does not name any more keeps its value")
	h.ExpectEvents()
}

func TestProblemsOfTheConfigMapAreToldOnceAndTheRestIsApplied(t *testing.T) {
	const count = "default-replica-count"
	h, d, c := newController(t, build.ConfigMap("longhorn-default-setting", "default-setting.yaml", count+": 2\nlog-level: loud\nnix: 1\n"))
	syncAll(t, h, c, count, "log-level", "nix")
	h.ExpectWrites("create settings/default-replica-count", "create settings/log-level", "update settings/default-replica-count/status", "update settings/log-level/status")
	assert.Equal(t, "Info", valueOf(t, d, "log-level"), "a setting whose value is refused gets its default")
	h.ExpectEvents(
		`Warning DefaultSettingInvalid longhorn-default-setting: setting log-level with invalid value "loud": it must be one of Panic, Fatal, Error, Warn, Info, Debug, Trace`,
		`Warning DefaultSettingInvalid longhorn-default-setting: setting "nix" does not exist`)
	syncAll(t, h, c, count)
	h.ExpectEvents()

	setDefaults(t, h, count+": 5\nnix: [\n")
	syncAll(t, h, c, count)
	assert.Equal(t, "2", valueOf(t, d, count), "of a text that is no YAML nothing is applied, and what was applied stays")
	events := h.Recorder.Take()
	require.Len(t, events, 1)
	assert.Contains(t, events[0], "Warning DefaultSettingInvalid longhorn-default-setting: key default-setting.yaml is not a YAML map")

	require.NoError(t, h.Kube.CoreV1().ConfigMaps(types.Namespace).Delete(t.Context(), "longhorn-default-setting", metav1.DeleteOptions{}))
	h.CatchUp()
	syncAll(t, h, c, count)
	assert.Equal(t, "2", valueOf(t, d, count))
	h.ExpectEvents()
}

func TestAWriteFromTheConfigMapThatFailsIsTriedAgain(t *testing.T) {
	const count = "default-replica-count"
	h, d, c := newController(t, build.Setting(count, "3"), build.ConfigMap("longhorn-default-setting", "default-setting.yaml", count+": 2\n"))
	h.Fail("update", "settings", errors.New("timeout"), errors.New("timeout"))
	for range 2 {
		_, err := c.sync(t.Context(), key{setting: count})
		require.Error(t, err)
	}
	syncAll(t, h, c, count)
	assert.Equal(t, "2", valueOf(t, d, count))
}

func TestASettingOfAnotherReleaseIsLeftAlone(t *testing.T) {
	h, d, c := newController(t, build.Setting("a-setting-of-next-year", "7", func(s *longhorn.Setting) { s.Status.ValueInForce = "6" }))
	syncAll(t, h, c, "a-setting-of-next-year")
	h.ExpectWrites("update settings/a-setting-of-next-year/status")
	s, err := d.Settings.GetRO("a-setting-of-next-year")
	require.NoError(t, err)
	assert.Equal(t, "7", s.Value)
	assert.Equal(t, "6", s.Status.ValueInForce)
	assert.False(t, s.Status.Applied)
	assert.Equal(t, "UnknownName", types.FindCondition(s.Status.Conditions, "Valid").Reason)
	h.ExpectEvents("Warning UnknownName a-setting-of-next-year: this release does not know setting a-setting-of-next-year and ignores it")
}

// TestTheQueueTellsSettingsAndTheConfigMapApart: a setting may have the ConfigMap's name.
func TestTheQueueTellsSettingsAndTheConfigMapApart(t *testing.T) {
	assert.Equal(t, "ConfigMap longhorn-default-setting", key{configMap: true}.String())
	assert.Equal(t, "longhorn-default-setting", key{setting: "longhorn-default-setting"}.String())
	assert.Len(t, allKeys(), 1+len(settings.All()))
}
