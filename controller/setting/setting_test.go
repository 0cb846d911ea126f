package setting

import (
	"errors"
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
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStatus(t *testing.T) {
	cases := []struct {
		name        string
		setting     settings.Name
		value, last string
		status      longhorn.ConditionStatus
		reason      string
		inForce     string
		message     string
	}{
		{"number in bounds → in force", "default-replica-count", "2", "4", "True", "", "2", "the value 2 is in force"},
		{
			"number out of bounds, none before → the default", "default-replica-count", "21", "", "False", "InvalidValue", "3",
			`setting default-replica-count with invalid value "21": it should be less than or equal to 20; the value 3 stays in force`,
		},
		{
			"no number after a valid one → the one before", "default-replica-count", "two", "4", "False", "InvalidValue", "4",
			`setting default-replica-count with invalid value "two": it is not a whole number; the value 4 stays in force`,
		},
		{
			"neither true nor false → the one before", "replica-soft-anti-affinity", "yes", "true", "False", "InvalidValue", "true",
			`setting replica-soft-anti-affinity with invalid value "yes": it is neither true nor false; the value true stays in force`,
		},
		{"empty → the default, validly", "default-data-path", "", "/mnt/a", "True", "", "/var/lib/longhorn", "the value /var/lib/longhorn is in force"},
		{
			"unknown name → left alone with what another release said of it", "no-such-setting", "1", "0", "False", "UnknownName", "0",
			"this release does not know setting no-such-setting and ignores it",
		},
		{
			"nothing acts on it yet → valid and not applied", "csi-allowed-topology-keys", "zone", "", "True", "NoEffectYet", "zone",
			"the value zone is valid, but this release does not act on the setting yet",
		},
		{
			"a directory of the system → the one before", "default-data-path", "/", "/mnt/a", "False", "InvalidValue", "/mnt/a",
			`setting default-data-path with invalid value "/": it is a directory of the system; give a disk a file system of its own, mounted for example at /mnt/disk1; the value /mnt/a stays in force`,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := statusOf(Input{
				Name: c.setting, Now: testutil.Now,
				Setting: build.Setting(c.setting, c.value, func(s *longhorn.Setting) { s.Status.ValueInForce = c.last }),
			})
			want := longhorn.SettingStatus{
				Applied: c.status == "True" && c.reason == "", ValueInForce: c.inForce,
				Conditions: []longhorn.Condition{{
					Type: "Valid", Status: c.status, LastTransitionTime: "2030-01-02T03:04:05Z", Reason: c.reason, Message: c.message,
				}},
			}
			assert.Equal(t, want, got)
		})
	}
}

// TestTheModeWithoutCredentialsIsACondition: the condition is absent if the mode was never on.
func TestTheModeWithoutCredentialsIsACondition(t *testing.T) {
	said := func(s *longhorn.Setting) longhorn.Condition {
		s.Status = statusOf(Input{Setting: s, Now: testutil.Now})
		return types.FindCondition(s.Status.Conditions, "TrustedNetwork")
	}
	s := build.Setting(settings.RESTTrustedNetwork, "false")
	assert.Equal(t, longhorn.ConditionUnknown, said(s).Status)
	s.Value = "true"
	assert.Equal(t, longhorn.Condition{
		Type: "TrustedNetwork", Status: "True", LastTransitionTime: "2030-01-02T03:04:05Z", Reason: "NoCredentialWanted",
		Message: "the REST API answers requests without a credential: any client that reaches its port can delete volumes",
	}, said(s))
	s.Value = "maybe" // refused: the last value stays in force
	assert.Equal(t, longhorn.ConditionTrue, said(s).Status)
	s.Value = "false"
	assert.Equal(t, longhorn.ConditionFalse, said(s).Status)
	s.Value = ""
	assert.Equal(t, longhorn.ConditionFalse, said(s).Status)
	assert.Equal(t, longhorn.ConditionUnknown, said(build.Setting("default-replica-count", "2")).Status)
}

func newController(t *testing.T, objs ...runtime.Object) (*testutil.Harness, *datastore.Datastore, *Controller) {
	h := testutil.New(t, objs...)
	d := h.Datastore(datastore.Options{})
	c, err := New(Deps{Namespace: types.Namespace, Settings: d.Settings, Defaults: d.DefaultSettings, Env: h.Env(), Pods: d.Pods, Classes: d.PriorityClasses})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	return h, d, c
}

func TestMissingSettingsAreMadeAndExistingOnesLeftAlone(t *testing.T) {
	h, d, c := newController(t, build.Setting(settings.DefaultReplicaCount, "2"))
	for _, name := range settings.All() {
		_, err := c.sync(t.Context(), key{setting: string(name)})
		require.NoError(t, err)
	}
	h.ExpectWrites(
		"create settings/allow-empty-disk-selector-volume", "create settings/allow-empty-node-selector-volume",
		"create settings/allow-volume-creation-with-degraded-availability", "create settings/auto-delete-pod-when-volume-detached-unexpectedly",
		"create settings/blacklist-for-auto-delete-pod-when-volume-detached-unexpectedly",
		"create settings/concurrent-replica-rebuild-per-node-limit",
		"create settings/create-default-disk-labeled-nodes", "create settings/csi-storage-capacity-tracking", "create settings/data-path-encryption",
		"create settings/default-data-locality", "create settings/default-data-path",
		"create settings/default-longhorn-static-storage-class",
		"update settings/default-replica-count/status",
		"create settings/deleting-confirmation-flag", "create settings/detach-manually-attached-volumes-when-cordoned",
		"create settings/disable-scheduling-on-cordoned-node", "create settings/guaranteed-instance-manager-cpu", "create settings/log-level", "create settings/manager-url", "create settings/node-down-pod-deletion-policy", "create settings/node-drain-policy",
		"create settings/priority-class",
		"create settings/replica-auto-balance",
		"create settings/replica-auto-balance-disk-pressure-percentage",
		"create settings/replica-disk-soft-anti-affinity",
		"create settings/replica-rebuilding-bandwidth-limit", "create settings/replica-replenishment-wait-interval",
		"create settings/replica-soft-anti-affinity", "create settings/replica-zone-soft-anti-affinity",
		"create settings/rest-trusted-network", "create settings/rwx-volume-allowed-clients", "create settings/rwx-volume-fast-failover",
		"create settings/snapshot-count-warning-threshold", "create settings/snapshot-max-count",
		"create settings/storage-minimal-available-percentage",
		"create settings/storage-over-provisioning-percentage",
		"create settings/storage-reserved-percentage-for-default-disk",
		"create settings/system-managed-components-node-selector", "create settings/taint-toleration")
	h.CatchUp()
	assert.Equal(t, "25", d.Setting(settings.MinimalAvailablePercentage))
	assert.Equal(t, "2", d.Setting(settings.DefaultReplicaCount))
	h.ExpectEvents()
}

func TestABadValueIsToldEachTimeAndItsCureOnce(t *testing.T) {
	h, d, c := newController(t, build.Setting(settings.DefaultReplicaCount, "x"))
	sync := func() {
		t.Helper()
		_, err := c.sync(t.Context(), key{setting: "default-replica-count"})
		require.NoError(t, err)
		h.CatchUp()
	}
	set := func(value string) {
		t.Helper()
		s, err := d.Settings.Get("default-replica-count")
		require.NoError(t, err)
		s.Value = value
		_, err = d.Settings.Update(t.Context(), s)
		require.NoError(t, err)
		h.CatchUp()
		h.Writes()
	}
	sync()
	h.ExpectWrites("update settings/default-replica-count/status")
	h.ExpectEvents(`Warning InvalidValue default-replica-count: setting default-replica-count with invalid value "x": it is not a whole number; the value 3 stays in force`)
	sync()
	h.ExpectWrites()
	set("0")
	sync()
	h.ExpectEvents(`Warning InvalidValue default-replica-count: setting default-replica-count with invalid value "0": it should be greater than or equal to 1; the value 3 stays in force`)
	set("1")
	sync()
	h.ExpectEvents("Normal Valid default-replica-count: the value 1 is in force")
	set("2")
	sync()
	h.ExpectEvents()
	h.ExpectWrites("update settings/default-replica-count/status")
	set("two")
	assert.Equal(t, "2", d.Setting("default-replica-count"))
	sync()
	h.ExpectEvents(`Warning InvalidValue default-replica-count: setting default-replica-count with invalid value "two": it is not a whole number; the value 2 stays in force`)
}

func TestALateCacheAndARefusedWriteAreTriedAgain(t *testing.T) {
	h, _, c := newController(t, build.Setting(settings.DefaultReplicaCount, "2"))
	h.Fail("update", "settings", errors.New("timeout"))
	_, err := c.sync(t.Context(), key{setting: "default-replica-count"})
	assert.Error(t, err)
	_, err = c.sync(t.Context(), key{setting: "default-replica-count"})
	assert.NoError(t, err)
	_, err = c.sync(t.Context(), key{setting: "default-replica-count"})
	assert.ErrorIs(t, err, queue.ErrStale)
	_, err = c.sync(t.Context(), key{setting: "default-data-path"})
	assert.NoError(t, err)
	_, err = c.sync(t.Context(), key{setting: "default-data-path"})
	assert.True(t, apierrors.IsAlreadyExists(err), "making it twice with a late cache = %v, want already exists", err)
	_, err = c.sync(t.Context(), key{setting: "no-such-setting"})
	assert.NoError(t, err)
}
