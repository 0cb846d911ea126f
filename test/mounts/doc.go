// Package mounts takes disks away from under the data plane and checks that no byte is written beneath. It has tests only.
//
//	test process, in a mount namespace of its own       the program, in one more, as the pod of the instance manager is
//	---------------------------------------------       ----------------------------------------------------------------
//	<top>/host          a shared tmpfs: "the node"  -->  a slave of it: what is mounted and unmounted there follows
//	    mnt/p1/disk     ext4 on a loop device            a replica on each disk
//	    mnt/p2/disk     xfs on a loop device
//	<top>/base          the same tmpfs without the       writers write to the replicas over NBD, others make and remove a
//	                    mounts on it: what is beneath    replica on each disk, all the time
//
// Every run takes one disk away in one of many ways. It fails when
//
//   - a file or a byte appears beneath the mount point, or in what was mounted on top;
//   - the replica is not shown as failed, with the reason, within five seconds;
//   - a replica is served, made or removed while its disk is away;
//   - the file system is still held afterwards, so that it cannot be checked or made anew;
//   - the other disk's replica is disturbed;
//   - the replica is not served again when the disk is back, or a block differs from what was acknowledged.
//
// The kernel may refuse to unmount what is in use; that is safe too, and then the writers must go on.
//
// MOUNTS_SEED=n repeats the order of one seed, MOUNTS_RUNS=n sets the number of runs, LONG=1 is 190. LONGHORN_E2E=required or CI=true
// make it an error when the tests cannot run here: they need root, loop devices, and the tools of ext4 and XFS.
package mounts
