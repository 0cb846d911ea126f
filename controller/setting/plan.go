package setting

import (
	"fmt"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// plan decides a setting's status.
func plan(s *longhorn.Setting, now time.Time) longhorn.SettingStatus {
	status := *s.Status.DeepCopy()
	c := valid(types.SettingName(s.Name), s.Value)
	status.Applied = c.Status == longhorn.ConditionTrue
	status.Conditions, _ = types.SetCondition(status.Conditions, c, now)
	return status
}

// valid is the condition of that name; its message says which value is in force.
func valid(name types.SettingName, value string) longhorn.Condition {
	c := longhorn.Condition{Type: types.ConditionValid, Status: longhorn.ConditionFalse}
	definition, ok := types.DefinitionOf(name)
	if !ok {
		c.Reason = types.ReasonUnknownName
		c.Message = fmt.Sprintf("there is no setting %s; nobody reads this value", name)
		return c
	}
	if err := types.CheckSetting(name, value); err != nil {
		c.Reason = types.ReasonInvalidValue
		c.Message = fmt.Sprintf("%v; the default %s is in force", err, definition.Default)
		return c
	}
	c.Status = longhorn.ConditionTrue
	c.Message = fmt.Sprintf("the value %s is in force", types.SettingString(name, value))
	return c
}
