package settings_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

func TestEveryDefinitionIsComplete(t *testing.T) {
	names := settings.All()
	require.IsIncreasing(t, names)
	categories := []string{"general", "backup", "orphan", "scheduling", "snapshot", "system info", "danger Zone"}
	for _, name := range names {
		d, ok := settings.DefinitionOf(name)
		require.True(t, ok, name)
		assert.Equal(t, name, d.Name)
		assert.NoError(t, settings.Check(name, d.Default), "the default breaks the setting's own rules")
		assert.NotEmpty(t, d.DisplayName, name)
		assert.Regexp(t, `\.$`, d.Description, name)
		assert.Contains(t, categories, d.Category, name)
		assert.NotEmpty(t, d.Effect, name)
		assert.True(t, d.Type == settings.TypeInt || d.Type == settings.TypeFloat || d.Minimum == nil && d.Maximum == nil, "%s has bounds and is no number", name)
		assert.True(t, d.Type == settings.TypeString || d.Options == nil, "%s has options and is no text", name)
	}
}

func TestCheckSetting(t *testing.T) {
	for _, tc := range []struct {
		name    string
		setting settings.Name
		value   string
		want    string // the error; empty: valid
	}{
		{"a number in bounds → valid", "default-replica-count", "20", ""},
		{"above the bound → refused", "default-replica-count", "21", `setting default-replica-count with invalid value "21": it should be less than or equal to 20`},
		{"below the bound → refused", "default-replica-count", "0", `setting default-replica-count with invalid value "0": it should be greater than or equal to 1`},
		{"a fraction → refused", "default-replica-count", "2.5", `setting default-replica-count with invalid value "2.5": it is not a whole number`},
		{"a number for each engine → that of v1 is checked", "default-replica-count", `{"v1":"2","v2":"99"}`, ""},
		{"v1 of it out of bounds → refused", "default-replica-count", `{"v1":"21"}`, `setting default-replica-count with invalid value "{\"v1\":\"21\"}": it should be less than or equal to 20`},
		{"none for v1 → refused", "default-replica-count", `{"v2":"2"}`, `setting default-replica-count with invalid value "{\"v2\":\"2\"}": it has no value for the data engine v1`},
		{"torn JSON → refused", "default-replica-count", `{"v1"`, `setting default-replica-count with invalid value "{\"v1\"": it is not JSON with a text for each data engine, such as {"v1":"3"}`},
		{"JSON where engines do not differ → refused", "storage-minimal-available-percentage", `{"v1":"2"}`, `setting storage-minimal-available-percentage with invalid value "{\"v1\":\"2\"}": it is not a whole number`},
		{"true → valid", "replica-soft-anti-affinity", "true", ""},
		{"a URL with a port → valid", "manager-url", "https://lh.example:8443", ""},
		{"an address of IPv6 → valid", "manager-url", "http://[fd00::1]", ""},
		{"a URL with a path → refused", "manager-url", "https://lh.example/v1", `setting manager-url with invalid value "https://lh.example/v1": it must be http:// or https://, a host, and a port if it is not the usual one`},
		{"a URL of another kind → refused", "manager-url", "javascript:alert(1)", `setting manager-url with invalid value "javascript:alert(1)": it must be http:// or https://, a host, and a port if it is not the usual one`},
		{"what is read-only → refused", "current-longhorn-version", "v2", `setting current-longhorn-version with invalid value "v2": it cannot be set: the setting is read-only`},
		{"yes → refused", "replica-soft-anti-affinity", "yes", `setting replica-soft-anti-affinity with invalid value "yes": it is neither true nor false`},
		{"an option → valid", "node-drain-policy", "block-for-eviction", ""},
		{"no option → refused, with the options", "replica-auto-balance", "most", `setting replica-auto-balance with invalid value "most": it must be one of disabled, least-effort, best-effort`},
		{"an absolute path → valid", "default-data-path", "/mnt/a", ""},
		{"a relative path → refused", "default-data-path", "mnt/a", `setting default-data-path with invalid value "mnt/a": it must be an absolute path`},
		{"the root directory in disguise → refused", "default-data-path", "/a/..", `setting default-data-path with invalid value "/a/..": it is a directory of the system; give a disk a file system of its own, mounted for example at /mnt/disk1`},
		{"a part of the CPU → valid", "guaranteed-instance-manager-cpu", "12.5", ""},
		{"for each data engine → valid", "guaranteed-instance-manager-cpu", `{"v1":"2","v2":"2"}`, ""},
		{
			"too much of the CPU → refused", "guaranteed-instance-manager-cpu", "40.5",
			`setting guaranteed-instance-manager-cpu with invalid value "40.5": it should be less than or equal to 40`,
		},
		{
			"less than nothing of the CPU → refused", "guaranteed-instance-manager-cpu", "-0.1",
			`setting guaranteed-instance-manager-cpu with invalid value "-0.1": it should be greater than or equal to 0`,
		},
		{
			"no number → refused", "guaranteed-instance-manager-cpu", "NaN",
			`setting guaranteed-instance-manager-cpu with invalid value "NaN": it is not a number`,
		},
		{"tolerations → valid", "taint-toleration", "only=storage:NoSchedule; old:NoExecute;any;", ""},
		{
			"tolerations separated by commas → refused", "taint-toleration", "a=b:NoSchedule,c=d:NoSchedule",
			`setting taint-toleration with invalid value "a=b:NoSchedule,c=d:NoSchedule": it has the entry "a=b:NoSchedule,c=d:NoSchedule"; each entry must be key=value:Effect or key:Effect with an effect of NoSchedule, PreferNoSchedule or NoExecute, and entries are separated by semicolons; this one has the invalid effect "NoSchedule,c=d:NoSchedule"`,
		},
		{
			"a toleration of a key that no taint can have → refused", "taint-toleration", "a b=c:NoSchedule",
			`setting taint-toleration with invalid value "a b=c:NoSchedule": it has the entry "a b=c:NoSchedule"; each entry must be key=value:Effect or key:Effect with an effect of NoSchedule, PreferNoSchedule or NoExecute, and entries are separated by semicolons; this one has the invalid key "a b"`,
		},
		{
			"a toleration of a value that no taint can have → refused", "taint-toleration", "a=-:NoSchedule",
			`setting taint-toleration with invalid value "a=-:NoSchedule": it has the entry "a=-:NoSchedule"; each entry must be key=value:Effect or key:Effect with an effect of NoSchedule, PreferNoSchedule or NoExecute, and entries are separated by semicolons; this one has the invalid value "-"`,
		},
		{"labels of nodes → valid", "system-managed-components-node-selector", "disk:ssd;zone:a", ""},
		{
			"a label with = → refused", "system-managed-components-node-selector", "disk=ssd",
			`setting system-managed-components-node-selector with invalid value "disk=ssd": it has the entry "disk=ssd"; each entry must be key:value, a label of nodes, and entries are separated by semicolons`,
		},
		{
			"a label twice → refused", "system-managed-components-node-selector", "a:b;a:c",
			`setting system-managed-components-node-selector with invalid value "a:b;a:c": it has the label "a" twice`,
		},
		{"a class → valid", "priority-class", "system-cluster-critical", ""},
		{
			"no name of a class → refused", "priority-class", "High",
			`setting priority-class with invalid value "High": it is not the name of a PriorityClass: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
		},
		{"kinds of owners → valid", "blacklist-for-auto-delete-pod-when-volume-detached-unexpectedly", "apps/StatefulSet;apps/DaemonSet", ""},
		{
			"owners separated by commas → refused", "blacklist-for-auto-delete-pod-when-volume-detached-unexpectedly", "apps/StatefulSet,apps/DaemonSet",
			`setting blacklist-for-auto-delete-pod-when-volume-detached-unexpectedly with invalid value "apps/StatefulSet,apps/DaemonSet": it has the entry "apps/StatefulSet,apps/DaemonSet"; each entry must be GROUP/KIND, as apps/StatefulSet, and entries are separated by semicolons`,
		},
		{"empty → valid, the default", "default-data-path", "", ""},
		{"a directory of the system → refused", "default-data-path", "/etc", `setting default-data-path with invalid value "/etc": it is a directory of the system; give a disk a file system of its own, mounted for example at /mnt/disk1`},
		{"any client and others → refused", "rwx-volume-allowed-clients", "any,nodes", `setting rwx-volume-allowed-clients with invalid value "any,nodes": it must contain nothing else if it contains any`},
		{"networks of clients → valid", "rwx-volume-allowed-clients", "nodes,10.0.0.0/8", ""},
		{"an unknown name → refused", "nix", "1", `setting "nix" does not exist`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := settings.Check(tc.setting, tc.value)
			if tc.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.EqualError(t, err, tc.want)
		})
	}
}

func TestValueInForce(t *testing.T) {
	for _, tc := range []struct {
		name                 string
		setting, value, last string
		want                 string
	}{
		{"a valid value → it", "default-replica-count", "2", "4", "2"},
		{"a valid value for each engine → that of v1", "default-replica-count", `{"v1":"2","v2":"5"}`, "4", "2"},
		{"empty → the default, whatever was before", "default-replica-count", "", "4", "3"},
		{"invalid after a valid one → the last valid one", "default-replica-count", "x", "4", "4"},
		{"invalid from the beginning → the default", "default-replica-count", "x", "", "3"},
		{"invalid, and the last one breaks a rule of this release → the default", "default-replica-count", "x", "21", "3"},
		{"a name that this release does not know → nothing", "nix", "1", "1", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &longhorn.Setting{ObjectMeta: metav1.ObjectMeta{Name: tc.setting}, Value: tc.value, Status: longhorn.SettingStatus{ValueInForce: tc.last}}
			assert.Equal(t, tc.want, settings.ValueInForce(s))
		})
	}
}

func TestSettingValuesHaveTheirTypes(t *testing.T) {
	values := func(text string) settings.Values { return func(settings.Name) string { return text } }
	assert.Equal(t, int64(2), values("2").Int(settings.DefaultReplicaCount))
	assert.Equal(t, int64(2), values(`{"v1":"2"}`).Int(settings.DefaultReplicaCount))
	assert.Equal(t, int64(3), values("").Int(settings.DefaultReplicaCount), "missing → the default")
	assert.Equal(t, int64(3), values("many").Int(settings.DefaultReplicaCount), "invalid → the default")
	assert.True(t, values("true").Bool(settings.ReplicaSoftAntiAffinity))
	assert.False(t, values("").Bool(settings.ReplicaSoftAntiAffinity))
	assert.Equal(t, "/data", values("/data").Text(settings.DefaultDataPath))
	assert.PanicsWithValue(t, `BUG: setting default-data-path is read as int, and is "string"`, func() { values("1").Int(settings.DefaultDataPath) })
	assert.PanicsWithValue(t, `BUG: setting nix is read as bool, and is ""`, func() { values("1").Bool("nix") })
}

func TestPerEngineText(t *testing.T) {
	for _, tc := range []struct{ name, setting, value, want string }{
		{"a plain value → for both engines", "default-replica-count", "2", `{"v1":"2","v2":"2"}`},
		{"JSON → as it is", "default-replica-count", `{"v1":"2","v2":"5"}`, `{"v1":"2","v2":"5"}`},
		{"torn JSON → as it is", "default-replica-count", `{"v1"`, `{"v1"`},
		{"a value with quotes → JSON all the same", "default-replica-count", `"`, `{"v1":"\"","v2":"\""}`},
		{"not per engine → plain", "log-level", "Debug", "Debug"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, ok := settings.DefinitionOf(settings.Name(tc.setting))
			require.True(t, ok)
			assert.Equal(t, tc.want, d.PerEngineText(tc.value))
		})
	}
}
