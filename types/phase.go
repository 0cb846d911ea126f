package types

// Phase is what a node's instance manager says of a replica or an engine.
type Phase string

// The phases. PhaseUnknown: the instance manager did not answer yet, so nothing may be concluded. PhaseAbsent: it answers, and does
// not host the instance. PhaseKept: it does not run the engine, for the process that did has ended; but the engine's device outlived
// that process, its users wait, and another engine may take it over.
const (
	PhaseUnknown  Phase = "unknown"
	PhaseAbsent   Phase = "absent"
	PhaseKept     Phase = "kept"
	PhaseStarting Phase = "starting"
	PhaseRunning  Phase = "running"
	PhaseStopping Phase = "stopping"
	PhaseError    Phase = "error"
)

// Refusal is an error of an instance manager that repeating the call at once will not mend, and that users are shown: what is on the
// disk is not this replica's, the disk fails, a higher generation was there.
type Refusal struct {
	Reason  string // CamelCase, from the data plane
	Message string
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }
