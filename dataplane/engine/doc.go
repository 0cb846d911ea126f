// Package engine makes one volume out of its replicas: it decides with which of them it may start, sends every change to all of
// them, answers reads from one, says when replicas may differ and makes them equal again after a crash, and offers the volume as a
// block device.
//
//	Frontend (package device)              tools, by NBD
//	             \                          /
//	              v                        v
//	       Engine.Backend: gate, range lock, dirty regions
//	              |            |            |
//	              v            v            v
//	          Replica a    Replica b    Replica c
//	       (direct call)     (TCP)        (TCP)
//
// A change is acknowledged when every member of the epoch has it, and never with fewer. Pure functions in policy.go decide what to
// do about a member that failed. docs/DATAPLANE.md states the invariants.
//
// It must not know Kubernetes, gRPC, files of a replica, or how a replica is reached: Config.Connect opens one.
package engine
