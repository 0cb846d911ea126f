package volume

import (
	"fmt"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// evictionWaits reports on a detached volume which of its replicas must leave their disks. That needs an engine, so
// nothing happens before the volume is attached.
func evictionWaits(in Input, p *Plan) {
	var leaving []string
	for _, r := range in.Replicas {
		if in.Evicted[r.Name] && r.DeletionTimestamp == nil {
			leaving = append(leaving, fmt.Sprintf("replica %s on node %s", r.Name, r.Spec.NodeID))
		}
	}
	text := ""
	if len(leaving) > 0 && p.Status.State == longhorn.VolumeStateDetached {
		text = evictionWaitsFor(in.Volume) + ": " + strings.Join(leaving, ", ")
	}
	sayWhile(in, p, types.ConditionEvictionWaits, types.ReasonVolumeDetached, text)
}

// evictionWaitsFor says why a replica of a detached volume does not leave its disk yet.
func evictionWaitsFor(v *longhorn.Volume) string {
	const attached = "eviction waits until the volume is attached"
	if types.IsStrictLocal(v) {
		return attached + ", and then moves the replica only to another disk of the same node; " + copies.StrictLocalLeaves
	}
	return attached
}
