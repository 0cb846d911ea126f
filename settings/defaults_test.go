package settings_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

func TestReadDefaultSettings(t *testing.T) {
	for _, tc := range []struct {
		name     string
		text     string
		values   map[settings.Name]string
		problems []string
	}{
		{name: "an empty text → nothing"},
		{
			name:   "texts, numbers and booleans → their text",
			text:   "default-data-path: /mnt/longhorn\ndefault-replica-count: 2\nreplica-soft-anti-affinity: true\nstorage-over-provisioning-percentage: \"1000000\"\n",
			values: map[settings.Name]string{"default-data-path": "/mnt/longhorn", "default-replica-count": "2", "replica-soft-anti-affinity": "true", "storage-over-provisioning-percentage": "1000000"},
		},
		{
			name:   "a large number → not rounded, not in powers of ten",
			text:   "storage-over-provisioning-percentage: 10000000\n",
			values: map[settings.Name]string{"storage-over-provisioning-percentage": "10000000"},
		},
		{
			name:   "Longhorn's form for each data engine → kept as it is",
			text:   `default-replica-count: "{\"v1\":\"2\"}"`,
			values: map[settings.Name]string{"default-replica-count": `{"v1":"2"}`},
		},
		{
			name: "nothing behind the name → not said; an empty text → the default", text: "default-data-path:\ndefault-replica-count: \"\"\n",
			values: map[settings.Name]string{"default-replica-count": ""},
		},
		{
			name:   "an unknown name, a bad value and a list → told, the rest is read",
			text:   "priority-clas: high\ndefault-replica-count: 21\ndefault-data-path: [/a]\nreplica-soft-anti-affinity: true\n",
			values: map[settings.Name]string{"replica-soft-anti-affinity": "true"},
			problems: []string{
				"setting default-data-path: the value must be a text, a number, true or false; put other YAML in quotes",
				`setting default-replica-count with invalid value "21": it should be less than or equal to 20`,
				`setting "priority-clas" does not exist`,
			},
		},
		{
			name: "a name given twice → none of it is applied, because the value is ambiguous", text: "default-replica-count: 2\ndefault-replica-count: 3\n",
			problems: []string{"key default-setting.yaml is not a YAML map of settings' names to values, none of it is applied: yaml: unmarshal errors:\n" +
				"  line 2: key \"default-replica-count\" already set in map"},
		},
		{
			name: "a list → none of it", text: "- default-replica-count\n",
			problems: []string{"key default-setting.yaml is not a YAML map of settings' names to values, none of it is applied: json: cannot unmarshal array into Go value of type map[string]interface {}"},
		},
		{
			name: "no YAML → none of it", text: "a: b: c",
			problems: []string{"key default-setting.yaml is not a YAML map of settings' names to values, none of it is applied: yaml: mapping values are not allowed in this context"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, problems := settings.ReadDefaultSettings(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}, Data: map[string]string{"default-setting.yaml": tc.text},
			})
			var texts []string
			for _, p := range problems {
				texts = append(texts, p.Error())
			}
			if tc.values == nil {
				tc.values = map[settings.Name]string{}
			}
			assert.Equal(t, settings.DefaultSettings{Version: "7", Values: tc.values}, got)
			assert.Equal(t, tc.problems, texts)
		})
	}
	none, problems := settings.ReadDefaultSettings(nil)
	assert.Empty(t, none.Values)
	assert.Empty(t, problems)
}

func TestPending(t *testing.T) {
	d := settings.DefaultSettings{Version: "7", Values: map[settings.Name]string{"default-replica-count": "2"}}
	given := func(version string) *longhorn.Setting {
		return &longhorn.Setting{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"longhorn.io/configmap-resource-version": version}}}
	}
	for _, tc := range []struct {
		name    string
		setting settings.Name
		object  *longhorn.Setting
		want    bool
	}{
		{"not made yet → waits", "default-replica-count", nil, true},
		{"never given a value → waits", "default-replica-count", &longhorn.Setting{}, true},
		{"given that of an older version → waits", "default-replica-count", given("6"), true},
		{"given that of this version → has it", "default-replica-count", given("7"), false},
		{"not in the ConfigMap → waits for nothing", "default-data-path", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, d.Pending(tc.setting, tc.object)) })
	}
}
