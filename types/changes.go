package types

import longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"

// FlippedConditions returns the conditions of after whose status differs from before, in their order. A condition
// that is missing in before counts as Unknown. An Event reports each of them, with EventReason as its reason.
func FlippedConditions(before, after []longhorn.Condition) []longhorn.Condition {
	var flipped []longhorn.Condition
	for _, c := range after {
		if FindCondition(before, c.Type).Status != c.Status {
			flipped = append(flipped, c)
		}
	}
	return flipped
}

// EventReason is the reason of the Event about a condition whose good state is True. A list of Events shows little
// more than reasons. So the reason must not be "Ready" for an object that is not ready.
func EventReason(c longhorn.Condition) string {
	switch {
	case c.Status == longhorn.ConditionTrue:
		return c.Type
	case c.Reason != "":
		return c.Reason
	}
	return "Not" + c.Type
}
