// Package testutil is the bench on which controllers are tested: an API server
// made of fake clients that keeps the promises controllers rely on (versions and
// conflicts, preconditions, finalizers, status apart from spec), caches that show
// its content when the test says so, and records of every write and Event.
//
//	h := testutil.New(t, build.Node("node-1"), …)   // in the API server
//	ds := h.Datastore(datastore.Options{Node: "node-1"})
//	…one sync…                                      // the caches are late now
//	h.ExpectWrites("update nodes/node-1/status")
//	h.CatchUp()                                     // and now they are not
//
// Objects come from package build. Production code must not import either.
package testutil
