// Package disk knows what a directory offered as storage really is: which file
// system it lies on, how much room that has, and which UUID file it carries;
// and it judges, for all disks of a node together, which of them may be used.
// It owns the format and the making of the UUID file, the scan of directories
// below a root, the matching of what was scanned to what was recorded before, and
// the rules by which one node of the cluster claims a UUID. It takes plain values
// and returns plain values; it must not know Kubernetes, the datastore, settings,
// or how replicas are placed.
//
//	<root>/<disk path>/
//	    longhorn-disk.cfg     the UUID file; says "this is the disk you recorded"
//	    replicas/             one directory per replica; not this package's business
//
// The rule behind everything here: a disk whose UUID was once recorded is never
// given a new UUID file. A missing file then means that the file system is not
// mounted, and whatever were written there would land beneath the mount point.
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
