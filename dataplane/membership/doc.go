// Package membership holds the rules about who has every acknowledged write of a
// volume, as values and pure functions, and the few messages by which an engine
// and a replica speak of them. docs/DATAPLANE.md states the invariants.
//
//	generation   who may write: raised in the API object at each start of an engine
//	epoch        who holds every acknowledged write: (generation, counter, members)
//
//	API object       engine                        replica
//	----------       ------                        -------
//	generation+1 --> admit(generation, session) -> durable, then older ones are shut out
//	               <- shown epoch, intents       --
//	epoch recorded <- proposes epoch
//	               -> record(epoch)             --> durable, as evidence
//	                  serves from here on
//
// While it serves, an engine changes the members by further epochs of its generation,
// each in the same order: proposed, recorded, stored, and only then relied upon.
//
//	member fails, is slow, is removed  --> PlanExpel   --> what it missed is acknowledged
//	copy to a replica is flushed       --> PlanJoin    --> the replica is a member
//
// The order matters: the object holds an epoch before any replica does, so a replica
// that shows a newer epoch than the object proves that the object was rolled back.
//
// It must not know sockets, files, Kubernetes or time.
package membership
