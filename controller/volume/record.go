package volume

import (
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// steadyAfter: a rebuilt replica that fails again sooner has failed in a row.
const steadyAfter = 10 * time.Minute

// record returns the replicas with what became of each written into its spec. If the spec
// changes, the replica is a new object, and that of the input is left as it is.
func record(in Input, c copies) copies {
	recorded := copies{known: c.known}
	for _, v := range c.list {
		spec := recordOf(v, in.Now)
		if v.DeletionTimestamp == nil {
			spec.DesireState = longhorn.DesireStateRunning
		}
		if spec != v.Spec {
			v.Replica = v.DeepCopy()
			v.Spec = spec
		}
		recorded.list = append(recorded.list, v)
	}
	return recorded
}

// recordOf says when a replica became a member, and when it ceased to be one.
//
//	replica                                       failedAt  healthyAt  retry count
//	member, serves                                ""        first seen as it was
//	was a member                                  now                  +1 if it had just been rebuilt, else 0
//	its rebuild failed                            now       ""         +1
//	never was a member, and is down               now
//
// For a member, and a replica whose rebuild failed, it also notes the process that serves
// it: a replica that was restarted since has a shorter delay (types.RebuildDelay).
//
// The count stays when a rebuild succeeds, and goes only when the replica has lasted: a
// replica on a disk that is too slow to be a member for long is not rebuilt for ever.
func recordOf(v copyView, at time.Time) longhorn.ReplicaSpec {
	s, was, now := v.Spec, v.Spec, types.Timestamp(at)
	switch {
	case v.isHealthy():
		if was.FailedAt != "" || was.HealthyAt == "" {
			s.FailedAt, s.HealthyAt, s.LastHealthyAt = "", now, now
		}
		s.ServedUUID = v.Status.UUID
	case v.member || v.DeletionTimestamp != nil || v.underway:
	case was.HealthyAt != "" && was.FailedAt == "":
		s.FailedAt, s.LastFailedAt = now, now
		s.RebuildRetryCount = 0
		if was.LastFailedAt != "" && types.Until(was.HealthyAt, steadyAfter, at) > 0 {
			s.RebuildRetryCount = was.RebuildRetryCount + 1
		}
	case v.asked && v.tried && v.mode == longhorn.ReplicaModeERR && types.RebuildDelay(&was, v.Status.UUID, at) == 0:
		// A rebuild begins when the delay is over: within the delay this one was counted.
		s.FailedAt, s.LastFailedAt, s.ServedUUID, s.HealthyAt = now, now, v.Status.UUID, ""
		s.RebuildRetryCount++
	case was.FailedAt == "" && v.down:
		s.FailedAt, s.LastFailedAt = now, now
	}
	return s
}
