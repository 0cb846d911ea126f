package v1

// Setting is one global setting.
type Setting struct {
	Resource
	Name string `json:"name"`
	// Value that was given; the default where none was.
	Value string `json:"value"`
	// ValueInForce is what is acted on: an invalid value leaves the last valid one in force.
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
	// Type is string, int or bool: how the text of the value is read.
	Type     string `json:"type"`
	Required bool   `json:"required"`
	ReadOnly bool   `json:"readOnly"`
	Default  string `json:"default"`
	// Options are the values to choose from; none: any that the type allows.
	Options []string `json:"options,omitempty"`
	// Range bounds an int, with the keys minimum and maximum; a missing one is open.
	Range map[string]int64 `json:"range,omitempty"`
	// Effect says when this release acts on a new value, or "no effect yet".
	Effect string `json:"effect"`
}

// SettingUpdate is the body of PUT /v1/settings/<name>. The value must be given;
// an empty one means the default.
type SettingUpdate struct {
	Value *string `json:"value"`
}
