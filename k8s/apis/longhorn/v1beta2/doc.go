// Package v1beta2 has the API objects of group longhorn.io, version v1beta2. Users, controllers and the API server use
// them. Field names and values are the ones that Longhorn's users know. Rules that can be checked with only the object
// itself are markers in this package, and the generated CRDs contain these rules.
//
// The package must not import clients or controllers, and must not have helpers with logic.
//
// Who writes what:
//
//	spec of Volume, Node, Setting          users (through kubectl or the REST API)
//	Volume.spec.{nodeID,disableFrontend}   only the attachment controller
//	spec of Engine, Replica                the volume controller
//	spec of VolumeAttachment               the holder of each ticket
//	status                                 the controller of that kind, or the writer that the field's comment names
//
// +k8s:deepcopy-gen=package
// +groupName=longhorn.io
package v1beta2
