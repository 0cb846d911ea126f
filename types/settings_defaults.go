package types

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// DefaultSettings are the values that the ConfigMap DefaultSettingsConfigMap gives to
// settings. Each is given once to its Setting for each version of the ConfigMap, so what a
// user sets afterwards stays until the ConfigMap changes again.
type DefaultSettings struct {
	// Version is the ConfigMap's resourceVersion.
	Version string
	// Values are valid, and of settings that this release knows.
	Values map[SettingName]string
}

// ReadDefaultSettings reads the ConfigMap, nil where there is none. Each error names the
// setting, the value and the rule, or what is wrong with the whole; what is not named by an
// error is in the DefaultSettings.
func ReadDefaultSettings(cm *corev1.ConfigMap) (DefaultSettings, []error) {
	d := DefaultSettings{Values: map[SettingName]string{}}
	if cm == nil {
		return d, nil
	}
	d.Version = cm.ResourceVersion
	entries, err := yamlMap(cm.Data[DefaultSettingsKey])
	if err != nil {
		return d, []error{fmt.Errorf("key %s is not a YAML map of settings' names to values, none of it is applied: %w", DefaultSettingsKey, err)}
	}
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if entries[key] == nil { // "name:" with nothing behind it
			continue
		}
		value, err := scalar(entries[key])
		if err != nil {
			problems = append(problems, fmt.Errorf("setting %s: %w", key, err))
		} else if err := CheckSetting(SettingName(key), value); err != nil {
			problems = append(problems, err)
		} else {
			d.Values[SettingName(key)] = value
		}
	}
	return d, problems
}

// CheckDefaultResource tells that a backup target in the ConfigMap DefaultResourceConfigMap has no effect.
func CheckDefaultResource(cm *corev1.ConfigMap) error {
	entries, err := yamlMap(cm.Data[DefaultResourceKey])
	if err != nil {
		return fmt.Errorf("key %s is not a YAML map: %w", DefaultResourceKey, err)
	}
	for _, name := range []string{"backup-target", "backup-target-credential-secret"} {
		if value, _ := entries[name].(string); value != "" {
			return fmt.Errorf("%s with value %q has no effect: backups are not offered", name, value)
		}
	}
	return nil
}

// Pending tells whether a Setting still waits for its value; s is nil where the Setting is
// not made yet.
func (d DefaultSettings) Pending(name SettingName, s *longhorn.Setting) bool {
	_, given := d.Values[name]
	return given && (s == nil || s.Annotations[AnnotationConfigMapVersion] != d.Version)
}

// yamlMap reads YAML with the numbers as they are written; a key given twice is an error.
func yamlMap(text string) (map[string]any, error) {
	asJSON, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, err
	}
	var entries map[string]any
	decoder := json.NewDecoder(bytes.NewReader(asJSON))
	decoder.UseNumber()
	return entries, decoder.Decode(&entries)
}

// scalar is the text of a YAML scalar.
func scalar(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case json.Number:
		return v.String(), nil
	}
	return "", fmt.Errorf("the value must be a text, a number, true or false; put other YAML in quotes")
}
