// Package datastore is the only access of the control plane to the API server. It owns the typed clients and the
// informers of every kind, and no other package uses them.
//
//	controllers, manager ──► Store[T] ──► cache ◄── list+watch ── API server
//	                            └──────── patches, live reads ───────►
//
// Each verb is written once, in Store. A kind is a few lines in datastore.go. A consumer composes the verbs that it
// needs from the interfaces in verbs.go. Reads come from a cache that is always a little old. So a Store remembers its
// writes (observed.go) and reports when the cache does not show them yet: then a caller requeues, and never waits. A
// Datastore of one node watches only the objects of that node, where the API server can select by a field.
//
// An object that leaves the selection looks deleted. Absence from such a cache proves nothing: a caller that would act
// on it must call Live first.
//
// Update and UpdateStatus send a patch of the caller's changes (patch.go), for all kinds in the same way. The Store
// computes the changes against the version from which the caller started (base.go), and the patch carries that version.
// If the API server has a newer version, the write is a conflict, even a write that changes nothing. A patch never
// creates an object. While one release replaces another, daemons of both run at the same time. So a patch keeps the
// members that this release's types do not know:
//
//   - members of an object, at any depth, also in the entries of a map;
//   - members of the elements of a list, if each element has a different "type" (conditions) or a different "uid"
//     (references to owners); such elements may change, appear, disappear and change places.
//
// A patch does not keep the content of an object, an entry or an element that the caller removes. It also does not keep
// the content of the elements of any other list that the caller changes. If the caller fills an object or entry again
// under the same name, its unknown members stay, although they may have described the old one. A release that adds a
// member must tolerate this. No patch contains managed fields: the API server keeps its own.
//
// The package must not know policy, the scheduler or controllers, and never sleeps.
package datastore
