// Package datastore is the control plane's one way to the API server: it owns the typed
// clients and the informers of every kind, and no other package uses them.
//
//	controllers, manager ──► Store[T] ──► cache ◄── list+watch ── API server
//	                            └──────── patches, live reads ───────►
//
// Each verb is written once, in Store; a kind is a few lines in datastore.go. Reads
// come from a cache that is always a little old, so a Store remembers what it wrote
// (observed.go) and tells when the cache does not show it yet: then a caller requeues,
// and never waits. A Datastore of one node watches only the objects of that node, where
// the API server can select by a field.
//
// An object that leaves the selection looks deleted. Absence from such a cache proves
// nothing: a caller that would act on it must ask Live first.
//
// Update and UpdateStatus send a patch of what the caller changed (patch.go), of all kinds alike.
// The Store finds that out against the version that the caller started from (base.go), and the
// patch carries that version: where the API server has a newer one, the write is a conflict,
// also one that changes nothing. A patch never makes an object. Daemons of two releases run side
// by side while one replaces the other, so what this release's types do not know is kept:
//
//   - members of an object, at any depth, also in the entries of a map;
//   - members of the elements of a list, where each element has another "type" (conditions) or
//     another "uid" (references to owners); such elements may change, come, go and change places.
//
// Not kept is what is in an object, an entry or an element that the caller takes away, and what is
// in the elements of any other list that the caller changes. What is in one that the caller fills
// anew under the same name stays, though it may have been said of the old one: a release that adds
// a member must bear that. No patch has managed fields: the API server keeps its own.
//
// The package must not know policy, the scheduler or controllers, and never sleeps.
package datastore
