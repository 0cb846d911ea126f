package settings

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
	"github.com/longhorn-lep/longhorn-manager/types"
)

// DefaultSettings are the values of settings in the ConfigMap DefaultSettingsConfigMap. Each version of the ConfigMap
// sets the value of each Setting once. So a value that a user sets afterwards stays until the ConfigMap changes
// again.
type DefaultSettings struct {
	// Version is the ConfigMap's resourceVersion.
	Version string
	// Values are valid values, for settings that this release knows.
	Values map[Name]string
}

// ReadDefaultSettings reads the ConfigMap; nil means that there is none. Each error names the setting, the value and
// the rule, or describes the problem of the whole text. All settings without an error are in the DefaultSettings.
func ReadDefaultSettings(cm *corev1.ConfigMap) (DefaultSettings, []error) {
	d := DefaultSettings{Values: map[Name]string{}}
	if cm == nil {
		return d, nil
	}
	d.Version = cm.ResourceVersion
	entries, err := yamlMap(cm.Data[types.DefaultSettingsKey])
	if err != nil {
		return d, []error{fmt.Errorf("key %s is not a YAML map of settings' names to values, none of it is applied: %w", types.DefaultSettingsKey, err)}
	}
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if entries[key] == nil { // "name:" without a value
			continue
		}
		value, err := scalar(entries[key])
		if err != nil {
			problems = append(problems, fmt.Errorf("setting %s: %w", key, err))
		} else if err := Check(Name(key), value); err != nil {
			problems = append(problems, err)
		} else {
			d.Values[Name(key)] = value
		}
	}
	return d, problems
}

// CheckDefaultResource returns an error if the ConfigMap DefaultResourceConfigMap sets a backup target, which has no
// effect.
func CheckDefaultResource(cm *corev1.ConfigMap) error {
	entries, err := yamlMap(cm.Data[types.DefaultResourceKey])
	if err != nil {
		return fmt.Errorf("key %s is not a YAML map: %w", types.DefaultResourceKey, err)
	}
	for _, name := range []string{"backup-target", "backup-target-credential-secret"} {
		if value, _ := entries[name].(string); value != "" {
			return fmt.Errorf("%s with value %q has no effect: backups are not offered", name, value)
		}
	}
	return nil
}

// Pending reports whether a Setting has yet to get its value. s is nil if the Setting has not been created yet.
func (d DefaultSettings) Pending(name Name, s *longhorn.Setting) bool {
	_, given := d.Values[name]
	return given && (s == nil || s.Annotations[types.AnnotationConfigMapVersion] != d.Version)
}

// yamlMap parses YAML and keeps numbers as they are written. A duplicate key is an error.
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

// scalar returns the text of a YAML scalar.
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
