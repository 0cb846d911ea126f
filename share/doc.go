// Package share is the process in a share-manager pod: it serves the file system of one
// volume to many nodes over NFSv4, with NFS-Ganesha. It owns the mount of the volume's
// device, the configuration and the life of the server, and says when clients are served.
//
//	wait for the device             a block device that opens; read-only is an error
//	      ▼
//	what is on it?                  nothing: mkfs; ext4, xfs: as it is; anything else: an error, untouched
//	      ▼
//	fsck, mount, grow               at EXPORT-ROOT/VOLUME, in a private mount
//	      ▼
//	rights                          0777, if the root directory is as mkfs leaves it
//	      ▼
//	recovery directory              .longhorn-share on the volume, hidden from clients
//	      ▼
//	configuration ► ganesha.nfsd ► it answers for /VOLUME ► ready (gRPC health)
//	      │                ▲       has it clients to wait for? it looks each 0.1 s whether they are back (ganesha/wake.go)
//	      ▼                │
//	each 0.25 s: is it suspended?    yes, twice: SIGKILL, and a new one
//	each 1 s: the server answers?    no: SIGKILL, and a new one (defaultTiming has the numbers)
//	each 1 s: the engine in force?   not confirmed for 4 s: the NFS port is closed; for a minute: the end, without a flush (gate.go)
//	each 3 s: the volume answers?    no: the end, with an error
//	          the device has grown?  the file system grows
//	      ▼
//	SIGTERM: the server ends, flush, unmount
//
// Rights of a root directory that someone has set stay: a volume that one pod used before
// keeps its owner.
//
// The server's records of its clients are on the volume (fs_ng), so that a successor on
// another node lets them claim their open files and locks. A record has the address that
// the server sees, which is one for all clients (firewall/onesource.go): so a client is
// known after a move, too. Without nftables a client that comes from another address is
// not known, and loses its locks.
//
// If the records of the server before this one are not there, the leader is told, on the health port (ganesha/records.go).
// Whether that server had clients is not known here.
//
// Two share managers of a volume: the volume's engine has moved to the successor's node,
// and its replicas refuse writes of the former generation, so what the former writes is
// lost and not mixed in. It must answer no client either: a process that stood still for
// longer than the lease kills its server before it does anything else, and ends without
// a flush. A volume that answers with errors is the same end. The server ends with this
// process, whatever ends it.
//
// A volume that does not answer for 30 s is an error, too. Its server is not killed
// before: it could not end, nor a new one do better.
//
// A client that connects while no server listens is not refused, so that it tries again soon (firewall/refusals.go).
//
// Only listed clients may begin a connection (firewall/clients.go), where the kernel has nftables.
//
// What depends on Ganesha and its release is in share/ganesha, the rules of the pod's network are in share/firewall, and share/nfsclient asks the
// server for answers.
//
// It must not know Kubernetes objects: which pod runs where, and when, is others' business.
package share
