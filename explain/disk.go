package explain

import (
	"fmt"
	"path"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/disk"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// ofDisk explains a disk from its conditions, which contain the cause, and from the disk's spec.
func ofDisk(s *Snapshot, n *longhorn.Node, name string) []Finding {
	spec, status := n.Spec.Disks[name], n.Status.DiskStatus[name]
	o, p := Object{Kind: KindDisk, Name: name, Node: n.Name}, nodePlace(s, n.Name)
	p["disk"], p["path"], p["uuid"] = name, spec.Path, status.DiskUUID
	var found []Finding
	say := func(severity Severity, reason, what string, why []string, next ...Step) {
		found = append(found, Finding{o, severity, reason, p.fill(what), why, p.steps(next)})
	}
	if len(status.Conditions) == 0 {
		say(Warning, "NoStatus", "disk {disk} of node {node} has not been checked yet", nil, seeDaemon)
	}
	found = append(found, readiness(o, status.Conditions, p.fill("it is unknown whether disk {disk} of node {node} is ready"), p.steps([]Step{seeDaemon}))...)
	ready := types.IsConditionTrue(status.Conditions, types.ConditionReady)
	for _, f := range ofConditions(o, p, status.Conditions) {
		switch {
		case f.Reason == types.ReasonDiskNotReady && !ready: // it follows from Ready
		case f.Reason == types.ReasonReplicasLeft:
			f.Why = append(f.Why, evictionHolds(s, func(r *longhorn.Replica) bool { return r.Spec.DiskID == status.DiskUUID })...)
			found = append(found, f)
		case f.Reason == types.ReasonDiskPressure && isFullDisk(status):
			f.Severity, f.What = Broken, p.fill("disk {disk} of node {node} is full: writes to its replicas wait or fail")
			f.Next = p.steps(fullDiskSteps(s, status))
			found = append(found, f)
		case f.Reason == disk.ReasonDiskFilesystemChanged && sharesFilesystem(n, name):
			found = append(found, sharedFilesystem(n, name, f, p))
		default:
			found = append(found, f)
		}
	}
	if ready && disk.OnOverlay(status.FSType) { // an earlier release accepted the disk
		say(Warning, disk.ReasonDiskOnOverlay, "disk {disk} of node {node} is on overlayfs, which does not report failed writes: its replicas could lose data unnoticed", nil,
			Step{"Add a disk with a file system of a device, then move the replicas there", `kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"disks":{"{disk}":{"allowScheduling":false,"evictionRequested":true}}}}'`})
	}
	switch {
	case spec.EvictionRequested:
		say(Info, "EvictionRequested", "all replicas are being evicted from disk {disk} of node {node}: its evictionRequested is true", nil,
			Step{"When the eviction is complete, turn it off and allow new replicas", `kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"disks":{"{disk}":{"evictionRequested":false,"allowScheduling":true}}}}'`})
	case !spec.AllowScheduling:
		say(Info, "SchedulingDisabled", "disk {disk} of node {node} gets no new replicas: its allowScheduling is false", nil,
			Step{"Allow new replicas, if that is no longer intended", `kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"disks":{"{disk}":{"allowScheduling":true}}}}'`})
	}
	return found
}

// smallDisk is the size in bytes below which storageAvailable 0 does not mean that a disk is full: the value is
// rounded down.
const smallDisk = int64(1) << 30

// isFullDisk reports whether a disk that can be read has no space left.
func isFullDisk(status longhorn.DiskStatus) bool {
	return types.IsConditionTrue(status.Conditions, types.ConditionReady) && types.FindCondition(status.Conditions, types.ConditionSchedulable).Reason == types.ReasonDiskPressure &&
		status.StorageAvailable <= 0 && status.StorageMaximum >= smallDisk
}

// fullDiskSteps returns the steps for a full disk: only free space helps there. They name the largest replica on it.
func fullDiskSteps(s *Snapshot, status longhorn.DiskStatus) []Step {
	steps := []Step{
		{"On the node, delete files that do not belong to Longhorn, or enlarge the file system: " + types.SizeText(status.StorageAvailable) + " of its " + types.SizeText(status.StorageMaximum) + " are free", "df -h {path}; du -xsh {path}/*"},
	}
	see := Step{"See which replicas use the space, and evict or delete those that are not needed", "kubectl -n {ns} get lhr -l longhorndiskuuid={uuid}"}
	var largest *longhorn.Replica
	count := 0
	for _, r := range s.Replicas {
		if r.Spec.DiskID == status.DiskUUID && r.Spec.DiskID != "" {
			count++
			if largest == nil || r.Spec.VolumeSize > largest.Spec.VolumeSize {
				largest = r
			}
		}
	}
	if largest != nil {
		see.Text += fmt.Sprintf(". The disk has %s; the largest is %s, of %s at most", plural(count, "replica"), s.replicaText(largest.Name, largest.Spec.VolumeName), types.SizeText(int64(largest.Spec.VolumeSize)))
	}
	return append(steps, see, Step{"Or add a disk to the node, then evict replicas from the full disk", "kubectl -n {ns} edit lhn {node}"})
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// samePath returns the other entries of a node that have the path of a disk.
func samePath(n *longhorn.Node, name string) []string {
	var others []string
	for other, spec := range n.Spec.Disks {
		if other != name && path.Clean(spec.Path) == path.Clean(n.Spec.Disks[name].Path) {
			others = append(others, other)
		}
	}
	slices.Sort(others)
	return others
}

// sharesFilesystem reports whether a disk with the reason DiskFilesystemChanged has the file system of another disk.
// A disk that was never accepted has no file system of its own that could have changed.
func sharesFilesystem(n *longhorn.Node, name string) bool {
	return n.Status.DiskStatus[name].DiskUUID == "" || len(samePath(n, name)) > 0
}

// sharedFilesystem adapts the finding of a disk that has the file system of another disk.
func sharedFilesystem(n *longhorn.Node, name string, f Finding, p place) Finding {
	f.Severity, f.What = Warning, p.fill("disk {disk} of node {node} has the file system of another disk: each disk needs its own file system")
	for _, other := range samePath(n, name) {
		f.Why = append(f.Why, fmt.Sprintf("disk %s of this node has the same path, %s", other, n.Spec.Disks[name].Path))
	}
	takeOut := Step{"Remove one of the two entries from the node's spec", "kubectl -n {ns} edit lhn {node}"}
	if n.Status.DiskStatus[name].DiskUUID == "" {
		takeOut = Step{"Remove this entry from the node's spec: it has no replicas", takeOutDisk}
	}
	f.Next = p.steps([]Step{takeOut, {"Or, to use it as a separate disk, mount another file system at its path", "findmnt -T {path}"}})
	return f
}

// maxHolds is the maximum number of replicas that a finding about an eviction names.
const maxHolds = 10

// evictionHolds says for each replica that must leave why it has not left yet, as far as its volume knows.
func evictionHolds(s *Snapshot, leaves func(*longhorn.Replica) bool) []string {
	var held []string
	for _, r := range s.Replicas {
		if leaves(r) {
			held = append(held, fmt.Sprintf("replica %s of volume %s: %s", r.Name, s.volumeText(r.Spec.VolumeName), whyStays(s, r)))
		}
	}
	slices.Sort(held)
	if more := len(held) - maxHolds; more > 0 {
		held = append(held[:maxHolds], fmt.Sprintf("and %d more", more))
	}
	return held
}

// whyStays returns the reason why a replica has not left its disk yet.
func whyStays(s *Snapshot, r *longhorn.Replica) string {
	v := named(s.Volumes, r.Spec.VolumeName)
	if v == nil && !s.sees(ResourceVolumes) {
		return "the state of its volume cannot be read"
	}
	if v == nil {
		return "its volume does not exist"
	}
	scheduled := types.FindCondition(v.Status.Conditions, types.ConditionScheduled)
	switch {
	case scheduled.Status == longhorn.ConditionFalse:
		return scheduled.Message
	case types.IsConditionTrue(v.Status.Conditions, types.ConditionEvictionWaits):
		return "the volume is detached; the replica moves when the volume is attached"
	case types.IsConditionTrue(v.Status.Conditions, types.ConditionDeviceInUse):
		return "the volume is to be detached, but its device is in use; the replica moves when the volume is attached again"
	case rebuildLimit(s) == 0:
		return fmt.Sprintf("setting %s is 0, so no replica is rebuilt", settings.ConcurrentReplicaRebuildPerNodeLimit)
	case types.IsStrictLocal(v):
		return "the volume is strict-local, and can move only to another disk of the same node"
	}
	if name, status := rebuilding(s, r.Spec.VolumeName); name != "" {
		return fmt.Sprintf("replica %s replaces it; its rebuild is at %d %%", name, status.Progress)
	}
	return "another replica must replace it first"
}
