// Package explore searches, exhaustively within bounds, what the rules of package membership allow: three replicas, two engines, an
// API object that can be unreachable or rolled back, and every point at which any of them can stop. It has tests only.
//
//	state      object, replicas, engines, and a few ghosts that only the invariants read
//	events     one indivisible step each: what is durable after it is durable, what is not is lost by the next stop
//	invariants looked at in every state and at every acknowledgement
//
// The search is complete within its bounds: so many writes, starts, failures, stops, rebuilds and so on along one way. States that
// differ only in the names of replicas or engines count as one. Run without the race detector, whose build searches less; LONG=1
// widens the bounds.
//
// The transitions call the rule functions; what the functions do not decide (who may speak to whom, in which order) is the protocol
// of docs/DATAPLANE.md, written down here a second time, without sockets and files. Mutants show that the search can fail: one rule
// changed, one violation found.
//
// A rebuild is a full copy in one step, or, in the scenarios of what a replica lacks, a copy of that, one write after the other, with each
// member asked on its own.
//
// What a replica writes survives its stop here; loss of power, and how reads are routed, are left to the tests of the engine and of
// package test/faults.
package explore
