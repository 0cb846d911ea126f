package setting

import (
	"fmt"
	"time"

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
	Now      time.Time
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
		status := statusOf(in.Setting, in.Now)
		return Plan{Status: &status}
	}
	definition, ok := types.DefinitionOf(in.Name)
	if !ok || definition.Effect == types.SettingEffectNone {
		return Plan{} // what does not act is not made: it would look as if it did
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
func statusOf(s *longhorn.Setting, now time.Time) longhorn.SettingStatus {
	status := *s.Status.DeepCopy()
	c := valid(s)
	status.Applied = c.Status == longhorn.ConditionTrue && c.Reason == ""
	if c.Reason != types.ReasonUnknownName { // what another release wrote of its own setting stays
		status.ValueInForce = types.ValueInForce(s)
	}
	status.Conditions, _ = types.SetCondition(status.Conditions, c, now)
	return status
}

// valid is the condition of that name; its message says which value is in force.
func valid(s *longhorn.Setting) longhorn.Condition {
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
	c.Status = longhorn.ConditionTrue
	c.Message = fmt.Sprintf("the value %s is in force", inForce)
	if definition.Effect == types.SettingEffectNone {
		c.Reason = types.ReasonNoEffectYet
		c.Message = fmt.Sprintf("the value %s is valid, but this release does not act on the setting yet", inForce)
	}
	return c
}
