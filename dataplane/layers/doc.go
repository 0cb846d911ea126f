// Package layers holds the rules of snapshots for one replica and for the line of a volume, as values and pure
// functions. Package chain carries out the rules of one replica on files, except checksums. Package engine carries out
// the barrier and the start, and the controllers record the line. docs/dataplane/SNAPSHOTS.md explains the format and
// the rules.
//
//	line (Engine object)                          chain (list file of one replica)
//	--------------------                          --------------------------------
//	counter 9                                     head       file 7        stands on 8
//	point 4  ready                                --------- border 8, flushed ----------
//	point 8  ready                                layer      files 4, 5    stands on 6     (5 over 4: a merge)
//	interval (4, 6): a revert gave up 5           --------- border 4, flushed ----------
//	                                              layer      file 1        stands on 0
//
// A layer is one interval of the volume's time. It has one file, or several while a merge is under way: then the upper
// file wins, and no border is between them. So a view at a border never depends on how far a merge is.
//
//	line.go       the points in the Engine object: intend, ready, give up, delete, revert
//	start.go      the line with which an engine starts, also after the object was restored from a backup
//	follow.go     how a replica brings its borders in order with the line
//	chain.go      the list: prepare, seal, join, drop; where a block is read
//	merge.go      which border may go, in which direction a merge copies, the steps of one piece
//	space.go      the next act of a merge, the space that it may use, the reasons to wait
//	kept.go       the blocks that changed since a point, also after the point was merged away
//	presence.go   the bit of a block: first write, discard, flush, opening
//	index.go      where a block of the volume is read without a walk over all layers
//	rebuild.go    the copy to a replica that was away, point by point
//	barrier.go    the steps of a snapshot, when it may start, and when its members may switch
//	checksum.go   when the checksum of a block counts
//	leftover.go   what an opening does with each file of the directory
//
// Each function returns a new value. The caller makes it durable by one replacement of the list or by one
// compare-and-swap of the object. That replacement is the commit point. Package explore searches the states that these
// rules allow.
//
// The package must not know files, sockets, Kubernetes or time.
package layers
