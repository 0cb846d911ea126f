package disk

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MarkVolumes sets OnVolume of the records that lie on a device in deviceDir. This is a directory below root with one
// block device, by name, for each volume that is attached here. MarkVolumes does not recognize a partition of such a
// device, or a device mapper device on it. If the directory is missing, the node has no volumes.
func MarkVolumes(root, deviceDir string, records map[string]Record) error {
	entries, err := os.ReadDir(filepath.Join(root, deviceDir))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the devices of volumes: %w", err)
	}
	volumes := map[uint64]string{}
	for _, e := range entries {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(root, deviceDir, e.Name()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK {
			volumes[st.Rdev] = e.Name()
		}
	}
	for name, r := range records {
		device := r.SuperBlockID
		if device == 0 {
			device = r.DeviceID
		}
		if r.OnVolume = volumes[device]; r.OnVolume != "" {
			records[name] = r
		}
	}
	return nil
}
