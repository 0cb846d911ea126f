// Package mutemodel explores when a successor may give away what clients hold at an NFS server whose node is cut off. It walks through all
// orders of events, and finds that no order lets two servers grant the same lock. docs/DATAPLANE.md, "Whether a generation is in force",
// has the rules.
//
//	state      the old server with its engine, two members, the API object, the successor; all times are ages, so the search ends by itself
//	events     one indivisible step each, one of them is that time passes; each may happen at any time or never
//	rules      what is explored; each weaker rule is found to be wrong by a test
//
// An event that never happens stands for a crash, a pause, a cut connection or a lost message; one that happens late stands for a late answer.
// So the model needs no events for these. Clocks: a timer of the old server's kernel may be late by up to one unit of time; everything else is exact.
package mutemodel
