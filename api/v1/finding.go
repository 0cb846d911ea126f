package v1

// Finding is one deviation from the requested state. The page shows the same findings as kubectl longhorn explain.
type Finding struct {
	Resource
	// Object names the object that it is about.
	Object FindingObject `json:"object"`
	// Severity is error, warning or info.
	Severity string `json:"severity"`
	// Reason is a CamelCase word for programs: the reason of the condition, if there is one.
	Reason string `json:"reason"`
	// What describes the problem. It is a sentence without its full stop, as in the fields below.
	What string   `json:"what"`
	Why  []string `json:"why"`
	Next []Step   `json:"next"`
}

// FindingObject names an object. Kind is volume, engine, replica, ticket, node, disk, instance manager, share manager,
// snapshot, setting or installation.
type FindingObject struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Node is the node of a disk or replica.
	Node string `json:"node"`
	// Volume is the volume of an engine, replica, ticket, snapshot or share manager, or the volume itself; empty for other kinds.
	Volume string `json:"volume"`
}

// Step is an action that a person takes next.
type Step struct {
	Text string `json:"text"`
	// Command is a line for a POSIX shell; empty if no command helps.
	Command string `json:"command"`
}
