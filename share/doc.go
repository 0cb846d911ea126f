// Package share is the process in a share-manager pod: it serves the file system of one volume to many nodes over
// NFSv4, with NFS-Ganesha. It owns the mount of the volume's device, and the configuration of the server. It starts and
// stops the server, and reports when clients are served.
//
//	open the NFS port               clients connect and wait for a server (entrance.go)
//	      ▼
//	wait for the device             a block device that opens; a read-only one is an error
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
//	      │                ▲       must it wait for clients? every 0.1 s it checks if they are back (ganesha/wake.go)
//	      ▼                │
//	every 0.25 s: is it suspended?   yes, twice: SIGKILL, and a new one
//	every 1 s: the server answers?   no: SIGKILL, and a new one (defaultTiming has the numbers)
//	every 1 s: the engine in force?  not confirmed for 4 s: NFS port closed; a minute: exit without flush (portguard.go)
//	every 3 s: the volume answers?   no: exit with an error
//	          the device has grown?  the file system grows
//	      ▼
//	SIGTERM: the server exits, flush, unmount
//
// If a user has set the rights of a root directory, they stay: a volume that one pod used before keeps its owner.
//
// The server's records of its clients are on the volume (fs_ng), so that a successor on another node lets them claim
// their open files and locks. A record contains the address that the server sees, which is the same for all clients
// (firewall/onesource.go). So the server knows a client after a move, too. Without nftables, the server does not know a
// client that comes from another address, and the client loses its locks.
//
// If the records of the previous server are missing, the leader learns this on the health port (ganesha/records.go).
// This package does not know whether that server had clients.
//
// A volume may have two share managers for some time: its engine has moved to the successor's node. The replicas refuse
// writes of the former generation, so the former share manager's writes are lost and not mixed with others. The former
// share manager must answer no client either. So a process that was paused for longer than the lease kills its server
// before it does anything else, and exits without a flush. It does the same if the volume answers with errors. The
// server stops together with this process, whatever stops the process.
//
// A volume that does not answer for 30 s is an error, too. Its server is not killed before: it could not exit, and a
// new server would hang as well.
//
// The NFS port is open from the start of this process (entrance.go), and each server inherits it (ganesha.Listener): a
// client whose server exits connects again at once and waits for the next one. If the port cannot be opened early, a
// client that connects while no server listens is not refused, so that it tries again soon (firewall/refusals.go).
//
// If the kernel has nftables, only listed clients may open a connection (firewall/clientfilter.go).
//
// Everything that depends on Ganesha and its release is in share/ganesha. The rules of the pod's network are in
// share/firewall. share/nfsclient sends questions to the server.
//
// It must not know Kubernetes objects: other packages decide which pod runs where, and when.
package share
