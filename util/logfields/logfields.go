// Package logfields has the keys of log fields, so that each kind of value has one key.
package logfields

// The keys.
const (
	Controller = "controller"
	Key        = "key"
	Volume     = "volume"
	Engine     = "engine"
	Replica    = "replica"
	Snapshot   = "snapshot"
	Node       = "node"
	Disk       = "disk"
	Path       = "path"
	Image      = "image"
	Address    = "address"
	UUID       = "uuid"
	Generation = "generation"
	Epoch      = "epoch"
	State      = "desireState"
	Reason     = "reason"
)
