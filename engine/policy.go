package engine

import (
	"errors"

	"github.com/longhorn-lep/longhorn-manager/nbd"
)

// outcome is how one member ended one change, as far as the policy cares.
type outcome int

const (
	// stored: the member has the change.
	stored outcome = iota
	// noSpace: the member is healthy but full. Any part of the range may have changed.
	noSpace
	// unsupported: the member does not offer this kind of change and did nothing.
	unsupported
	// broken: everything else, unknown outcomes included: the member may or may not have the change, and serves nothing more.
	broken
)

// err says an outcome as an error.
func (o outcome) err() error {
	switch o {
	case stored:
		return nil
	case noSpace:
		return nbd.ENOSPC
	case unsupported:
		return nbd.ENOTSUP
	}
	return nbd.EIO
}

// classify reads a member's error. A flush has no gentle failures: which earlier change could not be made durable is not known.
func classify(k kind, err error) outcome {
	switch {
	case err == nil:
		return stored
	case k == kindFlush:
		return broken
	case errors.Is(err, nbd.ErrUnknownOutcome), errors.Is(err, nbd.ErrNotSent):
		return broken
	case errors.Is(err, nbd.ENOSPC):
		return noSpace
	case errors.Is(err, nbd.ENOTSUP):
		return unsupported
	}
	return broken
}

// verdict is what to do when all members have answered a change.
type verdict struct {
	// err is the answer to the user; nil only when every member has stored the change.
	err error
	// failed are the members, by index, that may lack a change which another member has.
	failed []int
	// uneven says that the members may hold different data in the range, though all of them are healthy: the range must stay
	// marked until it was made equal.
	uneven bool
}

// judge is the error policy of changes.
//
//	all stored               → acknowledged
//	all full                 → ENOSPC, the engine goes on; the range stays marked, for each may have stored another part
//	all refuse the kind      → ENOTSUP, the engine goes on
//	anything else            → EIO; those that did not store it have failed
//
// A failed member stops the engine in this version. Its expulsion by a new epoch, after which the change may be acknowledged by
// the others, comes in here: as a verdict that names the remaining members and waits for the record.
func judge(outcomes []outcome) verdict {
	var count [broken + 1]int
	for _, o := range outcomes {
		count[o]++
	}
	switch n := len(outcomes); {
	case n > 0 && count[stored] == n:
		return verdict{}
	case n > 0 && count[noSpace] == n:
		return verdict{err: nbd.ENOSPC, uneven: true}
	case n > 0 && count[unsupported] == n:
		return verdict{err: nbd.ENOTSUP}
	}
	v := verdict{err: nbd.EIO, uneven: true}
	for i, o := range outcomes {
		if o != stored {
			v.failed = append(v.failed, i)
		}
	}
	return v
}
