// Package replica owns the bytes of one replica on disk: a directory that is created once, its metadata, its intent map
// and its data. It also owns the gate that allows one engine at a time to write, and the recovery after a crash.
//
//	<disk>/longhorn-disk.cfg        identifies the disk (package disk); read, never written
//	<disk>/replicas/
//	    <name>/                     one replica; created by one rename, removed by one rename
//	        replica.meta            identity, gate, evidence of membership (meta.go); replaced atomically
//	        intent.map              regions that may differ between replicas (intentmap.go); written in place
//	        data.img                the bytes; sparse, exactly the volume's size. In format 2 it is one of the layers
//	        layers.list, <n>.*      format 2: the chain of layers (package chain); written from the first snapshot on
//	        intent.map.tmp          changes since a member was left out (since.go), or the next intent map (grow.go)
//	        changes.map             the same record, as the next release names it; renamed when the replica is opened
//	        replica.meta.tmp        room for the next metadata (metafile.go); its content is never read
//	    .<name>.creating-<uid>/     left by a crash in Create; the next Create or Remove of that uid removes it
//	    .<name>.deleting-<uid>/     left by a crash in Remove; the next Remove of that uid removes it
//
// Open has the same steps after any stop, in this order:
//
//  1. open the disk's directory, compare its UUID file with the requested UUID, hold the directory and its replicas
//     directory (disk.go). The path is not looked up again, so later mounts and unmounts do not change where the steps
//     operate
//  2. open the directory below the held parent and take its lock; no step follows a symbolic link
//  3. read the metadata: check magic, version and checksum, then compare uid, volume, name and size with the values
//     that the caller expects
//  4. read the intent map: header, checksum, the magic and number of each sector
//  5. open the data and compare its size; in format 2 check the list and the files of the layers
//  6. sync the parent, the directory and the intent map (not in an opening for reading only). A process that was killed
//     may have left changes that are visible and not yet durable
//  7. nothing is repaired, because nothing needs repair: a mark covers each write that was under way, and the engine
//     makes marked regions equal
//
// The first step that fails gives a Reason. Open has written nothing to a directory that it refuses.
//
// The package must not know engines, Kubernetes, sockets, or the names of exports. Times and limits are the caller's
// contexts, with two exceptions: closeWait, because a Close has no context, and readmitWait.
//
// These files contain the code that waits for the disk:
//
//	lane.go, hang.go     calls that a caller can leave: metadata, clearing marks, closing
//	writeback.go         one goroutine that writes out the written data
//	merger.go            one goroutine that merges layers, from the first line that an engine sends
//	gate.go              counts the requests of a session, which wait with their callers
package replica
