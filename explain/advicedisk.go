package explain

import (
	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// takeOutDisk disables a disk first: one that may be scheduled must not be taken out.
const takeOutDisk = `kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"disks":{"{disk}":{"allowScheduling":false}}}}' && ` +
	`kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"disks":{"{disk}":null}}}'`

var (
	mountDisk  = Step{"On the node, see what is mounted there, and mount the disk's file system", "findmnt -T {path}; mount {path}"}
	kernelLog  = Step{"On the node, see what the kernel says of the device", "dmesg --level=err,warn | tail -50"}
	removeDisk = Step{"If the disk is lost for good, evict what can still move, then take it out of the node's spec", `kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"disks":{"{disk}":{"allowScheduling":false,"evictionRequested":true}}}}'`}
)

// diskAdvice is of the conditions of a disk.
var diskAdvice = map[cause]advice{
	{KindDisk, types.ConditionReady, disk.ReasonNoDiskInfo}: {Broken, "disk {disk} of node {node} cannot be read: its directory or its UUID file is missing, or is not made yet", []Step{
		{"On the node, look at the directory and its UUID file", "ls -l {path} {path}/longhorn-disk.cfg"},
		mountDisk,
		{"If the path is wrong, or no volume has data there, correct the path or create the directory", "kubectl -n {ns} edit lhn {node}"},
	}, false},
	{KindDisk, types.ConditionReady, disk.ReasonDiskFilesystemChanged}: {Broken, "disk {disk} of node {node} is not at its path: its file system is not mounted, or another one is", []Step{mountDisk, removeDisk}, false},
	{KindDisk, types.ConditionReady, disk.ReasonReplicasDirectoryMissing}: {Broken, "disk {disk} of node {node} has lost its directory for replicas, and all replicas in it", []Step{
		{"Move the directory back if it was moved. If its data is deleted, make it anew on the node: then the replicas are made anew from the other copies", "mkdir -m 700 {path}/replicas"},
	}, false},
	{KindDisk, types.ConditionReady, disk.ReasonDiskOnVolume}: {Warning, "disk {disk} of node {node} lies on a volume, which the node's data plane, of an earlier release, cannot use", []Step{
		{"Let the data plane get the present version: detach the node's volumes", "kubectl -n {ns} get lhe"},
	}, false},
	{KindDisk, types.ConditionReady, disk.ReasonDiskReadOnly}: {Broken, "disk {disk} of node {node} is read-only: nothing can be written to its file system", []Step{
		kernelLog, {"Check the file system while it is not mounted, then mount it for writing", "mount -o remount,rw {path}"}, removeDisk,
	}, false},
	{KindDisk, types.ConditionReady, disk.ReasonDiskInMemory}: {Broken, "disk {disk} of node {node} is in memory: a restart of the node would lose all replicas on it, so it gets none", []Step{
		{"Mount a file system of a device at the path", "findmnt -T {path}"},
		{"Or take the disk out of the node's spec", takeOutDisk},
	}, false},
	{KindDisk, types.ConditionSchedulable, disk.ReasonDiskInMemory}: {Warning, "disk {disk} of node {node} is in memory: a restart of the node loses all replicas on it, and it gets no new ones", []Step{
		{"Move its replicas to other disks", `kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"disks":{"{disk}":{"allowScheduling":false,"evictionRequested":true}}}}'`},
	}, false},
	{KindDisk, types.ConditionReady, disk.ReasonDiskOnOverlay}: {Broken, "disk {disk} of node {node} is on overlayfs, which does not tell of writes that failed, so it gets no replicas", []Step{
		{"Mount a file system of a device at the path", "findmnt -T {path}"},
		{"Or take the disk out of the node's spec", takeOutDisk},
	}, false},
	{KindDisk, types.ConditionReady, disk.ReasonDuplicateUUID}: {Broken, "disk {disk} of node {node} has the UUID of another disk: one is a copy of the other, and neither can be told apart safely", []Step{
		{"Find out which is the original, and unmount the other, or take it out of the node's spec", "kubectl -n {ns} edit lhn {node}"},
		{"If the copy shall be a disk of its own, remove its UUID file and its replicas first, on the node", "head {path}/longhorn-disk.cfg"},
	}, false},
	{KindDisk, types.ConditionReady, disk.ReasonDiskMoved}: {Info, "disk {disk} of node {node} is at another path now, and used there", []Step{
		{"Take the old entry out of the node's spec", takeOutDisk},
	}, false},
	{KindDisk, types.ConditionReady, types.ReasonDiskNotResponding}: {Broken, "disk {disk} of node {node} hangs: it neither answers nor fails", []Step{
		kernelLog, {"Check cabling, controller or the storage network. Replicas on it fail meanwhile and are rebuilt elsewhere", ""},
	}, false},
	{KindDisk, types.ConditionReady, types.ReasonNodeNotReady}: {Broken, "the state of disk {disk} is not known: node {node} is not ready", []Step{
		{"Explain the node", "kubectl longhorn explain node {node}"},
	}, false},
	{KindDisk, types.ConditionSchedulable, types.ReasonDiskPressure}: {Warning, "disk {disk} of node {node} has no room for another replica", []Step{
		{"See which replicas take it, and evict or delete what is not needed", "kubectl -n {ns} get lhr -l longhorndiskuuid={uuid}"},
		{"On the node, see what else is on its file system", "df -h {path}; du -xsh {path}/*"},
		{"Give the node another disk, or change storage-over-provisioning-percentage or storage-minimal-available-percentage, if the message names their limit", "kubectl -n {ns} get lhs storage-over-provisioning-percentage storage-minimal-available-percentage"},
	}, false},
	{KindDisk, types.ConditionSchedulable, types.ReasonDiskNotReady}: {Warning, "disk {disk} of node {node} gets no replicas while it is not ready", []Step{asNode}, false},
	{KindDisk, types.ConditionSchedulable, types.ReasonNodeNotReady}: {Warning, "disk {disk} gets no replicas while node {node} is not ready", []Step{
		{"Explain the node", "kubectl longhorn explain node {node}"},
	}, false},
	{KindDisk, types.ConditionEmptied, types.ReasonReplicasLeft}: {Info, "disk {disk} of node {node} is being emptied, and still has replicas", []Step{
		{"See which are left", "kubectl -n {ns} get lhr -l longhorndiskuuid={uuid}"},
	}, false},
}
