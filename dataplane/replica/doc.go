// Package replica owns the bytes of one replica on disk: a directory made once, its metadata, its intent map, its data,
// the gate that lets one engine at a time write, and what is left after a crash.
//
//	<disk>/longhorn-disk.cfg        says which disk it is (package disk); read, never written
//	<disk>/replicas/
//	    <name>/                     one replica; made by one rename, removed by one rename
//	        replica.meta            who it is, who may write, what it is evidence of (meta.go); replaced atomically
//	        intent.map              regions that may differ between replicas (intentmap.go); written in place
//	        data.img                the bytes; sparse, exactly the volume's size
//	        intent.map.tmp          what was changed since a member was left out (since.go), or the next intent map (grow.go)
//	        changes.map             the same record, with the name that the next release gives it; renamed when the replica is opened
//	        replica.meta.tmp        room for the next metadata (metafile.go); its content is never read
//	    .<name>.creating-<uid>/     left by a crash in Create; the next Create or Remove of that uid clears it
//	    .<name>.deleting-<uid>/     left by a crash in Remove; the next Remove of that uid clears it
//
// What Open does after any stop, in order:
//
//  1. open the disk's directory, compare its UUID file with the UUID that is asked for, hold it and its replicas directory (disk.go);
//     the path is not looked up again, so what is mounted or unmounted from here on changes nothing of where this goes
//  2. open the directory beneath the held parent and take its lock; nothing of this follows a symbolic link
//  3. read the metadata: magic, version, checksum, then uid, volume, name and size against what the caller expects
//  4. read the intent map: header, checksum, every sector's own mark
//  5. open the data and compare its size
//  6. sync the parent, the directory and the intent map: a process that was killed may have left what is to be seen and not yet
//     durable (not when it is opened for reading alone)
//  7. nothing is repaired, for there is nothing to repair: a write that was under way is covered by a mark, and the engine
//     makes marked regions equal
//
// The first of these that fails gives a Reason; Open has written nothing to a directory that it refuses.
//
// It must not know engines, Kubernetes, sockets, or how an export is named. Times and limits are the caller's contexts,
// but for two: closeWait, as a Close has no context, and readmitWait.
//
// What waits for the disk:
//
//	lane.go, hang.go     calls whose caller can leave: metadata, marks that are cleared, closing
//	writeback.go         one goroutine that writes out what was written
//	gate.go              counts the requests of a session, which wait with their callers
package replica
