package v1

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Setting is one global setting.
type Setting struct {
	Resource
	Name string `json:"name"`
	// Value is the value that was set, or the default. If the definition has DataEngineSpecific, it is JSON with a
	// value for each data engine: {"v1":"3","v2":"3"}.
	Value string `json:"value"`
	// ValueInForce is the effective value: while Value is invalid, the last valid value stays effective. It is the
	// value of data engine v1 only.
	ValueInForce string `json:"valueInForce"`
	// Applied is false while a value is refused or waits for something.
	Applied    bool              `json:"applied"`
	Definition SettingDefinition `json:"definition"`
}

// SettingDefinition describes a setting.
type SettingDefinition struct {
	DisplayName string `json:"displayName"`
	Description string `json:"description"`
	Category    string `json:"category"`
	// Type is string, int or bool. It defines how the text of the value is parsed.
	Type     string `json:"type"`
	Required bool   `json:"required"`
	ReadOnly bool   `json:"readOnly"`
	// Default has the form of Setting.Value.
	Default string `json:"default"`
	// DataEngineSpecific: the value may differ by data engine. The value of v1 is used.
	DataEngineSpecific bool `json:"dataEngineSpecific"`
	// Options are the allowed values; none: any value that the type allows.
	Options []string `json:"options,omitempty"`
	// Range limits an int, with the keys minimum and maximum. A missing key means that there is no such limit.
	Range map[string]int64 `json:"range,omitempty"`
	// Effect says when this release applies a new value, or "no effect yet".
	Effect string `json:"effect"`
}

// SettingUpdate is the body of PUT /v1/settings/<name>. The value is required; an empty value means the default. For a
// setting with DataEngineSpecific it is the value of all data engines, or JSON with a value for each.
type SettingUpdate struct {
	Value *SettingValue `json:"value"`
}

// SettingValue is a value as a client writes it: the text, or the JSON number, boolean or object that the text stands
// for.
type SettingValue string

// UnmarshalJSON accepts any value except a list and null.
func (v *SettingValue) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte(`"`)) {
		return json.Unmarshal(data, (*string)(v))
	}
	if bytes.HasPrefix(data, []byte("[")) || string(data) == "null" {
		return &SettingValueError{JSON: string(data)}
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		return err
	}
	*v = SettingValue(compact.String())
	return nil
}

// SettingValueError means that a value has no text.
type SettingValueError struct{ JSON string }

// Error names the value.
func (e *SettingValueError) Error() string {
	return fmt.Sprintf("%.40s is not a string, a number, a boolean or an object", e.JSON)
}
