package share

import (
	"time"

	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
)

// epochs gives each server of this process an epoch, even while the volume does not answer.
type epochs struct {
	v     *volume
	known ganesha.Epochs
	busy  chan struct{} // has a value while a question to the volume is open
	last  uint32        // that next returned
}

func newEpochs(v *volume) *epochs {
	return &epochs{v: v, known: ganesha.Epochs{Recovery: v.recovery}, busy: make(chan struct{}, 1)}
}

// next returns a greater epoch than the previous server had, and makes it durable. A volume that does not answer in
// time must not delay a server: in that case the epoch is greater than those of this process.
func (e *epochs) next() uint32 {
	now := time.Now()
	answered := make(chan uint32, 1)
	e.v.within(abandonTimeout, func() {
		e.busy <- struct{}{} // an earlier question may still wait for the volume
		defer func() { <-e.busy }()
		next, err := e.known.Next(now)
		if err != nil {
			e.v.log.WithError(err).Warn("Cannot store the epoch of the NFS server on the volume. A later server on a node with a wrong clock could use the same epoch")
		}
		answered <- next
	})
	select {
	case next := <-answered:
		e.last = max(e.last+1, next)
	default:
		e.last = max(e.last+1, uint32(now.Unix()))
	}
	return e.last
}
