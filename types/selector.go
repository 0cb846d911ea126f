package types

// ShareManagerSelector has the labels by which the pod of a volume's share manager is found. The Service has them, too.
func ShareManagerSelector(volume string) map[string]string {
	return map[string]string{LabelManagedBy: ManagedByManager, LabelComponent: ComponentShareManager, LabelShareManager: volume}
}

// InstanceManagerSelector has the labels by which a node's instance manager's pod is found.
func InstanceManagerSelector(node string) map[string]string {
	return map[string]string{LabelManagedBy: ManagedByManager, LabelComponent: ComponentInstanceManager, LabelNodeName: NodeLabel(node)}
}
