package explain

import (
	"fmt"
	"path"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/disk"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// ofDisk explains a disk by its conditions, which have the cause, and by what people have asked of it.
func ofDisk(s *Snapshot, n *longhorn.Node, name string) []Finding {
	spec, status := n.Spec.Disks[name], n.Status.DiskStatus[name]
	o, p := Object{Kind: KindDisk, Name: name, Node: n.Name}, nodePlace(s, n.Name)
	p["disk"], p["path"], p["uuid"] = name, spec.Path, status.DiskUUID
	var found []Finding
	say := func(severity Severity, reason, what string, why []string, next ...Step) {
		found = append(found, Finding{o, severity, reason, p.fill(what), why, p.steps(next)})
	}
	if len(status.Conditions) == 0 {
		say(Warning, "NoStatus", "disk {disk} of node {node} has not been looked at yet", nil, seeDaemon)
	}
	found = append(found, readiness(o, status.Conditions, p.fill("it is not known whether disk {disk} of node {node} is ready"), p.steps([]Step{seeDaemon}))...)
	ready := types.IsConditionTrue(status.Conditions, types.ConditionReady)
	for _, f := range ofConditions(o, p, status.Conditions) {
		switch {
		case f.Reason == types.ReasonDiskNotReady && !ready: // it follows from Ready
		case f.Reason == types.ReasonReplicasLeft:
			f.Why = append(f.Why, evictionHolds(s, func(r *longhorn.Replica) bool { return r.Spec.DiskID == status.DiskUUID })...)
			found = append(found, f)
		case f.Reason == types.ReasonDiskPressure && ready && status.StorageAvailable <= 0 && status.StorageMaximum >= smallDisk:
			f.Severity, f.What = Broken, p.fill("disk {disk} of node {node} is full: writes to its replicas wait or fail")
			found = append(found, f)
		case f.Reason == disk.ReasonDiskFilesystemChanged && sharesFilesystem(n, name):
			found = append(found, sharedFilesystem(n, name, f, p))
		default:
			found = append(found, f)
		}
	}
	if ready && disk.OnOverlay(status.FSType) { // of an earlier release, which let it in
		say(Warning, disk.ReasonDiskOnOverlay, "disk {disk} of node {node} is on overlayfs, which does not tell of writes that failed: its replicas could lose data unseen", nil,
			Step{"Add a disk with a file system of a device, then move the replicas there", `kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"disks":{"{disk}":{"allowScheduling":false,"evictionRequested":true}}}}'`})
	}
	switch {
	case spec.EvictionRequested:
		say(Info, "EvictionRequested", "all replicas are to leave disk {disk} of node {node}, for its evictionRequested is true", nil,
			Step{"Take it back, and allow new replicas, when that is over", `kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"disks":{"{disk}":{"evictionRequested":false,"allowScheduling":true}}}}'`})
	case !spec.AllowScheduling:
		say(Info, "SchedulingDisabled", "disk {disk} of node {node} gets no new replicas: its allowScheduling is false", nil,
			Step{"Allow it, if that is not wanted any more", `kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"disks":{"{disk}":{"allowScheduling":true}}}}'`})
	}
	return found
}

// smallDisk is the size in bytes below which storageAvailable 0 does not say that a disk is full: the figure is
// rounded down.
const smallDisk = int64(1) << 30

// samePath are the other entries of a node that have the path of a disk.
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

// sharesFilesystem tells whether a disk with the reason DiskFilesystemChanged has the file system of another disk. A
// disk that was never accepted has no file system of its own that could have changed.
func sharesFilesystem(n *longhorn.Node, name string) bool {
	return n.Status.DiskStatus[name].DiskUUID == "" || len(samePath(n, name)) > 0
}

// sharedFilesystem turns the finding of a disk that has the file system of another one into what helps then.
func sharedFilesystem(n *longhorn.Node, name string, f Finding, p place) Finding {
	f.Severity, f.What = Warning, p.fill("disk {disk} of node {node} has the file system of another disk: a file system can be one disk only")
	for _, other := range samePath(n, name) {
		f.Why = append(f.Why, fmt.Sprintf("disk %s of this node has the same path, %s", other, n.Spec.Disks[name].Path))
	}
	takeOut := Step{"Take one of the two entries out of the node's spec", "kubectl -n {ns} edit lhn {node}"}
	if n.Status.DiskStatus[name].DiskUUID == "" {
		takeOut = Step{"Take this entry out of the node's spec: it has no replicas", takeOutDisk}
	}
	f.Next = p.steps([]Step{takeOut, {"Or, if it is to be a disk of its own, mount another file system at its path", "findmnt -T {path}"}})
	return f
}

// maxHolds bounds how many replicas a finding about an eviction names.
const maxHolds = 10

// evictionHolds says of each replica that is to leave why it is still there, as far as its volume knows.
func evictionHolds(s *Snapshot, leaves func(*longhorn.Replica) bool) []string {
	var held []string
	for _, r := range s.Replicas {
		if leaves(r) {
			held = append(held, fmt.Sprintf("replica %s of volume %s: %s", r.Name, r.Spec.VolumeName, whyStays(s, r)))
		}
	}
	slices.Sort(held)
	if more := len(held) - maxHolds; more > 0 {
		held = append(held[:maxHolds], fmt.Sprintf("and %d more", more))
	}
	return held
}

// whyStays is why a replica has not left its disk yet.
func whyStays(s *Snapshot, r *longhorn.Replica) string {
	v := named(s.Volumes, r.Spec.VolumeName)
	if v == nil && !s.sees(ResourceVolumes) {
		return "what its volume waits for cannot be read"
	}
	if v == nil {
		return "its volume does not exist"
	}
	scheduled := types.FindCondition(v.Status.Conditions, types.ConditionScheduled)
	switch {
	case scheduled.Status == longhorn.ConditionFalse:
		return scheduled.Message
	case types.IsConditionTrue(v.Status.Conditions, types.ConditionEvictionWaits):
		return "the volume is detached, and the replica moves when it is attached"
	case types.IsConditionTrue(v.Status.Conditions, types.ConditionDeviceInUse):
		return "the volume is to be detached, and its device is in use; the replica moves when it is attached again"
	case rebuildLimit(s) == 0:
		return fmt.Sprintf("setting %s is 0, so nothing is rebuilt", types.SettingConcurrentReplicaRebuildPerNodeLimit)
	case types.IsStrictLocal(v):
		return "the volume is strict-local, and leaves for another disk of the same node alone"
	}
	if name, status := rebuilding(s, r.Spec.VolumeName); name != "" {
		return fmt.Sprintf("replica %s takes its place, and has %d %%", name, status.Progress)
	}
	return "another replica takes its place first"
}
