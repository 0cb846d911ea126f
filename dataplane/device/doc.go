// Package device offers a volume as a block device: a FUSE file, a loop device with direct I/O on it, and a node with that device's
// numbers where users find it.
//
//	/dev/longhorn/<volume>   node, put in place by rename      ┐
//	/dev/loopN               direct I/O, autoclear             │ kept by a Keeper
//	FUSE connection          its descriptor                    ┘
//	Frontend                 serves the requests of the FUSE connection from an engine
//
// A device of KindNBD has the kernel's NBD client in place of FUSE file and loop device, and is what is made where the kernel has it;
// docs/decisions/0012-nbd-beside-fuse.md says why, and how it differs.
//
// A Keeper keeps what must outlive the process that serves: then the death of that process is a pause to the device's users, not its
// end. Local keeps it in the process that serves, for tests and where there is nothing better; package device/holder in a process of
// its own. docs/decisions/0007-a-device-outlives-its-server.md has the steps of a succession and what a crash between them leaves.
//
// It must not know how an engine reaches its data, nor Kubernetes.
package device
