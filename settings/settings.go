package settings

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Name names a global setting.
type Name string

// Type says how the text of a setting is parsed.
type Type string

// The types of settings, as clients see them.
const (
	TypeString Type = "string"
	TypeInt    Type = "int"
	TypeFloat  Type = "float"
	TypeBool   Type = "bool"
)

// The categories of settings, as clients see them.
const (
	CategoryGeneral    = "general"
	CategoryScheduling = "scheduling"
	CategoryDangerZone = "danger Zone"
	CategorySystemInfo = "system info"
)

// Effect says whether this release acts on a setting, and to which objects a new value applies.
type Effect string

// The effects. A test compares them with the code: a setting has EffectNone if, and only if, no code reads it.
const (
	EffectNone       Effect = "no effect yet"
	EffectAtOnce     Effect = "at once"
	EffectNewPods    Effect = "on pods created later"
	EffectNewVolumes Effect = "on volumes created later"
	EffectNewDisks   Effect = "on default disks created later"
	EffectTold       Effect = "only reports" // by REST alone: users cannot set it
)

// Definition describes a setting completely. REST, validation, defaults and docs/SETTINGS.md use it.
type Definition struct {
	Name        Name
	DisplayName string
	Description string
	Category    string
	Type        Type
	Default     string
	// Options are the allowed values of a TypeString; empty: any text is allowed.
	Options []string
	// Minimum and Maximum are the bounds of a TypeInt or a TypeFloat; nil: unbounded.
	Minimum, Maximum *int64
	// ReadOnly settings cannot be set. Package manager provides the values that they report.
	ReadOnly bool
	// PerEngine settings also accept the form in which Longhorn stores them: JSON with a value for each data engine,
	// such as
	// {"v1":"3","v2":"3"}. The value of v1 is used.
	PerEngine bool
	Effect    Effect
	// Pattern is a regular expression that every valid value of a setting with a rule matches; empty: there is none.
	// The admission policy and the chart's schema use it, because they cannot call the rule. For a value that does
	// not match they report "it <PatternSays>".
	Pattern, PatternSays string
	// Never is a regular expression that no valid value matches, provided that the value is a path in its shortest
	// form; empty: there is none. It is used in the same way as Pattern.
	Never, NeverSays string
	// Entries is the rule of each entry of a setting that is a list; nil: the setting is not a list. It is used in
	// the same way as Pattern.
	Entries *types.EntryRule
	// rule is a further rule besides type, options and bounds; nil: there is none.
	// values tells the documentation which values rule allows.
	rule   func(value string) error
	values string
}

// All lists the names of all settings, sorted.
func All() []Name {
	names := make([]Name, 0, len(settingDefinitions))
	for _, d := range settingDefinitions {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	return names
}

// ChartNames returns the names of a setting in Longhorn's Helm chart. They are in camel case. An abbreviation such as
// "url" is written in both ways: like any other word, and in capitals.
func ChartNames(name Name) []string {
	first, rest, _ := strings.Cut(string(name), "-")
	camel, capitals := first, first
	for _, word := range strings.Split(rest, "-") {
		if word == "" {
			continue
		}
		title := strings.ToUpper(word[:1]) + word[1:]
		camel += title
		if slices.Contains([]string{"cpu", "url"}, word) {
			title = strings.ToUpper(word)
		}
		capitals += title
	}
	return slices.Compact([]string{camel, capitals})
}

// DefinitionOf returns a setting's definition and whether this release knows the setting.
func DefinitionOf(name Name) (Definition, bool) {
	i := slices.IndexFunc(settingDefinitions, func(d Definition) bool { return d.Name == name })
	if i < 0 {
		return Definition{}, false
	}
	return settingDefinitions[i], true
}

// Check returns an error that names the setting, the value and the broken rule, or nil. An empty value is
// valid: it means the default. All values are checked by this function, whether they come from kubectl, REST or the
// ConfigMap.
func Check(name Name, value string) error {
	d, ok := DefinitionOf(name)
	if !ok {
		return fmt.Errorf("setting %q does not exist", name)
	}
	return d.check(value)
}

// ValueInForce is the value that the product uses. It is the object's own value if that is valid. Otherwise it is the
// last valid value, which the object's status stores, or the default if there is none. It is "" for a name that this
// release does not know.
func ValueInForce(s *longhorn.Setting) string {
	d, ok := DefinitionOf(Name(s.Name))
	if !ok {
		return ""
	}
	switch last := s.Status.ValueInForce; {
	case s.Value == "":
		return d.Default
	case d.check(s.Value) == nil:
		return d.plain(s.Value)
	case last != "" && d.check(last) == nil:
		return d.plain(last)
	}
	return d.Default
}

// Values returns the value in force of a setting. "" and invalid values are read as the default. The methods
// convert the value to its type. They panic if the setting has another type or is not defined.
type Values func(Name) string

// Int reads a TypeInt.
func (v Values) Int(name Name) int64 {
	n, err := strconv.ParseInt(v.read(name, TypeInt), 10, 64)
	if err != nil {
		panic("BUG: the default of setting " + string(name) + " is not a number")
	}
	return n
}

// Bool reads a TypeBool.
func (v Values) Bool(name Name) bool { return v.read(name, TypeBool) == "true" }

// Text reads a TypeString.
func (v Values) Text(name Name) string { return v.read(name, TypeString) }

func (v Values) read(name Name, t Type) string {
	d, ok := DefinitionOf(name)
	if !ok || d.Type != t {
		panic(fmt.Sprintf("BUG: setting %s is read as %s, and is %q", name, t, d.Type))
	}
	value := v(name)
	if value == "" || d.check(value) != nil {
		return d.Default
	}
	return d.plain(value)
}

func (d Definition) check(value string) error {
	if value == "" {
		return nil
	}
	if err := d.checkValue(value); err != nil {
		// Scripts that come from Longhorn look for the words "<name> with invalid value".
		return fmt.Errorf("setting %s with invalid value %q: it %w", d.Name, value, err)
	}
	return nil
}

func (d Definition) checkValue(value string) error {
	value, err := d.perEngine(value)
	switch {
	case err != nil:
		return err
	case d.ReadOnly && value != d.Default:
		return fmt.Errorf("cannot be set: the setting is read-only")
	case len(d.Options) > 0 && !slices.Contains(d.Options, value):
		return fmt.Errorf("must be one of %s", strings.Join(d.Options, ", "))
	}
	switch d.Type {
	case TypeInt:
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case err != nil:
			return fmt.Errorf("is not a whole number")
		case d.Minimum != nil && n < *d.Minimum:
			return fmt.Errorf("should be greater than or equal to %d", *d.Minimum)
		case d.Maximum != nil && n > *d.Maximum:
			return fmt.Errorf("should be less than or equal to %d", *d.Maximum)
		}
	case TypeFloat:
		n, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil || math.IsNaN(n) || math.IsInf(n, 0):
			return fmt.Errorf("is not a number")
		case d.Minimum != nil && n < float64(*d.Minimum):
			return fmt.Errorf("should be greater than or equal to %d", *d.Minimum)
		case d.Maximum != nil && n > float64(*d.Maximum):
			return fmt.Errorf("should be less than or equal to %d", *d.Maximum)
		}
	case TypeBool:
		if value != "true" && value != "false" {
			return fmt.Errorf("is neither true nor false")
		}
	}
	if d.rule != nil {
		return d.rule(value)
	}
	return nil
}

// plain returns a valid value without the JSON around it.
func (d Definition) plain(value string) string {
	value, _ = d.perEngine(value)
	return value
}

// perEngine returns the value of data engine v1 from the JSON of a PerEngine setting.
func (d Definition) perEngine(value string) (string, error) {
	if !d.PerEngine || !strings.HasPrefix(value, "{") {
		return value, nil
	}
	var values map[string]string
	if err := json.Unmarshal([]byte(value), &values); err != nil {
		return "", fmt.Errorf(`is not JSON with a text for each data engine, such as {"v1":%q}`, d.Default)
	}
	if values["v1"] == "" {
		return "", fmt.Errorf("has no value for the data engine v1")
	}
	return values["v1"], nil
}

// PerEngineText returns a value in the form that Longhorn's clients read. For a PerEngine setting this is JSON with
// the value for each data engine. A value that already has this form, or that is incomplete JSON, is returned
// unchanged.
func (d Definition) PerEngineText(value string) string {
	if !d.PerEngine || strings.HasPrefix(value, "{") {
		return value
	}
	text, err := json.Marshal(map[string]string{"v1": value, "v2": value})
	if err != nil {
		panic("BUG: a map of texts is no JSON: " + err.Error())
	}
	return string(text)
}

func bound(n int64) *int64 { return &n }
