package layers

import "errors"

var (
	// ErrNoRoom says that a member's disk is below the space that it keeps free.
	ErrNoRoom = errors.New("a disk is below its minimal available space")
	// ErrUneven says that members may differ in a region, because all of them ran out of space in the middle of a write.
	ErrUneven = errors.New("a region of the volume differs between replicas until there is space")
	// ErrNotPrepared says that a member has no next head. It stays a member; the attempt ends.
	ErrNotPrepared = errors.New("a replica could not prepare for the snapshot")
	// ErrLate says that changes under way were not answered by the deadline of the gate.
	ErrLate = errors.New("the requests in progress took too long")
)

// Volume has the facts that decide whether a snapshot may start.
type Volume struct {
	Expanding   bool
	Operation   bool // another snapshot, or a revert, is under way
	RebuildEnds bool // the target of a rebuild has joined, and its last part is under way
	NoRoom      bool // on the disk of any member
	Files       int  // the most that a member has, with one for each layer that was deleted or given up
	Limit       int  // snapshot-max-count, at most MostFiles
}

// MayIntend decides whether a snapshot may start. A rebuild before its last part does not prevent it.
func MayIntend(v Volume) error {
	switch {
	case v.Expanding, v.Operation, v.RebuildEnds:
		return ErrBusy
	case v.NoRoom:
		return ErrNoRoom
	case v.Files >= min(v.Limit, MostFiles):
		return ErrManyFiles
	}
	return nil
}

// Gate has the facts that decide whether the members may switch, while the gate is shut.
type Gate struct {
	Prepared bool // all members of the epoch in force have the next head
	Leaving  bool // a member has failed and is still listed
	Uneven   bool
	Late     bool
	UnderWay int // changes that are not answered yet
}

// MaySwitch decides the next act of an engine whose gate is shut. It waits while changes are under way. After an error
// it opens the gate and ends the attempt.
func MaySwitch(g Gate) (now bool, err error) {
	switch {
	case !g.Prepared:
		return false, ErrNotPrepared
	case g.Leaving:
		return false, ErrBusy
	case g.Uneven:
		return false, ErrUneven
	case g.UnderWay > 0 && g.Late:
		return false, ErrLate
	}
	return g.UnderWay == 0, nil
}

// BarrierStep is one step of a snapshot.
type BarrierStep int

const (
	RecordIntended BarrierStep = iota // the object
	PrepareHeads                      // all members: the files, then the list
	ShutGate
	Drain       // changes under way are answered
	SwitchHeads // all members, in memory
	OpenGate
	FlushAll     // all members, every unsealed file
	StoreFlushed // all members (OpSealed)
	RecordReady  // the object
)

// Waits reports whether the step waits for a disk or for the API server. No such step may stand between ShutGate and
// OpenGate: users wait there.
func (s BarrierStep) Waits() bool {
	switch s {
	case ShutGate, Drain, SwitchHeads, OpenGate:
		return false
	}
	return true
}

// BarrierSteps is their order.
func BarrierSteps() []BarrierStep {
	return []BarrierStep{
		RecordIntended, PrepareHeads, ShutGate, Drain, SwitchHeads, OpenGate, FlushAll, StoreFlushed, RecordReady,
	}
}
