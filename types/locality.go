package types

import (
	"fmt"
	"slices"
	"strings"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// IsStrictLocal reports whether a volume can be attached only on the node that has its one replica.
func IsStrictLocal(v *longhorn.Volume) bool {
	return v.Spec.DataLocality == longhorn.DataLocalityStrictLocal
}

// FillCopies sets the data locality and the number of replicas of a new volume that does not specify them. The values
// come from the settings default-data-locality and default-replica-count. A strict-local volume has one replica. If
// the setting is strict-local and the volume requests more replicas or is shared, the volume gets best-effort, which
// is the closest possible locality.
func FillCopies(spec *longhorn.VolumeSpec, locality longhorn.DataLocality, replicas int) {
	if spec.DataLocality == "" {
		spec.DataLocality = locality
		if locality == longhorn.DataLocalityStrictLocal && (spec.NumberOfReplicas > 1 || spec.AccessMode == longhorn.AccessModeReadWriteMany) {
			spec.DataLocality = longhorn.DataLocalityBestEffort
		}
	}
	FillReplicas(spec, replicas)
}

// FillReplicas sets the number of replicas of a volume that does not specify it.
func FillReplicas(spec *longhorn.VolumeSpec, replicas int) {
	switch {
	case spec.NumberOfReplicas != 0:
	case spec.DataLocality == longhorn.DataLocalityStrictLocal:
		spec.NumberOfReplicas = 1
	default:
		spec.NumberOfReplicas = replicas
	}
}

// StrictLocalNodes returns the only nodes on which a strict-local volume may be attached, sorted: the nodes of the
// replicas with all its data. There are several if the volume had more replicas when it became strict-local. The node
// of a replica that is down counts, too. nil means that the volume may be attached anywhere: it is not strict-local,
// has no data yet, or has lost the replicas that held its data. In the last case the volume does not start and
// reports the reason. The engine may be nil.
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

// mayHoldData reports whether a replica is a member of the recorded epoch. Without a recorded epoch it reports
// whether the replica has ever been good.
func mayHoldData(e *longhorn.Engine, r *longhorn.Replica) bool {
	if e == nil || e.Status.Epoch == nil {
		return r.Spec.LastHealthyAt != ""
	}
	return slices.Contains(e.Status.Epoch.Members, r.Name)
}

// StrictLocalRefusal returns the reason why a volume cannot be attached to a node, given the nodes of
// StrictLocalNodes. "" means that these nodes permit it. volume is the name of the volume, or its VolumeText.
func StrictLocalRefusal(volume, node string, nodes []string) string {
	switch {
	case len(nodes) == 0 || slices.Contains(nodes, node):
		return ""
	case len(nodes) == 1:
		return fmt.Sprintf("volume %q cannot be attached to node %q: its dataLocality is strict-local, and its data is on node %q", volume, node, nodes[0])
	}
	return fmt.Sprintf("volume %q cannot be attached to node %q: its dataLocality is strict-local, and its data is on nodes %s", volume, node, strings.Join(nodes, ", "))
}
