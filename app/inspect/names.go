package inspect

import (
	"slices"

	"github.com/longhorn-lep/longhorn-manager/explain"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// VolumeNames are those of all volumes, sorted; the following are the same of other kinds. They are what a shell completes.
func VolumeNames(s *explain.Snapshot) []string {
	var names []string
	for _, v := range s.Volumes {
		names = append(names, v.Name)
	}
	return unique(names)
}

// NodeNames are those of all nodes.
func NodeNames(s *explain.Snapshot) []string {
	var names []string
	for _, n := range s.Nodes {
		names = append(names, n.Name)
	}
	return unique(names)
}

// DiskNames are those of the disks of all nodes.
func DiskNames(s *explain.Snapshot) []string {
	var names []string
	for _, n := range s.Nodes {
		for disk := range n.Spec.Disks {
			names = append(names, disk)
		}
	}
	return unique(names)
}

// ClaimNames are namespace/name of all claims that wait, or have a volume of this driver.
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

// PersistentVolumeNames are those of all PersistentVolumes of this driver.
func PersistentVolumeNames(s *explain.Snapshot) []string {
	var names []string
	for _, pv := range s.PersistentVolumes {
		if pv.Spec.CSI != nil && pv.Spec.CSI.Driver == types.DriverName {
			names = append(names, pv.Name)
		}
	}
	return unique(names)
}

// SettingNames are those of all settings.
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
