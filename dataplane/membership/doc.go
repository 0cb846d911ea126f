// Package membership holds the rules about which replicas have every acknowledged write of a volume. The rules are
// values and pure functions. The package also holds the few messages about them between an engine and a replica.
// docs/dataplane/README.md states the invariants.
//
//	generation   which engine may write: raised in the API object at each start of an engine
//	epoch        which replicas have every acknowledged write: (generation, counter, members)
//
//	API object       engine                        replica
//	----------       ------                        -------
//	generation+1 --> admit(generation, session) -> durable, then older ones are shut out
//	               <- shown epoch, intents       --
//	epoch recorded <- proposes epoch
//	               -> record(epoch)             --> durable, as evidence
//	                  serves from here on
//
// While it serves, an engine changes the members by further epochs of its generation. Each epoch takes the same steps
// in the same order: it is proposed, recorded, and stored, and only then the engine relies on it.
//
//	member fails, is slow, is removed  --> PlanExpel   --> changes that it missed are acknowledged
//	copy to a replica is flushed       --> PlanJoin    --> the replica is a member
//
// The order matters: the object holds an epoch before any replica does. So a replica that shows a newer epoch than the
// object proves that the object was rolled back.
//
// The package must not know sockets, files, Kubernetes or time.
package membership
