// Package explore searches, exhaustively within bounds, the states that the rules of package membership allow. The
// model has three replicas, two engines, and an API object that can be unreachable or rolled back. It has every point
// at which any of them can stop. The package has only tests.
//
//	state       object, replicas, engines, and a few ghosts that only the invariants read
//	events      one indivisible step each: durable data survives the next stop; everything else is lost
//	invariants  checked in every state and at every acknowledgement
//
// The search is complete within its bounds. These limit the number of writes, starts, failures, stops, rebuilds and so
// on along one way. States that differ only in the names of replicas or engines count as one. Run it without the race
// detector, because that build searches less. LONG=1 widens the bounds.
//
// The transitions call the rule functions. The functions do not decide the rest: which component may send to which
// other one, and in which order. That part is the protocol of docs/dataplane/, written here a second time, without
// sockets and files. Mutants show that the search can fail: each changes one rule, and the search finds one violation.
//
// A rebuild is a full copy in one step. In the scenarios about the data that a replica lacks, it copies only that data,
// one write after the other, and asks each member separately.
//
// In this model a replica's writes survive its stop. Loss of power, and the routing of reads, are covered by the tests
// of the engine and of package test/faults.
package explore
