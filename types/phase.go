package types

// Phase is the state of a replica or an engine, as its node's instance manager reports it.
type Phase string

// The phases.
//
//	PhaseUnknown  the instance manager has not answered yet, so no conclusion is allowed
//	PhaseAbsent   the instance manager answers, and does not host the instance
//	PhaseKept     the process that ran the engine has exited; the engine's device survived it, its users wait,
//	              and another engine may take the device over
const (
	PhaseUnknown  Phase = "unknown"
	PhaseAbsent   Phase = "absent"
	PhaseKept     Phase = "kept"
	PhaseStarting Phase = "starting"
	PhaseRunning  Phase = "running"
	PhaseStopping Phase = "stopping"
	PhaseError    Phase = "error"
)

// Refusal is an error of an instance manager that users see, and that an immediate retry of the call will not fix.
// Examples: the data on the disk does not belong to this replica, the disk fails, or a higher generation has been
// there.
type Refusal struct {
	Reason  string // CamelCase, from the data plane
	Message string
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }
