package explain

import (
	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// takeOutDisk disables a disk first, because an enabled disk must not be removed.
const takeOutDisk = `kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"disks":{"{disk}":{"allowScheduling":false}}}}' && ` +
	`kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"disks":{"{disk}":null}}}'`

var (
	mountDisk  = Step{"On the node, see which file system is mounted there, and mount the disk's file system", "findmnt -T {path}; mount {path}"}
	kernelLog  = Step{"On the node, see the kernel's messages about the device", "dmesg --level=err,warn | tail -50"}
	removeDisk = Step{"If the disk is permanently lost, evict the replicas that can still move, then remove the disk from the node's spec", `kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"disks":{"{disk}":{"allowScheduling":false,"evictionRequested":true}}}}'`}
)

// diskAdvice is for the conditions of a disk.
var diskAdvice = map[cause]advice{
	{KindDisk, types.ConditionReady, disk.ReasonNoDiskInfo}: {Broken, "disk {disk} of node {node} cannot be read: its directory or its UUID file is missing, or not created yet", []Step{
		{"On the node, check the directory and its UUID file", "ls -l {path} {path}/longhorn-disk.cfg"},
		mountDisk,
		{"If the path is wrong, or no volume has data there, correct the path or create the directory", "kubectl -n {ns} edit lhn {node}"},
	}, false},
	{KindDisk, types.ConditionReady, disk.ReasonDiskFilesystemChanged}: {Broken, "disk {disk} of node {node} is not at its path: its file system is not mounted, or another file system is", []Step{mountDisk, removeDisk}, false},
	{KindDisk, types.ConditionReady, disk.ReasonReplicasDirectoryMissing}: {Broken, "disk {disk} of node {node} has lost its directory for replicas, with all replicas in it", []Step{
		{"Move the directory back if it was moved. If its data was deleted, create the directory again on the node: the replicas are then rebuilt from the other copies", "mkdir -m 700 {path}/replicas"},
	}, false},
	{KindDisk, types.ConditionReady, disk.ReasonDiskOnVolume}: {Warning, "disk {disk} of node {node} is on a volume, and the data plane of the node is of an earlier release, which cannot use such a disk", []Step{
		{"Detach the node's volumes, so that the data plane is upgraded to the present version", "kubectl -n {ns} get lhe"},
	}, false},
	{KindDisk, types.ConditionReady, disk.ReasonDiskReadOnly}: {Broken, "disk {disk} of node {node} is read-only: its file system cannot be written to", []Step{
		kernelLog, {"Check the file system while it is not mounted, then mount it for writing", "mount -o remount,rw {path}"}, removeDisk,
	}, false},
	{KindDisk, types.ConditionReady, disk.ReasonDiskInMemory}: {Broken, "disk {disk} of node {node} is in memory: a restart of the node would lose all replicas on it, so it gets none", []Step{
		{"Mount a file system of a device at the path", "findmnt -T {path}"},
		{"Or remove the disk from the node's spec", takeOutDisk},
	}, false},
	{KindDisk, types.ConditionSchedulable, disk.ReasonDiskInMemory}: {Warning, "disk {disk} of node {node} is in memory: a restart of the node loses all replicas on it, and it gets no new ones", []Step{
		{"Move its replicas to other disks", `kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"disks":{"{disk}":{"allowScheduling":false,"evictionRequested":true}}}}'`},
	}, false},
	{KindDisk, types.ConditionReady, disk.ReasonDiskOnOverlay}: {Broken, "disk {disk} of node {node} is on overlayfs, which does not report failed writes, so it gets no replicas", []Step{
		{"Mount a file system of a device at the path", "findmnt -T {path}"},
		{"Or remove the disk from the node's spec", takeOutDisk},
	}, false},
	{KindDisk, types.ConditionReady, disk.ReasonDuplicateUUID}: {Broken, "disk {disk} of node {node} has the UUID of another disk: one disk is a copy of the other, and they cannot be distinguished safely", []Step{
		{"Find out which disk is the original. Unmount the copy, or remove it from the node's spec", "kubectl -n {ns} edit lhn {node}"},
		{"If the copy is to be a disk of its own, remove its UUID file and its replicas first, on the node", "head {path}/longhorn-disk.cfg"},
	}, false},
	{KindDisk, types.ConditionReady, disk.ReasonDiskMoved}: {Info, "disk {disk} of node {node} is now at another path, and is used there", []Step{
		{"Remove the old entry from the node's spec", takeOutDisk},
	}, false},
	{KindDisk, types.ConditionReady, types.ReasonDiskNotResponding}: {Broken, "disk {disk} of node {node} hangs: it neither answers nor fails", []Step{
		kernelLog, {"Check the cabling, the controller and the storage network. Until the disk answers, its replicas fail and are rebuilt elsewhere", ""},
	}, false},
	{KindDisk, types.ConditionReady, types.ReasonNodeNotReady}: {Broken, "the state of disk {disk} is unknown: node {node} is not ready", []Step{
		{"Explain the node", "kubectl longhorn explain node {node}"},
	}, false},
	{KindDisk, types.ConditionSchedulable, types.ReasonDiskPressure}: {Warning, "disk {disk} of node {node} has no space for another replica", []Step{
		{"See which replicas use the space, and evict or delete those that are not needed", "kubectl -n {ns} get lhr -l longhorndiskuuid={uuid}"},
		{"On the node, see which other files are on its file system", "df -h {path}; du -xsh {path}/*"},
		{"Add a disk to the node. Or change storage-over-provisioning-percentage or storage-minimal-available-percentage, if the lines above name their limit", "kubectl -n {ns} get lhs storage-over-provisioning-percentage storage-minimal-available-percentage"},
	}, false},
	{KindDisk, types.ConditionSchedulable, types.ReasonDiskNotReady}: {Warning, "disk {disk} of node {node} gets no replicas while it is not ready", []Step{asNode}, false},
	{KindDisk, types.ConditionSchedulable, types.ReasonNodeNotReady}: {Warning, "disk {disk} gets no replicas while node {node} is not ready", []Step{
		{"Explain the node", "kubectl longhorn explain node {node}"},
	}, false},
	{KindDisk, types.ConditionEmptied, types.ReasonReplicasLeft}: {Info, "disk {disk} of node {node} is being evicted, and still has replicas", []Step{
		{"See which replicas remain", "kubectl -n {ns} get lhr -l longhorndiskuuid={uuid}"},
	}, false},
}
