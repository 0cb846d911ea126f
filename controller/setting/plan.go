package setting

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Input is everything that the decision about a setting is based on.
type Input struct {
	Name settings.Name
	// Setting is nil if there is no object.
	Setting  *longhorn.Setting
	Defaults settings.DefaultSettings
	// Pods are the pods of this installation. The status of a setting for new pods names the pods that were created
	// with another value.
	Pods []*corev1.Pod
	// ClassMissing: the value names a PriorityClass that does not exist.
	ClassMissing bool
	Now          time.Time
}

// Plan is what to do; at most one of its fields is set. The object that Create or Update writes causes another sync.
type Plan struct {
	Create, Update *longhorn.Setting
	Status         *longhorn.SettingStatus
}

// plan decides about one setting.
func plan(in Input) Plan {
	switch {
	case in.Defaults.Pending(in.Name, in.Setting):
		return give(in)
	case in.Setting != nil:
		status := statusOf(in)
		return Plan{Status: &status}
	}
	definition, ok := settings.DefinitionOf(in.Name)
	if !ok || definition.Effect == settings.EffectNone || definition.ReadOnly {
		return Plan{} // a setting without effect gets no object, which would suggest an effect; REST shows read-only settings
	}
	return Plan{Create: &longhorn.Setting{ObjectMeta: metav1.ObjectMeta{Name: string(in.Name)}, Value: definition.Default}}
}

// give sets the setting to its value from the ConfigMap, and records the version of the ConfigMap.
func give(in Input) Plan {
	s := &longhorn.Setting{ObjectMeta: metav1.ObjectMeta{Name: string(in.Name)}}
	if in.Setting != nil {
		s = in.Setting.DeepCopy()
	}
	s.Value = in.Defaults.Values[in.Name]
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, types.AnnotationConfigMapVersion, in.Defaults.Version)
	if in.Setting == nil {
		return Plan{Create: s}
	}
	return Plan{Update: s}
}

// statusOf returns a setting's status.
func statusOf(in Input) longhorn.SettingStatus {
	s := in.Setting
	status := *s.Status.DeepCopy()
	c := in.valid()
	status.Applied = c.Status == longhorn.ConditionTrue && c.Reason == ""
	if c.Reason != types.ReasonUnknownName { // the value that another release wrote for its own setting stays
		status.ValueInForce = settings.ValueInForce(s)
	}
	status.Conditions, _ = types.SetCondition(status.Conditions, c, in.Now)
	if s.Name == string(settings.RESTTrustedNetwork) {
		status.Conditions = saysTrust(status.Conditions, settings.ValueInForce(s) == "true", in.Now)
	}
	return status
}

// saysTrust sets the condition TrustedNetwork.
func saysTrust(conditions []longhorn.Condition, isOn bool, now time.Time) []longhorn.Condition {
	c := longhorn.Condition{Type: types.ConditionTrustedNetwork, Status: longhorn.ConditionFalse, Message: "the REST API requires a credential"}
	if isOn {
		c.Status, c.Reason = longhorn.ConditionTrue, types.ReasonNoCredentialWanted
		c.Message = "the REST API answers requests without a credential: any client that reaches its port can delete volumes"
	}
	if !isOn && types.FindCondition(conditions, c.Type).Status == longhorn.ConditionUnknown {
		return conditions
	}
	conditions, _ = types.SetCondition(conditions, c, now)
	return conditions
}

// valid returns the condition Valid; its message shows the value in force.
func (in Input) valid() longhorn.Condition {
	s := in.Setting
	c := longhorn.Condition{Type: types.ConditionValid, Status: longhorn.ConditionFalse}
	name, inForce := settings.Name(s.Name), settings.ValueInForce(s)
	definition, ok := settings.DefinitionOf(name)
	if !ok {
		c.Reason = types.ReasonUnknownName
		c.Message = fmt.Sprintf("this release does not know setting %s and ignores it", name)
		return c
	}
	if err := settings.Check(name, s.Value); err != nil {
		c.Reason = types.ReasonInvalidValue
		c.Message = fmt.Sprintf("%v; the value %s stays in force", err, inForce)
		return c
	}
	if in.ClassMissing {
		c.Reason = types.ReasonInvalidValue
		c.Message = fmt.Sprintf("setting %s with invalid value %q: failed to get priority class %s: it does not exist; pods use the built-in class until it exists", name, inForce, inForce)
		return c
	}
	c.Status = longhorn.ConditionTrue
	c.Message = fmt.Sprintf("the value %s is in force", inForce)
	if others := madeOtherwise(name, inForce, in.Pods); len(others) > 0 {
		c.Reason = types.ReasonWaitsForPods
		c.Message = fmt.Sprintf("the value %s is valid and applies to new pods; %s created with another value: a pod that serves volumes is not restarted for a setting", inForce, listed(others))
	}
	if definition.Effect == settings.EffectNone {
		c.Reason = types.ReasonNoEffectYet
		c.Message = fmt.Sprintf("the value %s is valid, but this release does not act on the setting yet", inForce)
	}
	return c
}

// madeOtherwise returns the names of the pods that were created with another value of a setting. It omits a pod that
// was created with its node's own request, even if the node no longer has that request.
func madeOtherwise(name settings.Name, inForce string, pods []*corev1.Pod) []string {
	var others []string
	for _, pod := range pods {
		if value, concerned := settings.SettingsOfPod(pod)[name]; concerned && value != inForce && hasNotEnded(pod) && !settings.IsOfNode(value) {
			others = append(others, pod.Name)
		}
	}
	slices.Sort(others)
	return others
}

func hasNotEnded(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

// maxListed is the maximum number of pods that a message names.
const maxListed = 3

func listed(pods []string) string {
	switch {
	case len(pods) == 1:
		return "pod " + pods[0] + " was"
	case len(pods) > maxListed:
		return fmt.Sprintf("pods %s and %d more were", strings.Join(pods[:maxListed], ", "), len(pods)-maxListed)
	}
	return "pods " + strings.Join(pods, ", ") + " were"
}
