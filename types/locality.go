package types

import (
	"fmt"
	"slices"
	"strings"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// IsStrictLocal tells whether a volume has its one replica where it is attached, and is attached nowhere else.
func IsStrictLocal(v *longhorn.Volume) bool {
	return v.Spec.DataLocality == longhorn.DataLocalityStrictLocal
}

// FillCopies sets the data locality and the number of replicas of a new volume that does not say, by the settings
// default-data-locality and default-replica-count. A strict-local volume has one replica. Where the setting says strict-local
// and the volume asks for more replicas or is shared, it gets best-effort: that is as near as it may come.
func FillCopies(spec *longhorn.VolumeSpec, locality longhorn.DataLocality, replicas int) {
	if spec.DataLocality == "" {
		spec.DataLocality = locality
		if locality == longhorn.DataLocalityStrictLocal && (spec.NumberOfReplicas > 1 || spec.AccessMode == longhorn.AccessModeReadWriteMany) {
			spec.DataLocality = longhorn.DataLocalityBestEffort
		}
	}
	FillReplicas(spec, replicas)
}

// FillReplicas sets the number of replicas of a volume that does not say.
func FillReplicas(spec *longhorn.VolumeSpec, replicas int) {
	switch {
	case spec.NumberOfReplicas != 0:
	case spec.DataLocality == longhorn.DataLocalityStrictLocal:
		spec.NumberOfReplicas = 1
	default:
		spec.NumberOfReplicas = replicas
	}
}

// StrictLocalNodes are the nodes on which alone a strict-local volume may be attached, sorted: those of the replicas with all its data. There
// are several if it had more replicas when it became strict-local. nil: it may be attached anywhere, since it is not strict-local, has no data
// yet, or has lost the replicas that held it; then it does not start, and says so. The node of a replica that is down counts, too. The engine
// may be nil.
func StrictLocalNodes(v *longhorn.Volume, e *longhorn.Engine, replicas []*longhorn.Replica) []string {
	if !IsStrictLocal(v) {
		return nil
	}
	var nodes []string
	for _, r := range replicas {
		if r.Spec.NodeID != "" && mayHoldData(e, r) && !slices.Contains(nodes, r.Spec.NodeID) {
			nodes = append(nodes, r.Spec.NodeID)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// mayHoldData tells whether a replica is a member of the recorded epoch, or was seen to be good where none is recorded.
func mayHoldData(e *longhorn.Engine, r *longhorn.Replica) bool {
	if e == nil || e.Status.Epoch == nil {
		return r.Spec.LastHealthyAt != ""
	}
	return slices.Contains(e.Status.Epoch.Members, r.Name)
}

// StrictLocalRefusal says why a volume cannot be attached to a node, with the nodes of StrictLocalNodes; "": it can be as far as they say.
func StrictLocalRefusal(volume, node string, nodes []string) string {
	switch {
	case len(nodes) == 0 || slices.Contains(nodes, node):
		return ""
	case len(nodes) == 1:
		return fmt.Sprintf("volume %q cannot be attached to node %q: its dataLocality is strict-local, and its data is on node %q", volume, node, nodes[0])
	}
	return fmt.Sprintf("volume %q cannot be attached to node %q: its dataLocality is strict-local, and its data is on nodes %s", volume, node, strings.Join(nodes, ", "))
}
