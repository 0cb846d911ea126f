// Package disk determines the properties of a directory that is offered as storage: its file system, the free space
// there, and its UUID file. It also judges, for all disks of a node together, which of them may be used. It owns the
// format and the creation of the UUID file, the scan of directories below a root, and the matching of scanned disks to
// recorded ones. It also owns the rules by which one node of the cluster claims a UUID. It takes plain values and
// returns plain values. It must not know Kubernetes, the datastore, settings, or the placement of replicas.
//
//	<root>/<disk path>/
//	    longhorn-disk.cfg     the UUID file; says "this is the disk you recorded"
//	    replicas/             one directory per replica; this package does not use it
//
// The main rule of the package: a disk with a UUID that was once recorded never gets a new UUID file. If the file is
// missing, the file system is not mounted, and any written data would go beneath the mount point.
//
//	       Scan                 Match                    Create
//	paths ------> Records ---+--------> Verdicts ---+--------------> UUID file
//	                         |                      | CreateConfig
//	recorded UUIDs ----------+                      | (then scan and match again)
//	                                                |
//	                                                | Accept      DecideClaim
//	                                                +-----------------+----> hold, or refuse
//	                            the cluster's Lease ------------------+----> WriteClaim: UUID file
package disk
