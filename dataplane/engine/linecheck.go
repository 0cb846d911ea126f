package engine

import (
	"errors"
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// ErrReverted refuses a line with another last revert than the line of the engine. Its members serve content from
// before the revert. They follow a revert only at a start.
var ErrReverted = errors.New("the volume was reverted while the engine runs; the engine must be restarted")

// mayReplace returns an error unless next can be a later version of the engine's line. An API object that was restored
// from a backup, or an older message, has a line that cannot: it has forgotten points, or gives a number out again. Then
// the line stays as it is. The next start compares the object with the replicas (layers.PlanStart).
func mayReplace(now, next layers.Line) error {
	if next.Counter < now.Counter {
		return fmt.Errorf("%w: its counter is %d, the line has %d", ErrOldLine, now.Counter, next.Counter)
	}
	if lastRevert(now) != lastRevert(next) {
		return fmt.Errorf("%w: revert %d, the engine has %d", ErrReverted, lastRevert(next).By, lastRevert(now).By)
	}
	for _, m := range now.Points {
		if st := next.State(m.Point); !mayBecome(m.State, st) {
			return fmt.Errorf("%w: point %d, nonce %d", ErrOldLine, m.Number, m.Nonce)
		}
	}
	for _, m := range next.Points {
		if m.Number <= now.Counter && now.State(m.Point) == layers.Unknown {
			return fmt.Errorf("%w: point %d, nonce %d, is not in it", ErrOldLine, m.Number, m.Nonce)
		}
	}
	return nil
}

// mayBecome reports whether a point of a line can have a state later. Unknown is a point that has left the line.
func mayBecome(now, later layers.State) bool {
	switch now {
	case layers.Ready: // it is deleted before it leaves the line, because members must merge it away first
		return later == layers.Ready || later == layers.Deleted
	case layers.Deleted:
		return later == layers.Deleted || later == layers.Unknown
	}
	return true
}

func lastRevert(l layers.Line) layers.Interval {
	if n := len(l.Reverted); n > 0 {
		return l.Reverted[n-1]
	}
	return layers.Interval{}
}
