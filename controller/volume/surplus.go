package volume

import (
	"fmt"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// surplusWaits reports which replicas are beyond the count since it was lowered, and when the manager deletes them.
// After that time, or when enough of them are gone, the present count is recorded as the one that was acted on.
func surplusWaits(in Input, c copies.State, p *Plan) {
	good := goodCopies(in, c)
	spared, left := copies.SparedOf(in.Facts)
	text := ""
	if excess := len(good) - in.Volume.Spec.NumberOfReplicas; spared > 0 && excess > 0 {
		text = fmt.Sprintf("numberOfReplicas is %d, but there are %d healthy replicas: %s. Remove or evict the ones you do not need; after %s, the manager removes %d when the volume is attached",
			in.Volume.Spec.NumberOfReplicas, len(good), strings.Join(good, ", "), types.Timestamp(in.Now.Add(left)), min(excess, spared))
		p.again(left)
	} else {
		p.Status.ObservedReplicaCount = in.Volume.Spec.NumberOfReplicas
	}
	sayWhile(in, p, types.ConditionSurplusReplicas, types.ReasonReplicaCountLowered, text)
}

// goodCopies names the replicas that are good as far as is known. In a volume that is not served, these are the
// replicas that have not failed.
func goodCopies(in Input, c copies.State) []string {
	var names []string
	for _, v := range c.List {
		isGood := v.IsHealthy()
		if !c.Known {
			isGood = types.Stays(v.Replica) && v.Spec.FailedAt == ""
		}
		if isGood {
			names = append(names, fmt.Sprintf("%s on node %s", v.Name, v.Spec.NodeID))
		}
	}
	return names
}
