package types

import longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"

// FlippedConditions returns, in their order, the conditions of after whose status
// is not the one they have in before (Unknown where they are missing): those of
// which an Event tells, with EventReason as its reason.
func FlippedConditions(before, after []longhorn.Condition) []longhorn.Condition {
	var flipped []longhorn.Condition
	for _, c := range after {
		if FindCondition(before, c.Type).Status != c.Status {
			flipped = append(flipped, c)
		}
	}
	return flipped
}

// EventReason is the reason of the Event about a condition whose True is the good state. A list of Events shows little more than
// reasons, so it must not say Ready of what is not.
func EventReason(c longhorn.Condition) string {
	switch {
	case c.Status == longhorn.ConditionTrue:
		return c.Type
	case c.Reason != "":
		return c.Reason
	}
	return "Not" + c.Type
}
