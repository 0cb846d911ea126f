package replica

import (
	"time"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// showEvery is how often at most the controller writes the space that a replica takes.
const showEvery = 30 * time.Second

// showAllocated writes down the space that the data takes, when it has changed by an amount
// that matters.
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
