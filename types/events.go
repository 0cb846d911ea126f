package types

// Reasons of Events, as Longhorn's users look for them. An Event about a condition of
// a node or a disk has the condition's type as its reason.
const (
	EventAttached       = "Attached"
	EventDetached       = "Detached"
	EventDegraded       = "Degraded"
	EventFaulted        = "Faulted"
	EventHealthy        = "Healthy"
	EventStart          = "Start"
	EventStop           = "Stop"
	EventFailedStarting = "FailedStarting"
	EventFailedStopping = "FailedStopping"
	EventDelete         = "Delete"
	EventFailedDeleting = "FailedDeleting"
	EventRemount        = "Remount"

	// About a replica, told of its engine.
	EventRebuilding       = "Rebuilding"
	EventRebuilt          = "Rebuilt"
	EventFailedRebuilding = "FailedRebuilding"
	EventFailed           = "Failed"
)
