package setting

import (
	"errors"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/equality"
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

func TestPlan(t *testing.T) {
	cases := []struct {
		name    string
		setting types.SettingName
		value   string
		status  longhorn.ConditionStatus
		reason  string
		message string
	}{
		{"number in bounds → in force", "default-replica-count", "2", "True", "", "the value 2 is in force"},
		{
			"number out of bounds → the default", "default-replica-count", "21", "False", "InvalidValue",
			`setting default-replica-count: value "21" is more than 20; the default 3 is in force`,
		},
		{
			"no number → the default", "default-replica-count", "two", "False", "InvalidValue",
			`setting default-replica-count: value "two" is not a whole number; the default 3 is in force`,
		},
		{
			"neither true nor false → the default", "replica-soft-anti-affinity", "yes", "False", "InvalidValue",
			`setting replica-soft-anti-affinity: value "yes" is neither true nor false; the default false is in force`,
		},
		{
			"root directory → the default", "default-data-path", "/", "False", "InvalidValue",
			`setting default-data-path: value "/" is not an absolute path below the root directory; the default /var/lib/longhorn is in force`,
		},
		{"empty → the default, validly", "default-data-path", "", "True", "", "the value /var/lib/longhorn is in force"},
		{
			"unknown name → nobody reads it", "no-such-setting", "1", "False", "UnknownName",
			"there is no setting no-such-setting; nobody reads this value",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := plan(build.Setting(c.setting, c.value), testutil.Now)
			want := longhorn.SettingStatus{
				Applied: c.status == "True",
				Conditions: []longhorn.Condition{{
					Type: "Valid", Status: c.status, LastTransitionTime: "2030-01-02T03:04:05Z", Reason: c.reason, Message: c.message,
				}},
			}
			if !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func newController(t *testing.T, objs ...runtime.Object) (*testutil.Harness, *datastore.Datastore, *Controller) {
	h := testutil.New(t, objs...)
	d := h.Datastore(datastore.Options{})
	c, err := New(Deps{Namespace: types.Namespace, Settings: d.Settings, Env: h.Env()})
	if err != nil {
		t.Fatal(err)
	}
	h.EndWithTest(c.Run)
	return h, d, c
}

func TestMissingSettingsAreMadeAndExistingOnesLeftAlone(t *testing.T) {
	h, d, c := newController(t, build.Setting(types.SettingDefaultReplicaCount, "2"))
	for _, name := range types.Settings() {
		if _, err := c.sync(t.Context(), string(name)); err != nil {
			t.Fatal(err)
		}
	}
	h.ExpectWrites(
		"create settings/create-default-disk-labeled-nodes", "create settings/default-data-path",
		"update settings/default-replica-count/status",
		"create settings/replica-rebuilding-bandwidth-limit", "create settings/replica-replenishment-wait-interval",
		"create settings/replica-soft-anti-affinity",
		"create settings/storage-minimal-available-percentage",
		"create settings/storage-over-provisioning-percentage",
		"create settings/storage-reserved-percentage-for-default-disk")
	h.CatchUp()
	if got := d.Setting(types.SettingMinimalAvailablePercentage); got != "25" {
		t.Errorf("made with value %q", got)
	}
	if got := d.Setting(types.SettingDefaultReplicaCount); got != "2" {
		t.Errorf("the user's value became %q", got)
	}
	h.ExpectEvents()
}

func TestABadValueIsToldEachTimeAndItsCureOnce(t *testing.T) {
	h, d, c := newController(t, build.Setting(types.SettingDefaultReplicaCount, "x"))
	sync := func() {
		t.Helper()
		if _, err := c.sync(t.Context(), "default-replica-count"); err != nil {
			t.Fatal(err)
		}
		h.CatchUp()
	}
	set := func(value string) {
		t.Helper()
		s, err := d.Settings.Get("default-replica-count")
		if err != nil {
			t.Fatal(err)
		}
		s.Value = value
		if _, err := d.Settings.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		h.CatchUp()
		h.Writes()
	}
	sync()
	h.ExpectWrites("update settings/default-replica-count/status")
	h.ExpectEvents(`Warning Valid default-replica-count: setting default-replica-count: value "x" is not a whole number; the default 3 is in force`)
	sync()
	h.ExpectWrites()
	set("0")
	sync()
	h.ExpectEvents(`Warning Valid default-replica-count: setting default-replica-count: value "0" is less than 1; the default 3 is in force`)
	set("1")
	sync()
	h.ExpectEvents("Normal Valid default-replica-count: the value 1 is in force")
	set("2")
	sync()
	h.ExpectEvents()
	h.ExpectWrites("update settings/default-replica-count/status")
}

func TestALateCacheAndARefusedWriteAreTriedAgain(t *testing.T) {
	h, _, c := newController(t, build.Setting(types.SettingDefaultReplicaCount, "2"))
	h.Fail("update", "settings", errors.New("timeout"))
	if _, err := c.sync(t.Context(), "default-replica-count"); err == nil {
		t.Error("no error")
	}
	if _, err := c.sync(t.Context(), "default-replica-count"); err != nil {
		t.Error(err)
	}
	if _, err := c.sync(t.Context(), "default-replica-count"); !errors.Is(err, queue.ErrStale) {
		t.Errorf("sync with a late cache = %v, want ErrStale", err)
	}
	if _, err := c.sync(t.Context(), "default-data-path"); err != nil {
		t.Error(err)
	}
	if _, err := c.sync(t.Context(), "default-data-path"); !apierrors.IsAlreadyExists(err) {
		t.Errorf("making it twice with a late cache = %v, want already exists", err)
	}
	if _, err := c.sync(t.Context(), "no-such-setting"); err != nil {
		t.Errorf("an unknown setting that is gone = %v", err)
	}
}
