// Package partitionmodel models an NFS server on a node that is cut off. It explores when a successor may give away
// what clients hold there. It searches all orders of events, and finds no order in which two servers grant the same
// lock. docs/dataplane/PROTOCOL.md, "Whether a generation is in force", has the rules.
//
//	state    the old server with its engine, two members, the API object, the successor;
//	         all times are ages, so the search is finite
//	events   one indivisible step each; one event is that time passes; each may happen at any time or never
//	rules    the protocol to explore; a test finds an error in each weaker rule
//
// An event that never happens stands for a crash, a pause, a cut connection or a lost message. An event that happens
// late stands for a late answer. So the model needs no events for these. Clocks: a timer of the old server's kernel may
// be late by up to one unit of time; everything else is exact.
package partitionmodel
