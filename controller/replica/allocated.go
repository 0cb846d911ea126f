package replica

import (
	"time"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// showEvery is the minimum time between two writes of the space that a replica uses.
const showEvery = 30 * time.Second

// showAllocated records the space that the data uses, when it has changed by a significant amount.
func showAllocated(in Input, p *Plan) {
	was, is := p.Status.AllocatedBytes, in.Observed.AllocatedBytes
	if change := max(is-was, was-is); change < types.AllocatedStep(int64(in.Replica.Spec.VolumeSize)) {
		return
	}
	if p.After = types.Until(p.Status.AllocatedAt, showEvery, in.Now); p.After > 0 {
		return
	}
	p.Status.AllocatedBytes, p.Status.AllocatedAt = is, types.Timestamp(in.Now)
}
