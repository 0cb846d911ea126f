// Package engine combines replicas into one volume. It decides with which of them it may start, sends every change to
// all of them, and answers reads from one. It records when replicas may differ, makes them equal again after a crash,
// and offers the volume as a block device.
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
// A change is acknowledged when every member of the epoch has it, and never with fewer. Pure functions decide how to
// handle a member that failed (policy.go, package membership). docs/dataplane/ENGINE.md states the invariants.
//
// The package must not know Kubernetes, gRPC, files of a replica, or how a replica is reached: Config.Connect opens
// one.
package engine
