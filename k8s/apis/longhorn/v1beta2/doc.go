// Package v1beta2 holds the API objects of group longhorn.io, version v1beta2:
// what users, controllers and the API server agree on. Field names and values
// are those that Longhorn's users know; validation that needs only the object
// itself is written here as markers and becomes part of the generated CRDs.
//
// The package must not know clients, controllers or helpers with logic.
//
// Who writes what:
//
//	spec of Volume, Node, Setting          users (through kubectl or the REST API)
//	Volume.spec.{nodeID,disableFrontend}   the attachment controller alone
//	spec of Engine, Replica                the volume controller
//	spec of VolumeAttachment               whoever holds a ticket
//	status                                 the one controller of that kind
//
// +k8s:deepcopy-gen=package
// +groupName=longhorn.io
package v1beta2
