package volume

import (
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// cleanUp gives up a copy that is not needed any more, one at a time, and none while
// anything else about the copies changes.
//
//	copy                                           given up
//	member                                         never
//	being rebuilt, or asked for                    no
//	no other healthy copy that was noted as such   no
//	as many healthy ones as are asked for          yes
//	failed longer than staleReplicaTimeout ago     yes
//	else                                           no
//
// It is planned only while an engine serves the volume: then, and only then, it is known
// which copies hold the data.
func cleanUp(in Input, c copies, p *Plan) {
	if p.UpdateEngine != nil || len(p.UpdateReplicas) > 0 || len(p.CreateReplicas) > 0 {
		return
	}
	enough := c.healthy() >= in.Volume.Spec.NumberOfReplicas
	for _, v := range c.list {
		if v.member || v.asked || v.mode == longhorn.ReplicaModeWO || v.mode == longhorn.ReplicaModeRW || v.DeletionTimestamp != nil {
			continue
		}
		if !c.hasOtherThan(v.Name) || !enough && !isStale(in, v, p) {
			continue
		}
		p.Surplus = &Surplus{Replica: v.Replica, Engine: in.Engine}
		return
	}
}

// hasOtherThan tells whether another copy serves now and was noted to be good: a second
// witness beside the engine's word.
func (c copies) hasOtherThan(name string) bool {
	for _, v := range c.list {
		if v.Name != name && v.isHealthy() && v.Spec.LastHealthyAt != "" {
			return true
		}
	}
	return false
}

// isStale tells whether a copy failed so long ago that the user gave it up beforehand.
func isStale(in Input, v copyView, p *Plan) bool {
	timeout := time.Duration(in.Volume.Spec.StaleReplicaTimeout) * time.Minute
	if timeout <= 0 || v.Spec.FailedAt == "" {
		return false
	}
	left := types.Until(v.Spec.FailedAt, timeout, in.Now)
	p.again(left)
	return left == 0
}
