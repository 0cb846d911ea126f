package replica

import (
	"sync/atomic"

	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

// layering is what a session has shown about its engine's knowledge of layers. It protects a replica of format 2
// against an engine of a release without points. Such an engine does not follow reverts. Suppose that it writes to a
// head which a recorded revert drops. Then the next engine's OpFollow would drop acknowledged writes.
//
// An engine with points records its epoch before it follows the line, so each has its own condition:
//
//	to change data     the session has followed a line, or started a rebuild of the layers
//	to store an epoch  the session has sent any operation of package points, as each such engine does first of all
//
// An engine that was admitted to a replica of format 1 may do both, because only its own OpPrepare or OpStartRebuild
// changes the format.
type layering struct{ knows, followed atomic.Bool }

// begin sets the state of a new session.
func (l *layering) begin(isLayered bool) {
	l.knows.Store(!isLayered)
	l.followed.Store(!isLayered)
}

// asked takes note of an operation.
func (l *layering) asked(op uint16) {
	if op >= points.OpState && op <= points.OpEndRebuild {
		l.knows.Store(true)
	}
}

// follow takes note that the layers have followed the engine's line. isShort means that the replica lacks a point to
// which the volume was reverted. Then only a rebuild may write to it.
func (l *layering) follow(isShort bool) {
	if !isShort {
		l.followed.Store(true)
	}
}

// checkChange refuses changes before the layers have followed the line.
func (l *layering) checkChange() error {
	if l.followed.Load() {
		return nil
	}
	return invalid("the replica has layers, and the engine has not brought them in order with the snapshots")
}

// checkEpoch refuses an epoch of an engine that knows nothing of points.
func (l *layering) checkEpoch() error {
	if l.knows.Load() {
		return nil
	}
	return invalid("the replica has layers, and the engine's release does not know them")
}
