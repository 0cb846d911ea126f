package types

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// EntryRule is the rule of the entries of a list. Spaces around an entry are ignored. The rule does not apply to
// empty entries.
type EntryRule struct {
	Separator string
	// Pattern is a regular expression that every valid entry matches.
	Pattern string
	// Says is the message for an entry that does not match. It follows "it ", and %q stands for the entry. An error
	// of the setting's own rule starts with the same text.
	Says string
}

// ParseTolerations reads "key=value:Effect;key:Effect". Without a value any value is tolerated, without an effect any
// effect. The error is a *TolerationError for the first entry that is not a toleration.
func ParseTolerations(text string) ([]corev1.Toleration, error) {
	var list []corev1.Toleration
	for _, part := range Entries(text) {
		t, err := parseToleration(part)
		if err != nil {
			return nil, &TolerationError{strings.TrimSpace(part), err}
		}
		list = append(list, t)
	}
	return list, nil
}

// TolerationError says which entry of a list is no toleration. Err describes the fault, as the object of a sentence.
type TolerationError struct {
	Entry string
	Err   error
}

func (e *TolerationError) Error() string { return fmt.Sprintf("the entry %q with %v", e.Entry, e.Err) }

// parseToleration reads one entry. The error names the wrong part of it.
func parseToleration(text string) (corev1.Toleration, error) {
	taint, effect, _ := strings.Cut(text, ":")
	key, value, hasValue := strings.Cut(strings.TrimSpace(taint), "=")
	t := corev1.Toleration{Key: strings.TrimSpace(key), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffect(strings.TrimSpace(effect))}
	if hasValue {
		t.Operator, t.Value = corev1.TolerationOpEqual, strings.TrimSpace(value)
	}
	switch t.Effect {
	case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
	default:
		return t, fmt.Errorf("the invalid effect %q", t.Effect) // scripts look for "invalid effect"
	}
	if len(validation.IsQualifiedName(t.Key)) > 0 {
		return t, fmt.Errorf("the invalid key %q", t.Key)
	}
	if len(validation.IsValidLabelValue(t.Value)) > 0 {
		return t, fmt.Errorf("the invalid value %q", t.Value)
	}
	return t, nil
}

// Entries splits a text at ';' and omits empty parts.
func Entries(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ";"), func(part string) bool { return strings.TrimSpace(part) == "" })
}
