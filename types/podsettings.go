package types

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// PodSettings are values in force of the settings that say how the product's own pods are made. A running pod keeps what it was made
// with: it is never ended for a setting while it serves anything. Its annotation AnnotationPodSettings says what that is.
type PodSettings map[SettingName]string

// The settings that each kind of pod is made with. An instance manager is bound to its node and tolerates every taint, so neither taints
// nor labels of nodes matter to it.
var (
	instanceManagerPodSettings = []SettingName{SettingPriorityClass, SettingGuaranteedInstanceManagerCPU}
	sharePodSettings           = []SettingName{SettingPriorityClass, SettingTaintToleration, SettingSystemManagedNodeSelector}
)

// noCPU is the value of SettingGuaranteedInstanceManagerCPU that guarantees nothing.
const noCPU = "0"

// PodSettingsOf are the values in force of these settings.
func PodSettingsOf(v SettingValues, names ...SettingName) PodSettings {
	s := PodSettings{}
	for _, name := range names {
		d, _ := DefinitionOf(name)
		s[name] = v.read(name, d.Type)
	}
	return s
}

// IsPodSetting tells whether a setting says how pods are made.
func IsPodSetting(name SettingName) bool {
	return slices.Contains(instanceManagerPodSettings, name) || slices.Contains(sharePodSettings, name)
}

// SettingsOfPod are those that a pod of ours was made with; none for a pod that no setting concerns. A pod of an earlier release was made
// with the built-in priority class and without anything else.
func SettingsOfPod(pod *corev1.Pod) PodSettings {
	names := sharePodSettings
	switch {
	case pod.Labels[LabelInstanceManager] != "":
		names = instanceManagerPodSettings
	case pod.Labels[LabelShareManager] == "":
		return nil
	}
	var said map[SettingName]string
	if err := json.Unmarshal([]byte(pod.Annotations[AnnotationPodSettings]), &said); err != nil {
		said = nil
	}
	s := PodSettings{}
	for _, name := range names {
		s[name] = said[name]
		if s[name] == "" && name == SettingGuaranteedInstanceManagerCPU {
			s[name] = noCPU
		}
	}
	return s
}

// Equal tells whether pods are made alike with both.
func (s PodSettings) Equal(other PodSettings) bool { return maps.Equal(s, other) }

// Annotation is the value of AnnotationPodSettings.
func (s PodSettings) Annotation() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic("BUG: a map of texts is no JSON: " + err.Error())
	}
	return string(text)
}

// Without is the same but for the settings that cannot be followed now: they are as if they asked for nothing.
func (s PodSettings) Without(names ...SettingName) PodSettings {
	less := maps.Clone(s)
	for _, name := range names {
		if _, ok := less[name]; !ok {
			continue
		}
		less[name] = ""
		if name == SettingGuaranteedInstanceManagerCPU {
			less[name] = noCPU
		}
	}
	return less
}

// PriorityClass is the one asked for, or else the given one.
func (s PodSettings) PriorityClass(builtIn string) string {
	if class := s[SettingPriorityClass]; class != "" {
		return class
	}
	return builtIn
}

// Tolerations are those asked for. The value has passed its check.
func (s PodSettings) Tolerations() []corev1.Toleration {
	list, _ := parseTolerations(s[SettingTaintToleration])
	return list
}

// NodeSelector is the one asked for; nil: none. The value has passed its check.
func (s PodSettings) NodeSelector() map[string]string {
	selector, _ := parseNodeSelector(s[SettingSystemManagedNodeSelector])
	return selector
}

// ofNode ends the CPU that a node asks for itself, in thousandths of a CPU: "250m". The setting's own values have no such end.
const ofNode = "m"

// WithCPU is the same, with the CPU that a node asks for itself instead of what the setting says; 0: the node asks for none.
func (s PodSettings) WithCPU(milli int) PodSettings {
	if milli <= 0 {
		return s
	}
	other := maps.Clone(s)
	other[SettingGuaranteedInstanceManagerCPU] = strconv.Itoa(milli) + ofNode
	return other
}

// IsOfNode tells whether a value is what a node asks for itself, so that the setting does not say what pods on it are made with.
func IsOfNode(value string) bool { return strings.HasSuffix(value, ofNode) }

// CPURequest is what is guaranteed, in whole thousandths of a CPU: a part of the node's allocatable CPU, or what the node asks for; nil:
// nothing is guaranteed.
func (s PodSettings) CPURequest(allocatable corev1.ResourceList) *resource.Quantity {
	if text, own := strings.CutSuffix(s[SettingGuaranteedInstanceManagerCPU], ofNode); own {
		milli, err := strconv.ParseInt(text, 10, 64)
		if err != nil || milli <= 0 {
			return nil
		}
		return resource.NewMilliQuantity(milli, resource.DecimalSI)
	}
	percent, err := strconv.ParseFloat(s[SettingGuaranteedInstanceManagerCPU], 64)
	milli := int64(math.Round(float64(allocatable.Cpu().MilliValue()) * percent / 100))
	if err != nil || milli <= 0 {
		return nil
	}
	return resource.NewMilliQuantity(milli, resource.DecimalSI)
}

// qualified and labelValue match what Kubernetes takes for a label or a taint, and longer texts.
const (
	qualified  = `([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?`
	labelValue = `([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?`
)

var (
	tolerationEntries = EntryRule{
		Separator: ";", Pattern: `^` + qualified + `\s*(=\s*` + labelValue + `\s*)?(:\s*(NoSchedule|PreferNoSchedule|NoExecute)?)?$`,
		Says: "has the entry %q; each entry must be key=value:Effect or key:Effect with an effect of NoSchedule, PreferNoSchedule or NoExecute, and entries are separated by semicolons",
	}
	nodeSelectorEntries = EntryRule{
		Separator: ";", Pattern: `^` + qualified + `\s*:\s*` + labelValue + `$`,
		Says: "has the entry %q; each entry must be key:value, a label of nodes, and entries are separated by semicolons",
	}
)

// parseTolerations reads "key=value:Effect;key:Effect". Without a value any value is tolerated, without an effect any effect. The error
// is a badEntry, of the first entry that is no toleration.
func parseTolerations(text string) ([]corev1.Toleration, error) {
	var list []corev1.Toleration
	for _, part := range parts(text) {
		t, err := parseToleration(part)
		if err != nil {
			return nil, &badEntry{strings.TrimSpace(part), err}
		}
		list = append(list, t)
	}
	return list, nil
}

// badEntry is an entry of a list that is none; err is what is wrong with it, as the object of a sentence.
type badEntry struct {
	entry string
	err   error
}

func (e *badEntry) Error() string { return fmt.Sprintf("the entry %q with %v", e.entry, e.err) }

func checkTolerations(text string) error {
	_, err := parseTolerations(text)
	var bad *badEntry
	if errors.As(err, &bad) {
		return fmt.Errorf(tolerationEntries.Says+"; this one has %w", bad.entry, bad.err)
	}
	return err
}

// parseNodeSelector reads "key:value;key2:value2". Nothing is no selector.
func parseNodeSelector(text string) (map[string]string, error) {
	var selector map[string]string
	for _, part := range parts(text) {
		key, value, found := strings.Cut(part, ":")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !found || len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return nil, fmt.Errorf(nodeSelectorEntries.Says, strings.TrimSpace(part))
		}
		if _, twice := selector[key]; twice {
			return nil, fmt.Errorf("has the label %q twice", key)
		}
		if selector == nil {
			selector = map[string]string{}
		}
		selector[key] = value
	}
	return selector, nil
}

func checkNodeSelector(text string) error {
	_, err := parseNodeSelector(text)
	return err
}

func checkPriorityClassName(text string) error {
	if problems := validation.IsDNS1123Subdomain(text); len(problems) > 0 {
		return fmt.Errorf("is no name of a PriorityClass: %s", strings.Join(problems, ", "))
	}
	return nil
}
