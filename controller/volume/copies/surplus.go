package copies

import (
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// surplusWait is the time for which good replicas beyond the count stay after spec.numberOfReplicas was lowered.
// Clients of Longhorn lower the count first, and name the replica to remove in a second request. Other users only
// lower the count, and expect their space back soon.
const surplusWait = 5 * time.Minute

// SparedOf returns how many good replicas beyond the count are not deleted yet, and for how long.
//
//	status.observedReplicaCount   SurplusReplicas        spared
//	not above the count, or 0     any                    none
//	above it                      not True               the difference: the count was lowered just now
//	above it                      True, but not as long  the difference
//	above it                      True, for surplusWait  none: the manager chooses
//
// A strict-local volume leaves no choice: the replica on the node where the volume is used stays.
func SparedOf(in Facts) (n int, left time.Duration) {
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
