package types

import "maps"

// ShareManagerSelector has the labels of a share's Service, and is the Service's selector. It selects the pods that a
// leader of an earlier release creates, so that Kubernetes keeps their addresses. It does not select pods with
// SharePodLabels.
func ShareManagerSelector(volume string) map[string]string {
	return map[string]string{LabelManagedBy: ManagedByManager, LabelComponent: ComponentShareManager, LabelShareManager: volume}
}

// SharePodLabels has the labels of a share's pod whose address the leader writes into an EndpointSlice of its own.
// They lack LabelManagedBy, so the Service's selector does not match the pod. Otherwise Kubernetes would write the
// address as well.
func SharePodLabels(volume string) map[string]string {
	labels := ShareManagerSelector(volume)
	maps.DeleteFunc(labels, func(key, _ string) bool { return key == LabelManagedBy })
	return labels
}

// InstanceManagerSelector selects the pod of a node's instance manager by its labels.
func InstanceManagerSelector(node string) map[string]string {
	return map[string]string{LabelManagedBy: ManagedByManager, LabelComponent: ComponentInstanceManager, LabelNodeName: NodeLabel(node)}
}
