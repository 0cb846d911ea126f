package v1

// Event is a Kubernetes Event about one of our objects.
type Event struct {
	Resource
	// EventType is Normal or Warning.
	EventType string `json:"eventType"`
	// Event has the fields of the Kubernetes object that clients read.
	Event KubernetesEvent `json:"event"`
}

// KubernetesEvent is an Event as the cluster has it. Times are RFC 3339; empty: not known.
type KubernetesEvent struct {
	Metadata       EventMetadata  `json:"metadata"`
	InvolvedObject InvolvedObject `json:"involvedObject"`
	Type           string         `json:"type"`
	Reason         string         `json:"reason"`
	Message        string         `json:"message"`
	Source         EventSource    `json:"source"`
	Count          int            `json:"count"`
	FirstTimestamp string         `json:"firstTimestamp"`
	LastTimestamp  string         `json:"lastTimestamp"`
}

// EventMetadata is the metadata of an Event.
type EventMetadata struct {
	Name              string `json:"name"`
	Namespace         string `json:"namespace"`
	UID               string `json:"uid"`
	CreationTimestamp string `json:"creationTimestamp"`
}

// InvolvedObject is the object that an Event is about.
type InvolvedObject struct {
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	APIVersion string `json:"apiVersion"`
}

// EventSource is the component that reported an Event.
type EventSource struct {
	Component string `json:"component"`
	Host      string `json:"host"`
}
