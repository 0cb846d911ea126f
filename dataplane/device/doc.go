// Package device offers a volume as a block device. The device has three parts: a file of a FUSE file system, a loop
// device with direct I/O on that file, and a node with the loop device's numbers. Users find the device by the node.
//
//	/dev/longhorn/<volume>   node, put in place by rename      ┐
//	/dev/loopN               direct I/O, autoclear             │ kept by a Keeper
//	FUSE connection          its descriptor                    ┘
//	Frontend                 serves the requests of the FUSE connection from a backend
//
// A device of KindNBD has the kernel's NBD client in place of the FUSE file and the loop device. New devices are of
// this kind where the kernel has the client. docs/decisions/0012 gives the reasons and the differences.
//
// A Keeper keeps the parts that must outlive the process that serves. Then the death of that process only pauses the
// device's users, and the device remains. Local keeps these parts in the process that serves: it is for tests, and for
// nodes where nothing better is available. Package device/holder keeps them in a separate process.
// docs/decisions/0007-block-devices-survive-their-serving-process.md lists the steps of a succession, and the state
// that a crash leaves between two steps.
//
// The package must not know engines or Kubernetes: an nbd.Backend answers the requests of a device.
package device
