package v1

// Finding is one thing that is not as it was asked for: what kubectl longhorn explain says, for a page.
type Finding struct {
	Resource
	// Object names what it is about.
	Object FindingObject `json:"object"`
	// Severity is error, warning or info.
	Severity string `json:"severity"`
	// Reason is a CamelCase word for programs: that of the condition where there is one.
	Reason string `json:"reason"`
	// What is wrong, a sentence without its full stop, as are the following.
	What string   `json:"what"`
	Why  []string `json:"why"`
	Next []Step   `json:"next"`
}

// FindingObject names an object. Kind is volume, engine, replica, ticket, node, disk, instance manager, share manager,
// setting or installation.
type FindingObject struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Node of a disk or replica.
	Node string `json:"node"`
	// Volume that an engine, replica, ticket or share manager belongs to, or the volume itself; empty for other kinds.
	Volume string `json:"volume"`
}

// Step is what a person does next.
type Step struct {
	Text string `json:"text"`
	// Command is a line for a POSIX shell; empty where no command helps.
	Command string `json:"command"`
}
