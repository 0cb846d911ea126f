#!/bin/bash
# The first process of the guest. It mounts an overlay over the root of the machine, loads the modules, and runs the tests
# in $DATA.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TMPDIR=/tmp LONGHORN_TEST_NBD=1
modules=/usr/lib/uml/modules/$(uname -r)/kernel
mount -t proc proc /proc
insmod "$modules/fs/overlayfs/overlay.ko"
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root
cd /mnt/root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t devtmpfs dev dev
mkdir -p dev/pts dev/shm old
mount -t devpts devpts dev/pts
mount -t tmpfs shm dev/shm
mount -t tmpfs tmp tmp
mount -t tmpfs run run
mount -t hostfs -o "$DATA" none mnt
pivot_root . old
ip link set lo up
cd /mnt
(
	for module in fs/fuse/fuse.ko drivers/block/loop.ko drivers/block/nbd.ko; do
		insmod "$modules/$module" || echo "insmod $module failed"
	done
	timeout -k 2 240 ./device.test -test.v -test.timeout 230s -test.run 'TestAbort|Stops|OfAnNBD|HoldsAFile|Grows|TakenOver|Discards' &&
		timeout -k 2 360 ./holder.test -test.v -test.timeout 350s \
			-test.run 'TestUsersOfADevice|TestAFileSystemSurvives|TestTheNextHolderEnds' &&
		timeout -k 2 120 ./device.test -test.run '^$' -test.bench BesideAFlush -test.benchtime 300x &&
		echo GUEST PASSED
) >/mnt/out.txt 2>&1 </dev/null
echo o >/proc/sysrq-trigger
sleep 10
