package mount

import (
	"errors"
	"fmt"

	mountutils "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
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

// ErrNotOffline: the file system grows only while it is mounted, or there is none.
var ErrNotOffline = errors.New("not an ext4, which alone grows unmounted")

// e2fsckCorrected is e2fsck's exit code for "there were errors, and all of them are corrected", see e2fsck(8).
const e2fsckCorrected = 1

// GrowOffline makes the ext4 of a device that is mounted nowhere as large as the device. It needs no right but
// to write the device, so it works where the kernel refuses to grow the mounted one. resize2fs demands a whole
// check of an unmounted file system first, which reads all of its metadata; and its work is in no journal: the
// file system is marked as faulty until the end, and one that was interrupted is repaired by the check before
// the next mount. So try Grow first. A file system with damage that needs a person is left as it is: an error.
//
// A device that is in use elsewhere, in another mount namespace too, is refused by e2fsck. Nothing is cancelled
// here either; see FormatAndMount.
func (s *System) GrowOffline(device string) error {
	format, err := s.Contents(device)
	if err != nil {
		return err
	}
	if format != typeExt4 {
		return fmt.Errorf("growing the unmounted file system of %s: it has %q: %w", device, format, ErrNotOffline)
	}
	out, err := s.exec.Command("e2fsck", "-f", "-p", device).CombinedOutput()
	if exit := utilexec.ExitError(nil); errors.As(err, &exit) && exit.ExitStatus() == e2fsckCorrected {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("checking the unmounted file system of %s: %w: %s", device, err, out)
	}
	if out, err := s.exec.Command("resize2fs", device).CombinedOutput(); err != nil {
		return fmt.Errorf("growing the unmounted file system of %s: %w: %s", device, err, out)
	}
	return nil
}
