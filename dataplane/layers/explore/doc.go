// Package explore searches, exhaustively within bounds, the states that the rules of package layers allow. The package
// has only tests.
//
//	presence_test.go    one block of one file: changes, steps of a flush, kills, losses of power, failed syncs
//	merge_test.go       one block of two files that are merged, step by step, with stops between any two steps
//	pause_test.go       the steps of a barrier on two members, with one write
//	index_test.go       reads of one block through the index, while files are merged
//	locks_test.go       two writes to one block
//	list_test.go        the replacements of one replica's list
//	kept_test.go        the maps that are kept of a deleted point; with keptstate, keptevents and keptmerge_test.go
//	space_test.go       a merge on a full disk
//	scrub_test.go       checksums of one block, and repairs
//	group_test.go       a snapshot of two volumes
//	explore_test.go     a volume: the Engine object with its line, one engine, two or three members; with the state, the
//	                    events and the invariants in state, events, barrier, rebuild and invariants_test.go
//	random_test.go      random histories of that volume, with all events
//	search_test.go      the search itself
//
// A step of the presence and merge models is one write or one sync. The model of the volume takes from them that a
// moved block, a flush of one member and a replacement of the list are indivisible. In it, a loss of power leaves any
// mixture of what was not flushed.
//
// Each test of wrong rules changes one rule, or the order of two steps, and the search finds the shortest sequence to
// the consequence. `go test -v` prints the sequences. LONG=1 widens the bounds. The race detector skips the searches.
package explore
