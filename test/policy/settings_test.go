package policy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

const settingValues = "longhorn-setting-values"

var settingsResource = schema.GroupVersionResource{Group: "longhorn.io", Version: "v1beta2", Resource: "settings"}

// settingOf returns a Setting with a value, which may contain any characters.
func settingOf(name, value string) string {
	return "{apiVersion: longhorn.io/v1beta2, kind: Setting, metadata: {name: " + name + ", namespace: storage}, value: " + strconv.Quote(value) + "}"
}

// leftToTheController are values that break a rule which the policy does not check. The controller checks it.
var leftToTheController = map[string][]string{
	"default-data-path":                       {"//etc", "/etc/../mnt/x"}, // paths that are not in their shortest form
	"rwx-volume-allowed-clients":              {"192.0.2.0/33", "a..b", "nodes, any", "; ;"},
	"system-managed-components-node-selector": {"key:v;key:w"}, // one label twice
}

// isLeft reports whether a value that breaks a rule may pass the policy.
func isLeft(setting, value string) bool {
	const digits = 18
	return slices.Contains(leftToTheController[setting], value) ||
		len(strings.TrimLeft(value, "+-0123456789")) == 0 && len(value) > digits ||
		strings.HasPrefix(value, "{") && !strings.HasPrefix(value, `{"v1":"`) || // not Longhorn's form of JSON
		value == `{"v1":""}` || value == `{"v1":"a\"b"}` ||
		strings.HasPrefix(value, "0x")
}

// TestThePolicyOfSettingsAgreesWithTheManager compares the policy with settings.Check. deploy/settings_test.go
// writes the samples, with the results of settings.Check.
func TestThePolicyOfSettingsAgreesWithTheManager(t *testing.T) {
	text, err := os.ReadFile("testdata/settings.json")
	require.NoError(t, err)
	p := policies(t)[settingValues]
	require.NotNil(t, p)
	validator := compile(t, p)
	settings, refused := map[string]bool{}, 0
	for line := range strings.Lines(string(text)) {
		var s struct{ Setting, Value, Rule string }
		require.NoError(t, json.Unmarshal([]byte(line), &s))
		settings[s.Setting] = true
		got := refusedBy(t, validator, settingOf(s.Setting, s.Value))
		what := fmt.Sprintf("setting %s, value %q", s.Setting, s.Value)
		switch {
		case s.Rule == "":
			assert.Empty(t, got, "%s: the manager takes it", what)
		case got == "":
			assert.True(t, isLeft(s.Setting, s.Value), "%s: the manager refuses it: it %s", what, s.Rule)
		default:
			refused++
			rule, ok := strings.CutPrefix(got, fmt.Sprintf("setting %s with invalid value %q: it ", s.Setting, s.Value))
			assert.True(t, ok, got)
			assert.True(t, strings.HasPrefix(s.Rule, rule), "%s: %q, and the manager: %q", what, rule, s.Rule)
		}
	}
	assert.Greater(t, len(settings), 40)
	assert.Greater(t, refused, 300)
}

// refusedBy returns the message with which a compiled policy refuses the creation of a setting.
func refusedBy(t *testing.T, validator validating.Validator, text string) string {
	t.Helper()
	o := object(t, text)
	versioned := &admission.VersionedAttributes{
		Attributes:    admission.NewAttributesRecord(o, nil, o.GroupVersionKind(), o.GetNamespace(), o.GetName(), settingsResource, "", admission.Create, nil, false, nobody{}),
		VersionedKind: o.GroupVersionKind(), VersionedObject: o,
	}
	result := validator.Validate(context.Background(), settingsResource, versioned, nil, &corev1.Namespace{}, celconfig.RuntimeCELCostBudget, rights{})
	for _, d := range result.Decisions {
		require.NotEqual(t, validating.EvalError, d.Evaluation, "%s: %s", text, d.Message)
		if d.Action == validating.ActionDeny {
			return d.Message
		}
	}
	return ""
}

// This is an ordinary user: none of the product's accounts.
type nobody struct{}

func (nobody) GetName() string               { return "person" }
func (nobody) GetUID() string                { return "" }
func (nobody) GetGroups() []string           { return nil }
func (nobody) GetExtra() map[string][]string { return nil }

func TestWhoseValuesOfSettingsAreChecked(t *testing.T) {
	const replicas, message = "default-replica-count", `setting default-replica-count with invalid value "99": it should be less than or equal to 20`
	for _, tc := range []struct {
		name        string
		old, object string
		user        string
		want        string
	}{
		{name: "a person creates one with a wrong value → refused", object: settingOf(replicas, "99"), want: message},
		{name: "a person changes it to a wrong value → refused", old: settingOf(replicas, "3"), object: settingOf(replicas, "99"), want: message},
		{name: "a person empties it → accepted, the default", old: settingOf(replicas, "3"), object: settingOf(replicas, "")},
		{name: "a person annotates one that has a wrong value → accepted", old: settingOf(replicas, "99"), object: settingOf(replicas, "99")},
		{name: "a person corrects it → accepted", old: settingOf(replicas, "99"), object: settingOf(replicas, "5")},
		{name: "a setting of another release → accepted", object: settingOf("setting-of-the-next-release", "whatever")},
		{name: "a daemon of a release with other rules → accepted", object: settingOf(replicas, "99"), user: "system:serviceaccount:storage:longhorn-manager"},
		{name: "a leader of a release with other rules → accepted", object: settingOf(replicas, "99"), user: "system:serviceaccount:storage:longhorn-manager-leader"},
		{name: "a daemon of another namespace → refused", object: settingOf(replicas, "99"), user: "system:serviceaccount:other:longhorn-manager", want: message},
	} {
		t.Run(tc.name, func(t *testing.T) {
			operation := admission.Create
			if tc.old != "" {
				operation = admission.Update
			}
			who := cmp.Or(tc.user, "kubernetes-admin")
			assert.Equal(t, tc.want, refusal(t, policies(t)[settingValues], request{
				operation: operation, resource: settingsResource, old: tc.old, object: tc.object, user: who,
			}))
		})
	}
}
