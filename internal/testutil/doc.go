// Package testutil is the test environment of controllers. It has an API server made of fake clients that behaves as
// controllers expect (versions and conflicts, preconditions, finalizers, status separate from spec). It has caches that
// are updated when the test says so, and records of every write and Event.
//
//	h := testutil.New(t, build.Node("node-1"), …)   // in the API server
//	ds := h.Datastore(datastore.Options{Node: "node-1"})
//	…one sync…                                      // the caches are late now
//	h.ExpectWrites("update nodes/node-1/status")
//	h.CatchUp()                                     // and now they are not
//
// Objects come from package build. Production code must not import either.
package testutil
