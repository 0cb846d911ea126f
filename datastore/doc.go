// Package datastore is the control plane's one way to the API server: it owns
// the typed clients and the informers of every kind, and nobody else uses them.
//
//	controllers, manager ──► Store[T] ──► cache ◄── list+watch ── API server
//	                            └──────── writes, live reads ────────►
//
// Each verb is written once, in Store; a kind is a few lines in datastore.go.
// Reads come from a cache that is always a little old, so a Store remembers what
// it wrote (observed.go) and tells when the cache does not show it yet: a caller
// requeues then, it never waits. A Datastore of one node watches, where the API
// server can select by a field, the objects of that node alone.
//
// An object that leaves the selection looks deleted: absence from such a cache
// proves nothing, and who would act on it must ask Live first.
//
// The package must not know policy, the scheduler or controllers, and never sleeps.
package datastore
