// Package mounts takes disks away from the data plane while it uses them. It checks that no byte is written beneath the
// mount point. It has only tests.
//
//	test process, in its own mount namespace            the program, in another one, like the instance manager's pod
//	----------------------------------------            -----------------------------------------------------------
//	<top>/host          a shared tmpfs: "the node"  -->  a slave of it: mounts and unmounts there propagate
//	    mnt/p1/disk     ext4 on a loop device            a replica on each disk
//	    mnt/p2/disk     xfs on a loop device
//	<top>/base          the same tmpfs without the       writers write to the replicas over NBD; other clients create
//	                    mounts on it: what is beneath    and remove a replica on each disk, all the time
//
// Every run takes one disk away in one of many ways. It fails in these cases:
//
//   - A file or a byte appears beneath the mount point, or in the file system that was mounted on top.
//   - The replica is not shown as failed, with the reason, within five seconds.
//   - A replica is served, created or removed while its disk is away.
//   - The file system is still held afterwards, so that it cannot be checked or formatted.
//   - The other disk's replica is disturbed.
//   - The replica is not served again when the disk is back, or a block differs from its acknowledged content.
//
// The kernel may refuse to unmount a file system that is in use. That is safe too, and then the writers must continue.
//
// MOUNTS_SEED=n repeats the order of one seed, MOUNTS_RUNS=n sets the number of runs, LONG=1 means 190 runs. The tests
// need root, loop devices, and the tools of ext4 and XFS. With LONGHORN_E2E=required or CI=true it is an error if they
// cannot run here.
package mounts
