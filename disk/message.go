package disk

import (
	"errors"
	"fmt"
	"strings"
)

const causeNoConfigYet = "it is new and its UUID file " + ConfigFileName + " has not been created yet"

const causeReadOnly = "its file system is read-only. The kernel makes a file system read-only after an error, and logs the error (dmesg). " +
	"Check the device and the file system, then mount it for writing again"

func readyMessage(node, name, path string) string {
	return fmt.Sprintf("Disk %s(%s) on node %s is ready", name, path, node)
}

func notReadyMessage(node, name, path, cause string) string {
	return fmt.Sprintf("Disk %s(%s) on node %s is not ready: %s", name, path, node, cause)
}

func causeMissing(c *candidate) string {
	return fmt.Sprintf("the UUID file %s is missing, although disk UUID %s is recorded: "+
		"its file system is probably not mounted. Mount it. "+
		"Only if it is mounted and only the file was lost, restore the file on the node: %s",
		ConfigFileName, c.known.UUID, RepairCommand(c.path, c.name, c.known.UUID))
}

func causeMismatch(c *candidate) string {
	return fmt.Sprintf("the UUID file %s has disk UUID %s, but %s is recorded: "+
		"another file system is mounted at the path. Mount the file system of the recorded disk",
		ConfigFileName, c.fileUUID(), c.known.UUID)
}

func causeBadConfig(c *candidate) string {
	if !c.isOld() {
		return fmt.Sprintf("%v; restore %s from a copy. If no volume has data on this disk, remove the file instead",
			c.record.ConfigErr, ConfigFileName)
	}
	return fmt.Sprintf("%v; if the right file system is mounted, restore the file on the node: %s",
		c.record.ConfigErr, RepairCommand(c.path, c.name, c.known.UUID))
}

func causeOnVolume(c *candidate) string {
	return fmt.Sprintf("its file system is on volume %s, which is attached to this node. "+
		"The node's instance manager is of an earlier release, and cannot store replicas there. "+
		"Its pod is replaced when no volume is attached to the node and no replica runs on it", c.record.OnVolume)
}

func causeInMemory(c *candidate) string {
	return fmt.Sprintf("its file system (%s) is in memory: a restart of the node would lose all replicas on it. "+
		"Mount a file system of a device there, or remove the disk from the node's spec", c.record.FSType)
}

func causeOnOverlay(c *candidate) string {
	return fmt.Sprintf("its file system (%s) does not report failed writes, so replicas there could lose acknowledged data unnoticed. "+
		"Mount a file system of a device there, or remove the disk from the node's spec", c.record.FSType)
}

func causeReplicas(c *candidate) string {
	if !errors.Is(c.record.ReplicasErr, ErrReplicasMissing) {
		return c.record.ReplicasErr.Error() + "; move it away, or unmount it"
	}
	return fmt.Sprintf("%v, with all its replicas. If the directory was moved, move it back. "+
		"If it was deleted, create it again on the node; then the replicas are rebuilt from other replicas: mkdir -m 700 %s",
		c.record.ReplicasErr, shellQuote(strings.TrimRight(c.path, "/")+"/"+ReplicasDirName))
}

func causeShared(c *candidate, sharing []*candidate) string {
	return fmt.Sprintf("it shares file system %s with disks %s; a file system can serve only one disk",
		c.record.FSID, names(sharing))
}

func causeDuplicate(c *candidate, duplicates []*candidate) string {
	return fmt.Sprintf("duplicate UUID: disk UUID %s also belongs to disks %s", c.fileUUID(), names(duplicates))
}

func causeMoved(c, now *candidate) string {
	return fmt.Sprintf("its disk with UUID %s is now at %s, as disk %s of this node, and its replicas move there. "+
		"Remove disk %s from the node's spec", c.known.UUID, now.path, now.name, c.name)
}

func names(list []*candidate) string {
	texts := make([]string, len(list))
	for i, c := range list {
		texts[i] = c.name
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// RepairCommand returns a line for a POSIX shell on the node that restores the UUID file of the disk in the directory
// path. The line must be shown together with the condition that the right file system is mounted there.
func RepairCommand(path, name, uuid string) string {
	data, err := EncodeConfig(NewConfig(name, uuid))
	if err != nil {
		// Perhaps recorded by hand: show the administrator the content to write.
		return fmt.Sprintf("write {\"diskUUID\":%q} to %s", uuid, strings.TrimRight(path, "/")+"/"+ConfigFileName)
	}
	return fmt.Sprintf("printf '%%s\\n' %s > %s",
		shellQuote(strings.TrimRight(string(data), "\n")),
		shellQuote(strings.TrimRight(path, "/")+"/"+ConfigFileName))
}

func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
