package mount

import (
	"fmt"

	mountutils "k8s.io/mount-utils"
)

// DeviceSize is the size in bytes that a block device has now.
func (s *System) DeviceSize(device string) (int64, error) {
	if _, err := s.BlockDevice(device); err != nil {
		return 0, err
	}
	return s.files.DeviceSize(device)
}

// Grow makes the file system of a device, mounted at target, as large as the device. One that
// fills its device stays as it is, so Grow may be repeated, also after it was interrupted: ext4
// and xfs keep each step of their growth in the journal. A blank device has nothing to grow.
//
// The tools compare the sizes, not this function: what a file system calls its size leaves out
// its own metadata. Growing a mounted ext4 needs CAP_SYS_RESOURCE in the host's user namespace.
//
// Nothing is cancelled here either; see FormatAndMount.
func (s *System) Grow(device, target string) error {
	if _, err := s.BlockDevice(device); err != nil {
		return err
	}
	if _, err := mountutils.NewResizeFs(s.exec).Resize(device, target); err != nil {
		return fmt.Errorf("growing the file system of %s at %s: %w", device, target, err)
	}
	return nil
}
