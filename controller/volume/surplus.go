package volume

import (
	"fmt"
	"strings"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// surplusWait is the time for which good replicas beyond the count stay after spec.numberOfReplicas was lowered.
// Clients of Longhorn lower the count first, and name the replica to remove in a second request. Other users only
// lower the count, and expect their space back soon.
const surplusWait = 5 * time.Minute

// sparedOf returns how many good replicas beyond the count are not deleted yet, and for how long.
//
//	status.observedReplicaCount   SurplusReplicas        spared
//	not above the count, or 0     any                    none
//	above it                      not True               the difference: the count was lowered just now
//	above it                      True, but not as long  the difference
//	above it                      True, for surplusWait  none: the manager chooses
//
// A strict-local volume leaves no choice: the replica on the node where the volume is used stays.
func sparedOf(in Input) (n int, left time.Duration) {
	n = in.Volume.Status.ObservedReplicaCount - in.Volume.Spec.NumberOfReplicas
	if n <= 0 || types.IsStrictLocal(in.Volume) {
		return 0, 0
	}
	left = surplusWait
	if c := types.FindCondition(in.Volume.Status.Conditions, types.ConditionSurplusReplicas); c.Status == longhorn.ConditionTrue {
		left = types.Until(c.LastTransitionTime, surplusWait, in.Now)
	}
	if left <= 0 {
		return 0, 0
	}
	return n, left
}

// surplusWaits reports which replicas are beyond the count since it was lowered, and when the manager deletes them.
// After that time, or when enough of them are gone, the present count is recorded as the one that was acted on.
func surplusWaits(in Input, c copies, p *Plan) {
	good := goodCopies(in, c)
	spared, left := sparedOf(in)
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
func goodCopies(in Input, c copies) []string {
	var names []string
	for _, v := range c.list {
		isGood := v.isHealthy()
		if !c.known {
			isGood = types.Stays(v.Replica) && v.Spec.FailedAt == ""
		}
		if isGood {
			names = append(names, fmt.Sprintf("%s on node %s", v.Name, v.Spec.NodeID))
		}
	}
	return names
}
