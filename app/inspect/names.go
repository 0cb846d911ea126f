package inspect

import (
	"slices"

	"github.com/longhorn-lep/longhorn-manager/explain"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// VolumeNames returns the names of all volumes, sorted. The following functions do the same for other kinds. Shells
// complete these names.
func VolumeNames(s *explain.Snapshot) []string {
	var names []string
	for _, v := range s.Volumes {
		names = append(names, v.Name)
	}
	return unique(names)
}

// NodeNames returns the names of all nodes.
func NodeNames(s *explain.Snapshot) []string {
	var names []string
	for _, n := range s.Nodes {
		names = append(names, n.Name)
	}
	return unique(names)
}

// DiskNames returns the names of the disks of all nodes.
func DiskNames(s *explain.Snapshot) []string {
	var names []string
	for _, n := range s.Nodes {
		for disk := range n.Spec.Disks {
			names = append(names, disk)
		}
	}
	return unique(names)
}

// ClaimNames returns namespace/name of all claims that wait, or have a volume of this driver.
func ClaimNames(s *explain.Snapshot) []string {
	var names []string
	ours := map[string]bool{"": true}
	for _, pv := range s.PersistentVolumes {
		ours[pv.Name] = pv.Spec.CSI != nil && pv.Spec.CSI.Driver == types.DriverName
	}
	for _, c := range s.Claims {
		if ours[c.Spec.VolumeName] {
			names = append(names, c.Namespace+"/"+c.Name)
		}
	}
	return unique(names)
}

// PersistentVolumeNames returns the names of all PersistentVolumes of this driver.
func PersistentVolumeNames(s *explain.Snapshot) []string {
	var names []string
	for _, pv := range s.PersistentVolumes {
		if pv.Spec.CSI != nil && pv.Spec.CSI.Driver == types.DriverName {
			names = append(names, pv.Name)
		}
	}
	return unique(names)
}

// PodNames returns namespace/name of all pods that use claims and have not started.
func PodNames(s *explain.Snapshot) []string {
	var names []string
	for _, pod := range s.UserPods {
		names = append(names, pod.Namespace+"/"+pod.Name)
	}
	return unique(names)
}

// SnapshotNames returns the names of all snapshots.
func SnapshotNames(s *explain.Snapshot) []string {
	var names []string
	for _, taken := range s.Snapshots {
		names = append(names, taken.Name)
	}
	return unique(names)
}

// SettingNames returns the names of all settings.
func SettingNames(s *explain.Snapshot) []string {
	var names []string
	for _, setting := range s.Settings {
		names = append(names, setting.Name)
	}
	return unique(names)
}

func unique(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
