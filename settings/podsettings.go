package settings

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

	"github.com/longhorn-lep/longhorn-manager/types"
)

// PodSettings are the values in force of the settings that determine how the product's own pods are created. A
// running pod keeps the values it was created with: it is never stopped because of a setting while it serves
// anything. Its annotation AnnotationPodSettings has these values.
type PodSettings map[Name]string

// The settings that apply to each kind of pod. An instance manager is bound to its node and tolerates every taint, so
// neither taints nor labels of nodes matter to it.
var (
	instanceManagerPodSettings = []Name{PriorityClass, GuaranteedInstanceManagerCPU}
	sharePodSettings           = []Name{PriorityClass, TaintToleration, SystemManagedNodeSelector}
)

// noCPU is the value of GuaranteedInstanceManagerCPU that guarantees no CPU.
const noCPU = "0"

// PodSettingsOf returns the values in force of these settings.
func PodSettingsOf(v Values, names ...Name) PodSettings {
	s := PodSettings{}
	for _, name := range names {
		d, _ := DefinitionOf(name)
		s[name] = v.read(name, d.Type)
	}
	return s
}

// IsPodSetting reports whether a setting determines how pods are created.
func IsPodSetting(name Name) bool {
	return slices.Contains(instanceManagerPodSettings, name) || slices.Contains(sharePodSettings, name)
}

// SettingsOfPod returns the settings with which a pod of this product was created; nil for a pod to which no setting
// applies. A pod of an earlier release was created with the built-in priority class and without the other settings.
func SettingsOfPod(pod *corev1.Pod) PodSettings {
	names := sharePodSettings
	switch {
	case pod.Labels[types.LabelInstanceManager] != "":
		names = instanceManagerPodSettings
	case pod.Labels[types.LabelShareManager] == "":
		return nil
	}
	var said map[Name]string
	if err := json.Unmarshal([]byte(pod.Annotations[types.AnnotationPodSettings]), &said); err != nil {
		said = nil
	}
	s := PodSettings{}
	for _, name := range names {
		s[name] = said[name]
		if s[name] == "" && name == GuaranteedInstanceManagerCPU {
			s[name] = noCPU
		}
	}
	return s
}

// Equal reports whether both create identical pods.
func (s PodSettings) Equal(other PodSettings) bool { return maps.Equal(s, other) }

// Annotation is the value of AnnotationPodSettings.
func (s PodSettings) Annotation() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic("BUG: a map of texts is no JSON: " + err.Error())
	}
	return string(text)
}

// Without returns the same settings, except the named ones, which cannot be applied now. It replaces their values by
// values that request nothing.
func (s PodSettings) Without(names ...Name) PodSettings {
	less := maps.Clone(s)
	for _, name := range names {
		if _, ok := less[name]; !ok {
			continue
		}
		less[name] = ""
		if name == GuaranteedInstanceManagerCPU {
			less[name] = noCPU
		}
	}
	return less
}

// PriorityClass returns the priority class of the settings, or else the built-in one.
func (s PodSettings) PriorityClass(builtIn string) string {
	if class := s[PriorityClass]; class != "" {
		return class
	}
	return builtIn
}

// Tolerations returns the tolerations of the settings. The value has passed its check.
func (s PodSettings) Tolerations() []corev1.Toleration {
	list, _ := types.ParseTolerations(s[TaintToleration])
	return list
}

// NodeSelector returns the node selector of the settings; nil: none. The value has passed its check.
func (s PodSettings) NodeSelector() map[string]string {
	selector, _ := parseNodeSelector(s[SystemManagedNodeSelector])
	return selector
}

// ofNode is the suffix of CPU that a node itself requests, in thousandths of a CPU: "250m". Values of the setting do
// not have it.
const ofNode = "m"

// WithCPU returns the same settings, but with the CPU that a node itself requests instead of the setting's value; 0:
// the node requests none.
func (s PodSettings) WithCPU(milli int) PodSettings {
	if milli <= 0 {
		return s
	}
	other := maps.Clone(s)
	other[GuaranteedInstanceManagerCPU] = strconv.Itoa(milli) + ofNode
	return other
}

// IsOfNode reports whether a value is requested by the node itself. Then the setting does not determine how pods on
// that node are created.
func IsOfNode(value string) bool { return strings.HasSuffix(value, ofNode) }

// CPURequest returns the guaranteed CPU in whole thousandths of a CPU: a part of the node's allocatable CPU, or the
// amount that the node itself requests. nil: no CPU is guaranteed.
func (s PodSettings) CPURequest(allocatable corev1.ResourceList) *resource.Quantity {
	if text, own := strings.CutSuffix(s[GuaranteedInstanceManagerCPU], ofNode); own {
		milli, err := strconv.ParseInt(text, 10, 64)
		if err != nil || milli <= 0 {
			return nil
		}
		return resource.NewMilliQuantity(milli, resource.DecimalSI)
	}
	percent, err := strconv.ParseFloat(s[GuaranteedInstanceManagerCPU], 64)
	milli := int64(math.Round(float64(allocatable.Cpu().MilliValue()) * percent / 100))
	if err != nil || milli <= 0 {
		return nil
	}
	return resource.NewMilliQuantity(milli, resource.DecimalSI)
}

// qualified and labelValue match the labels and taints that Kubernetes accepts, and also longer texts.
const (
	qualified  = `([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?`
	labelValue = `([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?`
)

var (
	tolerationEntries = types.EntryRule{
		Separator: ";", Pattern: `^` + qualified + `\s*(=\s*` + labelValue + `\s*)?(:\s*(NoSchedule|PreferNoSchedule|NoExecute)?)?$`,
		Says: "has the entry %q; each entry must be key=value:Effect or key:Effect with an effect of NoSchedule, PreferNoSchedule or NoExecute, and entries are separated by semicolons",
	}
	nodeSelectorEntries = types.EntryRule{
		Separator: ";", Pattern: `^` + qualified + `\s*:\s*` + labelValue + `$`,
		Says: "has the entry %q; each entry must be key:value, a label of nodes, and entries are separated by semicolons",
	}
)

func checkTolerations(text string) error {
	_, err := types.ParseTolerations(text)
	var bad *types.TolerationError
	if errors.As(err, &bad) {
		return fmt.Errorf(tolerationEntries.Says+"; this one has %w", bad.Entry, bad.Err)
	}
	return err
}

// parseNodeSelector reads "key:value;key2:value2". An empty text gives a nil selector.
func parseNodeSelector(text string) (map[string]string, error) {
	var selector map[string]string
	for _, part := range types.Entries(text) {
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
		return fmt.Errorf("is not the name of a PriorityClass: %s", strings.Join(problems, ", "))
	}
	return nil
}
