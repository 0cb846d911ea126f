package api

import (
	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// objectsOf converts a list of views. The result is never nil, so that an empty list is written as [].
func objectsOf[V any, W v1.Object](views []V, convert func(V) W) []v1.Object {
	objects := make([]v1.Object, 0, len(views))
	for _, view := range views {
		objects = append(objects, convert(view))
	}
	return objects
}

// objectOf converts the result of a use case, unless it failed.
func objectOf[V any, W v1.Object](convert func(V) W) func(V, error) (v1.Object, error) {
	return func(view V, err error) (v1.Object, error) {
		if err != nil {
			return nil, err
		}
		return convert(view), nil
	}
}

func conditionOf(c manager.Condition) v1.Condition {
	return v1.Condition{
		Type: c.Type, Status: string(c.Status), LastProbeTime: c.LastProbeTime,
		LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
	}
}

func conditionsOf(list []manager.Condition) map[string]v1.Condition {
	byType := make(map[string]v1.Condition, len(list))
	for _, c := range list {
		byType[c.Type] = conditionOf(c)
	}
	return byType
}

func notNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func notNilMap[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}
