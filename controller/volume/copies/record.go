package copies

import (
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// steadyAfter is how long a rebuilt replica must last. If it fails again sooner, that counts as another failure in a
// row.
const steadyAfter = 10 * time.Minute

// record returns the replicas with their current state recorded in their specs. A replica with a changed spec is a new
// object; the object of the input stays unchanged.
func record(in Facts, c State) State {
	recorded := State{Known: c.Known}
	for _, v := range c.List {
		spec := recordOf(v, in.Now)
		if v.DeletionTimestamp == nil {
			spec.DesireState = longhorn.DesireStateRunning
		}
		if spec != v.Spec {
			v.Replica = v.DeepCopy()
			v.Spec = spec
		}
		recorded.List = append(recorded.List, v)
	}
	return recorded
}

// recordOf records when a replica became a member, and when it stopped being one.
//
//	replica                                       failedAt  healthyAt  retry count
//	member, serves                                ""        first seen as it was
//	was a member                                  now                  +1 if it had just been rebuilt, else 0
//	its rebuild failed                            now       ""         +1
//	never was a member, and is down               now
//
// For a member, and for a replica with a failed rebuild, it also records the process that serves the replica. If the
// replica is restarted in another process, its delay is shorter (types.RebuildDelay).
//
// The count stays when a rebuild succeeds. It is reset only when the replica fails after it has lasted. So a replica
// on a disk that is too slow to stay a member is not rebuilt without end.
func recordOf(v View, at time.Time) longhorn.ReplicaSpec {
	s, was, now := v.Spec, v.Spec, types.Timestamp(at)
	switch {
	case v.IsHealthy():
		if was.FailedAt != "" || was.HealthyAt == "" {
			s.FailedAt, s.HealthyAt, s.LastHealthyAt = "", now, now
		}
		s.ServedUUID = v.Status.UUID
	case v.member || v.DeletionTimestamp != nil || v.Underway:
	case was.HealthyAt != "" && was.FailedAt == "":
		s.FailedAt, s.LastFailedAt = now, now
		s.RebuildRetryCount = 0
		if was.LastFailedAt != "" && types.Until(was.HealthyAt, steadyAfter, at) > 0 {
			s.RebuildRetryCount = was.RebuildRetryCount + 1
		}
	case v.asked && v.tried && v.mode == longhorn.ReplicaModeERR && types.RebuildDelay(&was, v.Status.UUID, at) == 0:
		// A rebuild starts when the delay is over. Within the delay, this failure was counted already.
		s.FailedAt, s.LastFailedAt, s.ServedUUID, s.HealthyAt = now, now, v.Status.UUID, ""
		s.RebuildRetryCount++
	case was.FailedAt == "" && v.down:
		s.FailedAt, s.LastFailedAt = now, now
	}
	return s
}
