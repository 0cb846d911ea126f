package deploy

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

var update = flag.Bool("update", false, "write what is made of the registry of settings instead of comparing it")

// made is the command that writes the files of this test.
const made = "go test ./deploy -run TestWhatIsMadeOfTheRegistry -update"

const (
	policyFile  = "chart/templates/74-policy-settings.yaml"
	schemaFile  = "chart/values.schema.json"
	samplesFile = "../test/policy/testdata/settings.json"
)

// TestWhatIsMadeOfTheRegistry checks that three files agree with the registry of settings: the admission policy, the
// chart's schema, and the samples. With the samples, test/policy compares the policy with settings.Check.
func TestWhatIsMadeOfTheRegistry(t *testing.T) {
	schema, err := os.ReadFile(schemaFile)
	require.NoError(t, err)
	written, _, found := strings.Cut(string(schema), schemaBegin)
	require.True(t, found, "%s has no line %q", schemaFile, schemaBegin)
	for file, want := range map[string]string{
		policyFile:  settingsPolicy(),
		schemaFile:  written + schemaBegin + settingsSchema(t),
		samplesFile: samples(t),
	} {
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, want, string(text), "%s: run: %s, then scripts/manifests.sh", file, made)
	}
}

// registry returns the definitions of all settings, sorted by name.
func registry() []settings.Definition {
	var all []settings.Definition
	for _, name := range settings.All() {
		if name == settingOfTests {
			continue
		}
		d, _ := settings.DefinitionOf(name)
		all = append(all, d)
	}
	return all
}

// settingOfTests exists only with the build tag next.
const settingOfTests = "setting-of-the-next-release"

// settingsPolicy returns the admission policy. It has the rules of settings.Check as far as CEL can express them,
// in the same order and with the same texts.
func settingsPolicy() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Made of the registry of settings (package types) by: %s
#
# A value that breaks a rule of its setting is refused, in the words in which REST and the ConfigMap's Event say it. An empty
# value means the default. A setting that is not listed here is left alone: another release may know it. So are the daemons,
# which check values themselves: one of another release may have other rules. What CEL cannot say, the condition Valid does:
# the entries of a list one with another, a path that is not in its shortest form, JSON that is not as Longhorn writes it, numbers of more
# than 18 digits.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: longhorn-setting-values
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [longhorn.io]
        apiVersions: [v1beta2]
        operations: [CREATE, UPDATE]
        resources: [settings]
  matchConditions:
    - name: not-by-the-manager
      expression: >-
        !(request.userInfo.username in ['longhorn-manager', 'longhorn-manager-leader'].map(name,
          'system:serviceaccount:' + request.namespace + ':' + name))
    - name: value-is-new
      expression: >-
        oldObject == null || (has(oldObject.value) ? oldObject.value : '') != (has(object.value) ? object.value : '')
  variables:
    - name: name
      expression: object.metadata.name
    - name: value
      expression: "has(object.value) ? object.value : ''"
`, made)
	list := func(name string, of func(settings.Definition) (string, bool)) {
		fmt.Fprintf(&b, "    - name: %s\n      expression: >-\n        {\n", name)
		var entries []string
		for _, d := range registry() {
			if text, has := of(d); has {
				entries = append(entries, fmt.Sprintf("          '%s': %s", d.Name, text))
			}
		}
		fmt.Fprintf(&b, "%s\n        }\n", strings.Join(entries, ",\n"))
	}
	ofType := func(kind settings.Type) func(settings.Definition) (string, bool) {
		return func(d settings.Definition) (string, bool) { return "true", d.Type == kind }
	}
	bound := func(n func(settings.Definition) *int64) func(settings.Definition) (string, bool) {
		return func(d settings.Definition) (string, bool) {
			if limit := n(d); limit != nil {
				return strconv.FormatInt(*limit, 10), true
			}
			return "", false
		}
	}
	list("perEngine", func(d settings.Definition) (string, bool) { return "true", d.PerEngine })
	list("readOnly", func(d settings.Definition) (string, bool) { return celText(d.Default), d.ReadOnly })
	list("options", func(d settings.Definition) (string, bool) {
		return "['" + strings.Join(d.Options, "', '") + "']", len(d.Options) > 0
	})
	list("whole", ofType(settings.TypeInt))
	list("number", ofType(settings.TypeFloat))
	list("flag", ofType(settings.TypeBool))
	list("least", bound(func(d settings.Definition) *int64 { return d.Minimum }))
	list("most", bound(func(d settings.Definition) *int64 { return d.Maximum }))
	list("pattern", func(d settings.Definition) (string, bool) { return celText(d.Pattern), d.Pattern != "" })
	list("patternSays", func(d settings.Definition) (string, bool) { return celText(d.PatternSays), d.Pattern != "" })
	list("never", func(d settings.Definition) (string, bool) { return celText(d.Never), d.Never != "" })
	list("neverSays", func(d settings.Definition) (string, bool) { return celText(d.NeverSays), d.Never != "" })
	entries := func(text func(types.EntryRule) string) func(settings.Definition) (string, bool) {
		return func(d settings.Definition) (string, bool) {
			if d.Entries == nil {
				return "", false
			}
			return text(*d.Entries), true
		}
	}
	list("separator", entries(func(e types.EntryRule) string { return celText(e.Separator) }))
	list("entry", entries(func(e types.EntryRule) string { return celText(e.Pattern) }))
	list("entrySays", entries(func(e types.EntryRule) string { return celQuoted(e.Says) }))
	b.WriteString(`    # plain is the value for the data engine v1, where it is written as Longhorn does: {"v1":"3","v2":"3"}.
    - name: isEngines
      expression: >-
        variables.name in variables.perEngine && variables.value.startsWith('{')
    - name: plain
      expression: >-
        !variables.isEngines ? variables.value
        : variables.value.matches(r'^[{]"v1":"[^"\\]+"(,"v[2-9]":"[^"\\]*")*[}]$') ? variables.value.split('"')[3] : ''
    # strays are the invalid entries of a list.
    - name: strays
      expression: >-
        variables.name in variables.entry ?
          variables.plain.split(variables.separator[variables.name]).map(e, e.trim()).filter(e, e != '' && !e.matches(variables.entry[variables.name]))
        : []
    - name: wrong
      expression: >-
        variables.plain == '' ? ''
        : variables.name in variables.readOnly ?
          (variables.plain == variables.readOnly[variables.name] ? '' : 'cannot be set: the setting is read-only')
        : variables.name in variables.options ?
          (variables.plain in variables.options[variables.name] ? '' : 'must be one of ' + variables.options[variables.name].join(', '))
        : variables.name in variables.flag ?
          (variables.plain in ['true', 'false'] ? '' : 'is neither true nor false')
        : variables.name in variables.whole ?
          (!variables.plain.matches('^[-+]?[0-9]+$') ? 'is not a whole number'
          : !variables.plain.matches('^[-+]?0*[0-9]{1,18}$') ? ''
          : variables.name in variables.least && int(variables.plain) < variables.least[variables.name] ?
            'should be greater than or equal to ' + string(variables.least[variables.name])
          : variables.name in variables.most && int(variables.plain) > variables.most[variables.name] ?
            'should be less than or equal to ' + string(variables.most[variables.name])
          : '')
        : variables.name in variables.number ?
          (variables.plain.matches('^[-+]?0[xX]|_') ? ''
          : !variables.plain.matches('^[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]{1,2})?$') ? 'is not a number'
          : variables.name in variables.least && double(variables.plain) < double(variables.least[variables.name]) ?
            'should be greater than or equal to ' + string(variables.least[variables.name])
          : variables.name in variables.most && double(variables.plain) > double(variables.most[variables.name]) ?
            'should be less than or equal to ' + string(variables.most[variables.name])
          : '')
        : variables.name in variables.pattern && !variables.plain.matches(variables.pattern[variables.name]) ?
          variables.patternSays[variables.name]
        : variables.name in variables.never && !variables.plain.matches('//|/[.]') && variables.plain.matches(variables.never[variables.name]) ?
          variables.neverSays[variables.name]
        : size(variables.strays) > 0 ?
          variables.entrySays[variables.name].replace('%q', '"' + variables.strays[0].replace('\\', '\\\\').replace('"', '\\"') + '"')
        : ''
  validations:
    - expression: "variables.wrong == ''"
      messageExpression: >-
        'setting ' + variables.name + ' with invalid value "' + variables.value.replace('\\', '\\\\').replace('"', '\\"') + '": it ' + variables.wrong
      message: the value breaks a rule of the setting; see docs/SETTINGS.md for the rules
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: longhorn-setting-values
spec:
  policyName: longhorn-setting-values
  validationActions: [Deny]
`)
	return b.String()
}

// celText returns the CEL literal of a text that contains no single quotes.
func celText(text string) string { return "r'" + text + "'" }

// celQuoted returns the CEL literal of a text that contains no double quotes.
func celQuoted(text string) string { return `r"` + text + `"` }

// schemaBegin is the first line of the schema's generated part.
const schemaBegin = "    \"settings\": {\n      \"$comment\": \"Made of package types, the registry of settings and the parameters of StorageClasses, to the end of the file, by: " + made + "\",\n"

// settingsSchema returns the last part of the chart's schema: the definitions "settings" and "parameters". Each setting
// is listed under its own name and under its name in Longhorn's chart.
func settingsSchema(t *testing.T) string {
	t.Helper()
	entry := func(name string, rule any) string {
		text, err := json.Marshal(rule)
		require.NoError(t, err)
		return fmt.Sprintf("        %q: %s", name, text)
	}
	var rules, parameters []string
	for _, d := range registry() {
		rule, has := schemaOf(d)
		if !has {
			continue
		}
		rules = append(rules, entry(string(d.Name), rule))
		for _, name := range settings.ChartNames(d.Name) {
			rules = append(rules, entry(name, map[string]string{"$ref": "#/definitions/settings/properties/" + string(d.Name)}))
		}
	}
	for _, name := range types.ClassParameterNames() {
		parameters = append(parameters, entry(name, map[string][]string{"type": {"string", "number", "boolean", "null"}}))
	}
	const closed = "      \"type\": \"object\",\n      \"additionalProperties\": false,\n"
	properties := func(entries []string) string {
		return "      \"properties\": {\n" + strings.Join(entries, ",\n") + "\n      }\n    }"
	}
	return closed + properties(rules) + ",\n    \"parameters\": {\n" + closed +
		"      \"patternProperties\": {\"^csi[.]storage[.]k8s[.]io/\": {\"type\": \"string\"}},\n" + properties(parameters) + "\n  }\n}\n"
}

// schemaOf returns the rule for a setting's value in a values file, where null and "" mean the default. For a text, the
// rule is the pattern of the registry, if it has one. For a number in quotes, the rule checks the bounds if the
// setting has both.
func schemaOf(d settings.Definition) (rule map[string]any, has bool) {
	switch {
	case d.ReadOnly && d.Default == "":
		return nil, false
	case d.ReadOnly && d.Type == settings.TypeBool:
		return map[string]any{"enum": []any{d.Default == "true", d.Default, "", nil}}, true
	case len(d.Options) > 0:
		enum := []any{"", nil}
		for _, o := range d.Options {
			enum = append(enum, o)
		}
		return map[string]any{"enum": enum}, true
	case d.Type == settings.TypeBool:
		return map[string]any{"enum": []any{true, false, "true", "false", "", nil}}, true
	case d.Type == settings.TypeString:
		rule := map[string]any{"type": []string{"string", "null"}}
		if d.Pattern != "" {
			rule["pattern"] = "^$|" + d.Pattern
		}
		return rule, true
	}
	number := map[settings.Type]string{settings.TypeInt: "integer", settings.TypeFloat: "number"}[d.Type]
	rule = map[string]any{"type": []string{number, "string", "null"}, "pattern": inBounds(d)}
	if d.Minimum != nil {
		rule["minimum"] = *d.Minimum
	}
	if d.Maximum != nil {
		rule["maximum"] = *d.Maximum
	}
	return rule, true
}

// inBounds returns the pattern for a number in quotes.
func inBounds(d settings.Definition) string {
	digits := "[0-9]+"
	if d.Maximum != nil {
		var all []string
		for n := *d.Minimum; n <= *d.Maximum; n++ {
			all = append(all, strconv.FormatInt(n, 10))
		}
		slices.Reverse(all)
		digits = "(" + strings.Join(all, "|") + ")"
	}
	if d.Type == settings.TypeFloat {
		digits = "[0-9]+([.][0-9]+)?" // the manager checks the bounds
	}
	engines := ""
	if d.PerEngine {
		engines = "|^[{]"
	}
	return "^$|^0*" + digits + "$" + engines
}

// sample is a value of a setting, and the rule that it breaks. Rule is empty if the value breaks no rule.
type sample struct {
	Setting, Value, Rule string
}

// sampled contains the values to try, by the type of a setting.
var sampled = map[settings.Type][]string{
	settings.TypeBool:  {"true", "false", "True", "yes", "1", " true"},
	settings.TypeInt:   {"0", "-1", "007", "+3", "1.5", "1e1", "3 ", "3Gi", "999999999999999999", "9223372036854775808", "99999999999999999999"},
	settings.TypeFloat: {"0", "-1", "+3", "1.5", ".5", "5.", "1e1", "1e99", "NaN", "Inf", "0x10", "3 ", "3Gi", "1_0"},
	settings.TypeString: {
		"allways-allow", "Disabled", `a "b" \c`, "/mnt/disk", "mnt/disk", "/", "/etc/x", "https://longhorn.example.com", "ftp://x", "https://x/y", "my-class",
		"My Class", "a..b", "/etc/../mnt/x", "//etc", "/var/lib/longhorn/", "key=value:NoSchedule", "key=value", "key:value", "apps/StatefulSet", "a/b/c", "nodes", "nodes,192.0.2.0/24", "192.0.2.0/33",
		"nodes, any", "2001:db8::/32 , ::1", "a/b = c : NoExecute; d", "key=value:Never;x", "key : value ; a/b:", "key:v;key:w", "; ;",
	},
}

// perEngine contains the values to try for a setting that may have one value for each data engine.
var perEngine = []string{
	`{"v1":"3","v2":"3"}`, `{"v1":"true"}`, `{"v1":"99","v2":"3"}`, `{"v1":"3","v2":"99"}`, `{"v1":""}`, `{"v2":"3"}`, `{"v1":3}`, `{"v1":"a\"b"}`, `{ "v1": "99" }`, "{",
}

// samples returns values of every setting, including values at its bounds, with one JSON text on each line.
func samples(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, d := range registry() {
		values := append([]string{"", d.Default}, sampled[d.Type]...)
		if d.PerEngine {
			values = append(values, perEngine...)
		}
		for _, o := range d.Options {
			values = append(values, o, o+"s")
		}
		for _, limit := range []*int64{d.Minimum, d.Maximum} {
			if limit != nil {
				values = append(values, strconv.FormatInt(*limit-1, 10), strconv.FormatInt(*limit, 10), strconv.FormatInt(*limit+1, 10), fmt.Sprintf("%d.1", *limit))
			}
		}
		slices.Sort(values)
		for _, v := range slices.Compact(values) {
			s := sample{Setting: string(d.Name), Value: v}
			if err := settings.Check(d.Name, v); err != nil {
				_, s.Rule, _ = strings.Cut(err.Error(), ": it ")
			}
			text, err := json.Marshal(s)
			require.NoError(t, err)
			fmt.Fprintf(&b, "%s\n", text)
		}
	}
	return b.String()
}
