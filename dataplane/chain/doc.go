// Package chain owns the data of one replica in format version 2: a chain of layers, each with the changes of one
// interval of time. docs/dataplane/SNAPSHOTS.md explains the format. Package layers decides; this package reads,
// writes and syncs in the order that package layers gives. A replica uses it from its first snapshot on.
//
//	layers.list        the chain (list.go); replaced atomically (listfile.go)
//	layers.list.tmp    room for the next list
//	data.img           the data of file 1
//	<n>.img            the data of file n; sparse
//	<n>.map            one bit for each block: present (mapfile.go). The lowest file has none
//	<n>.recent         blocks that became present since the map was last synced (recent.go). A file that takes no
//	                   changes needs none
//	index              where the search for a block starts (index.go); derived from the maps
//	<p>-<nonce>.kept   what changed since a point that was merged away (keptfile.go); replaced as a whole
//
// The parts of the package:
//
//	open.go, settle.go     the steps of an opening: leftovers, which records count, cache and disk
//	presence.go            which blocks a file has: the bits that are durable, and those that are only in memory
//	read.go                the view of the volume, with the index, and the view at a border: a walk over the layers
//	write.go, zero.go      changes of the volume
//	flush.go               the order of the steps of a flush
//	points.go              prepare, switch, seal, join, follow the line
//	view.go                readers of a snapshot
//	merge.go               two files of one layer become one: what a merge does next
//	mergeact.go, piece.go  the acts of a merge, and the steps of a piece
//	kept.go                the maps of points that were merged away
//	rebuild.go             the stages of a rebuild on its target
//	changed.go, differs.go which blocks may differ between two points
//	names.go, describe.go  what a replica asks about the files
//
// These invariants hold at each moment, after a kill, and after a loss of power. The names in brackets say which
// code ensures them.
//
//	C1  the list names only files that exist and are durable (Chain.commit)
//	C2  a bit is on the disk only if the data of its block was durable before the bit was written (Chain.flush, piece)
//	C3  a block counts as present in memory only with an entry in recent, or with a durable bit (presence)
//	C4  space for bits and entries exists before a change is answered, so a flush needs no space (presence.reserve)
//	C5  no reader finds a block in a file that a merge has punched since (Chain.awaitReaders)
//	C6  a file that users write to is never copied down, and a copy up leaves out what users wrote (Chain.changes)
//	C7  a merge copies only while the disk has one piece more than its reserve (merge.decide)
//	C8  a kept map and all files from its end on name every change since its point: the map is durable before the list
//	    without the border, and before a block moves across its end (Chain.keepMaps, merge.takeUp)
//	C9  after a failed sync, or an uncertain replacement of the list, nothing succeeds any longer (Chain.fail)
//
// A read of the volume asks the unsealed layers, and then the layer that the index names. A view at a border asks the
// layers from the top. Checksums are not built.
//
// The caller must hold the lock of the directory. As the engine does, it must not allow two changes of one block at the
// same time. The package must not know engines, replicas, Kubernetes, sockets or time.
package chain
