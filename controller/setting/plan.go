package setting

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Input is all that the decision about a setting rests on.
type Input struct {
	Name types.SettingName
	// Setting is nil where there is no object.
	Setting  *longhorn.Setting
	Defaults types.DefaultSettings
	// Pods are our own; of a setting that says how they are made, those that were made with another value are told.
	Pods []*corev1.Pod
	// ClassMissing: there is no PriorityClass of the name that is the value.
	ClassMissing bool
	Now          time.Time
}

// Plan is what is to be done; at most one of its fields is set. The object that Create or
// Update made brings the setting back.
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
	definition, ok := types.DefinitionOf(in.Name)
	if !ok || definition.Effect == types.SettingEffectNone || definition.ReadOnly {
		return Plan{} // what does not act is not made: it would look as if it did. What is told is REST's to tell
	}
	return Plan{Create: &longhorn.Setting{ObjectMeta: metav1.ObjectMeta{Name: string(in.Name)}, Value: definition.Default}}
}

// give has the setting take its value from the ConfigMap, and remember from which version.
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

// statusOf decides a setting's status.
func statusOf(in Input) longhorn.SettingStatus {
	s := in.Setting
	status := *s.Status.DeepCopy()
	c := in.valid()
	status.Applied = c.Status == longhorn.ConditionTrue && c.Reason == ""
	if c.Reason != types.ReasonUnknownName { // what another release wrote of its own setting stays
		status.ValueInForce = types.ValueInForce(s)
	}
	status.Conditions, _ = types.SetCondition(status.Conditions, c, in.Now)
	if s.Name == string(types.SettingRESTTrustedNetwork) {
		status.Conditions = saysTrust(status.Conditions, types.ValueInForce(s) == "true", in.Now)
	}
	return status
}

// saysTrust sets the condition TrustedNetwork.
func saysTrust(conditions []longhorn.Condition, isOn bool, now time.Time) []longhorn.Condition {
	c := longhorn.Condition{Type: types.ConditionTrustedNetwork, Status: longhorn.ConditionFalse, Message: "the REST API asks for a credential"}
	if isOn {
		c.Status, c.Reason = longhorn.ConditionTrue, types.ReasonNoCredentialWanted
		c.Message = "the REST API answers requests without a credential: whoever reaches its port may delete volumes"
	}
	if !isOn && types.FindCondition(conditions, c.Type).Status == longhorn.ConditionUnknown {
		return conditions
	}
	conditions, _ = types.SetCondition(conditions, c, now)
	return conditions
}

// valid is the condition of that name; its message says which value is in force.
func (in Input) valid() longhorn.Condition {
	s := in.Setting
	c := longhorn.Condition{Type: types.ConditionValid, Status: longhorn.ConditionFalse}
	name, inForce := types.SettingName(s.Name), types.ValueInForce(s)
	definition, ok := types.DefinitionOf(name)
	if !ok {
		c.Reason = types.ReasonUnknownName
		c.Message = fmt.Sprintf("this release knows no setting %s and leaves it alone", name)
		return c
	}
	if err := types.CheckSetting(name, s.Value); err != nil {
		c.Reason = types.ReasonInvalidValue
		c.Message = fmt.Sprintf("%v; the value %s stays in force", err, inForce)
		return c
	}
	if in.ClassMissing {
		c.Reason = types.ReasonInvalidValue
		c.Message = fmt.Sprintf("setting %s with invalid value %q: failed to get priority class %s: it does not exist; pods are made with the built-in one until there is one of that name", name, inForce, inForce)
		return c
	}
	c.Status = longhorn.ConditionTrue
	c.Message = fmt.Sprintf("the value %s is in force", inForce)
	if others := madeOtherwise(name, inForce, in.Pods); len(others) > 0 {
		c.Reason = types.ReasonWaitsForPods
		c.Message = fmt.Sprintf("the value %s is valid and counts for pods made from now on; %s made with another: pods that serve volumes are not ended for it", inForce, listed(others))
	}
	if definition.Effect == types.SettingEffectNone {
		c.Reason = types.ReasonNoEffectYet
		c.Message = fmt.Sprintf("the value %s is valid, but this release does not act on the setting yet", inForce)
	}
	return c
}

// madeOtherwise are the pods, by name, that were made with another value of a setting. A pod that was made with what its node asks for is
// none of them, whether or not the node still asks.
func madeOtherwise(name types.SettingName, inForce string, pods []*corev1.Pod) []string {
	var others []string
	for _, pod := range pods {
		if value, concerned := types.SettingsOfPod(pod)[name]; concerned && value != inForce && hasNotEnded(pod) && !types.IsOfNode(value) {
			others = append(others, pod.Name)
		}
	}
	slices.Sort(others)
	return others
}

func hasNotEnded(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

// maxListed bounds how many pods a message names.
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
