package types

// InstanceManagerSelector has the labels by which a node's instance manager's pod is found.
func InstanceManagerSelector(node string) map[string]string {
	return map[string]string{LabelManagedBy: ManagedByManager, LabelComponent: ComponentInstanceManager, LabelNodeName: NodeLabel(node)}
}
