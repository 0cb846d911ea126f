package types

// Phase is what a node's instance manager says of a replica or an engine.
type Phase string

// The phases. PhaseUnknown: the instance manager did not answer yet, so nothing may be concluded. PhaseAbsent: it answers, and does
// not host the instance.
const (
	PhaseUnknown  Phase = "unknown"
	PhaseAbsent   Phase = "absent"
	PhaseStarting Phase = "starting"
	PhaseRunning  Phase = "running"
	PhaseStopping Phase = "stopping"
	PhaseError    Phase = "error"
)
