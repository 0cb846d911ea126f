package engine

import (
	"errors"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// Phase is the current phase of an engine's life.
type Phase string

// An engine goes from Starting to Running to Stopping to Stopped, or from any of the first three to Error. Only Stop
// ends the phase Error.
const (
	PhaseStarting Phase = "Starting"
	PhaseRunning  Phase = "Running" // the volume is served; if there is a frontend, the endpoint exists
	PhaseStopping Phase = "Stopping"
	PhaseStopped  Phase = "Stopped"
	PhaseError    Phase = "Error" // nothing is acknowledged from now on; Reason says why
)

// These are the reasons of PhaseError.
const (
	ReasonNoMembers      = "NoMembers"      // the volume has no replica
	ReasonMemberMissing  = "MemberMissing"  // no member of the epoch could be opened
	ReasonMemberMismatch = "MemberMismatch" // a replica has another uid, size or region size
	ReasonRolledBack     = "RolledBack"     // a replica shows a newer epoch than the API object
	ReasonNotEmpty       = "NotEmpty"       // a replica of a new volume shows an epoch
	ReasonFenced         = "Fenced"         // a replica has admitted a higher generation
	ReasonMemberFailed   = "MemberFailed"   // the connection to the last member ended
	ReasonResyncFailed   = "ResyncFailed"   // marked regions could not be made equal
	ReasonWritesLost     = "WritesLost"     // no member has all that the users of a kept device have written
	ReasonFrontendFailed = "FrontendFailed" // the device could not be created
	ReasonInterrupted    = "Interrupted"    // stopped while starting, or by force
	// ReasonSnapshotMismatch: the API object and the replicas have two points with one number.
	ReasonSnapshotMismatch = "SnapshotMismatch"
	// ReasonLineFailed: no member could bring its layers in order with the line.
	ReasonLineFailed = "LineFailed"
)

// These are the modes of a member.
const (
	ModeRW  = "RW"  // serves
	ModeWO  = "WO"  // is being rebuilt: written, never read
	ModeERR = "ERR" // has failed in this session
)

// MemberState is the engine's view of one replica.
type MemberState struct {
	Name       string
	Mode       string // ModeRW, ModeWO, ModeERR
	Error      string // of ModeERR
	Rebuilding bool   // a copy to it is under way; with ModeWO only
	Progress   int    // of the rebuild in percent; 100 when it has become a member by it
	CopyBytes  int64  // how much of the volume the current rebuild copies, holes included; 0 until that is known
	Partial    bool   // CopyBytes covers only what the replica lacks
}

// State is a snapshot.
type State struct {
	Phase    Phase
	Reason   string // CamelCase, of PhaseError
	Message  string // for administrators
	Endpoint string // path of the device, if there is a frontend
	// SizeBytes is the size that a running engine offers its users.
	SizeBytes int64
	// ProposedEpoch must be written to the API object, and RecordEpoch called, before the engine continues; zero if no
	// epoch is proposed.
	ProposedEpoch membership.Epoch
	// ProposedLine must be written to the API object together with ProposedEpoch, in one write; nil if the line stays as
	// it is. RecordEpoch confirms both.
	ProposedLine *layers.Line
	// Line is the line in force: as the API object had it, as far as the caller has told the engine.
	Line layers.Line
	// Adopted and Lost are what the start has found out about the line (layers.Start).
	Adopted, Lost []layers.Point
	// Epoch is in force: the API object and all members hold it, except members that have failed since.
	Epoch membership.Epoch
	// Shown is the newest epoch of a replica, if the engine failed because Config.Recorded does not follow it; else
	// zero.
	Shown membership.Epoch
	// Members has, ordered by name, the members of the epoch, the replica that is being rebuilt, and the replicas that
	// failed in this session. After a failed start it has the replicas that were refused.
	Members []MemberState
}

// State returns a snapshot.
func (e *Engine) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.state
	s.Members = slices.Clone(s.Members)
	return s
}

// update changes the state and calls OnChange.
func (e *Engine) update(change func(s *State)) {
	e.mu.Lock()
	change(&e.state)
	e.mu.Unlock()
	e.cfg.OnChange()
}

// failure is the reason why an engine cannot continue.
type failure struct {
	reason  string
	members []MemberState // the members at fault, with ModeERR
	shown   membership.Epoch
	err     error
}

// fail ends the engine's service, once: from here on nothing is acknowledged, and the connections are closed. A failure
// while the connections are already being closed has no effect.
func (e *Engine) fail(f failure) {
	e.mu.Lock()
	if e.ctx.Err() != nil {
		e.mu.Unlock()
		return
	}
	if errors.Is(f.err, ErrFenced) {
		f.reason = ReasonFenced
	}
	e.state.Phase, e.state.Reason, e.state.Message = PhaseError, f.reason, f.err.Error()
	e.state.ProposedEpoch, e.state.ProposedLine, e.state.Shown = membership.Epoch{}, nil, f.shown
	for _, m := range f.members {
		e.state.set(m)
	}
	e.mirror.gate.fail()
	e.cancel()
	e.mu.Unlock()
	e.log.WithError(f.err).WithField("reason", f.reason).Warn("Engine failed and no longer serves the volume")
	e.cfg.OnChange()
}

// set sets the state of a member in the list.
func (s *State) set(m MemberState) {
	i, found := slices.BinarySearchFunc(s.Members, m.Name, func(o MemberState, name string) int { return compareNames(o.Name, name) })
	if found {
		s.Members[i] = m
	} else {
		s.Members = slices.Insert(s.Members, i, m)
	}
}
