package explain

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/disk"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// secondDisk is an entry of node n1 with a path.
func (w *world) secondDisk(path, uuid, reason, message string) {
	n := w.Nodes[0]
	n.Spec.Disks["nvme-ssd"] = longhorn.DiskSpec{Path: path, AllowScheduling: true}
	status := longhorn.DiskStatus{DiskUUID: uuid}
	condition(&status.Conditions, types.ConditionReady, longhorn.ConditionFalse, reason, message)
	n.Status.DiskStatus["nvme-ssd"] = status
}

func TestAdviceFollowsTheCauseOfACondition(t *testing.T) {
	const second = "disk nvme-ssd on node n1"
	runFaults(t, []fault{
		{
			name: "two entries have one path → take the new one out", ask: "disk n1 nvme-ssd",
			change: func(w *world) {
				w.secondDisk("/var/lib/longhorn/", "", disk.ReasonDiskFilesystemChanged, "it shares file system f with disks [disk-1]; a file system can serve only one disk")
			},
			object: second, severity: Warning, reason: disk.ReasonDiskFilesystemChanged, what: "has the file system of another disk",
			why: "disk disk-1 of this node has the same path", command: `{"nvme-ssd":null}`,
		},
		{
			name: "a new entry has another path of a file system that is a disk → take it out", ask: "disk n1 nvme-ssd",
			change: func(w *world) {
				w.secondDisk("/mnt/link", "", disk.ReasonDiskFilesystemChanged, "it shares file system f with disks [disk-1]")
			},
			object: second, severity: Warning, reason: disk.ReasonDiskFilesystemChanged, what: "has the file system of another disk", why: "with disks [disk-1]", command: `{"nvme-ssd":null}`,
		},
		{
			name: "two recorded disks have one path → one of them, by hand", ask: "disk n1 nvme-ssd",
			change: func(w *world) {
				w.secondDisk("/var/lib/longhorn", "uuid-2", disk.ReasonDiskFilesystemChanged, "it shares file system f with disks [disk-1]")
			},
			object: second, severity: Warning, reason: disk.ReasonDiskFilesystemChanged, what: "has the file system of another disk", why: "same path", command: "edit lhn n1",
		},
		{
			name: "a small disk whose free space is rounded down to nothing → no room, and not full", ask: "disk n1 disk-1",
			change: func(w *world) {
				w.disk(1, func(_ *longhorn.DiskSpec, s *longhorn.DiskStatus) { s.StorageAvailable, s.StorageMaximum = 0, 100<<20 })
				w.diskSays(1, types.ConditionSchedulable, longhorn.ConditionFalse, types.ReasonDiskPressure, "too little")
			},
			object: "disk disk-1 on node n1", severity: Warning, reason: types.ReasonDiskPressure, what: "has no space for another replica", command: "df -h",
		},
		{
			name: "a path that leads nowhere → correct it", ask: "disk n1 nvme-ssd",
			change: func(w *world) {
				w.secondDisk("/mnt/nope", "", disk.ReasonNoDiskInfo, "open directory /mnt/nope: no such file or directory")
			},
			object: second, severity: Broken, reason: disk.ReasonNoDiskInfo, what: "cannot be read", why: "no such file", command: "edit lhn n1",
		},
		{
			name: "a shared volume whose name is refused → another name", ask: "volume 2024-media",
			change: func(w *world) {
				w.share(longhorn.ShareManagerStateError, types.ReasonShareParameterInvalid, `name: "2024-media" ... must start with a letter`)
				w.rename("2024-media")
			},
			object: "share manager 2024-media", severity: Broken, reason: types.ReasonShareParameterInvalid, what: "its share cannot be configured as requested", why: "must start with a letter", command: "",
		},
		{
			name: "an attribute of the PersistentVolume is refused → the PersistentVolume, by its own name", ask: "volume v",
			change: func(w *world) {
				w.claimed()
				w.share(longhorn.ShareManagerStateError, types.ReasonShareParameterInvalid, "nfsOptions: wrong")
			},
			object: "share manager v", severity: Broken, reason: types.ReasonShareParameterInvalid, what: "its share cannot be configured", why: "nfsOptions", command: "kubectl get pv pv-1 -o yaml",
		},
		{
			name: "its PersistentVolume is not known → all, with the volume of each", ask: "volume v",
			change: func(w *world) {
				w.share(longhorn.ShareManagerStateError, types.ReasonShareParameterInvalid, "nfsOptions: wrong")
			},
			object: "share manager v", severity: Broken, reason: types.ReasonShareParameterInvalid, what: "its share cannot be configured", command: "VOLUME:.spec.csi.volumeHandle",
		},
		{
			name: "default disks are not used, and the node has disks → what would help", ask: "node n1",
			change: func(w *world) {
				w.nodeSays(1, types.ConditionDefaultDisksConfigUsed, longhorn.ConditionFalse, types.ReasonCreateDefaultDiskSettingOff, "the setting is false; the node has disks")
			},
			object: "node n1", severity: Info, reason: types.ReasonCreateDefaultDiskSettingOff, what: "is not used", command: "edit lhn n1",
		},
	})
}

// rename changes the name of volume v and of its share.
func (w *world) rename(name string) {
	w.v.Name, w.e.Name, w.e.Spec.VolumeName, w.va.Name = name, types.EngineName(name), name, name
	for _, r := range w.Replicas {
		r.Spec.VolumeName = name
	}
	for _, sm := range w.ShareManagers {
		sm.Name = name
	}
}

// TestNoAdviceTakesTheNameOfAVolumeForThatOfAPersistentVolume: a PersistentVolume may have any name.
func TestNoAdviceTakesTheNameOfAVolumeForThatOfAPersistentVolume(t *testing.T) {
	for _, table := range tables {
		for c, a := range table {
			for _, step := range a.next {
				if strings.Contains(step.Command, "pv {volume}") || strings.Contains(step.Command, "pvc {volume}") {
					t.Errorf("%v advises %q", c, step.Command)
				}
			}
		}
	}
}

// mounts are the reasons of a disk or replica for which a mount is the remedy.
var mounts = []string{
	disk.ReasonNoDiskInfo, disk.ReasonDiskFilesystemChanged, disk.ReasonDiskReadOnly, types.ReasonDiskUnmounted, types.ReasonDiskReplaced, types.ReasonDiskMissing, types.ReasonDiskMismatch,
}

func TestToMountIsAdvisedOnlyWhereItHelps(t *testing.T) {
	for _, table := range []map[cause]advice{diskAdvice, replicaAdvice} {
		for c, a := range table {
			advised := slices.ContainsFunc(a.next, func(s Step) bool {
				return strings.Contains(s.Command, "mount ") && !strings.HasPrefix(s.Command, "umount")
			})
			if helps := slices.Contains(mounts, c.reason); advised != helps {
				t.Errorf("%v: advised to mount %v, and that helps %v", c, advised, helps)
			}
		}
	}
}

func TestAPodThatHasEndedIsNoUser(t *testing.T) {
	w := newWorld()
	c, pv, pod := w.claimed()
	waits(pod)
	w.happens(pod, "FailedMount", `volume "pv-1" : old`, 0)
	pod.Status.Phase = corev1.PodFailed
	if found := ofUsers(&w.Snapshot, c, pv); len(found) != 0 {
		t.Errorf("it says %+v", found)
	}
}
