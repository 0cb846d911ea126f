package mount

import (
	"errors"
	"fmt"

	mountutils "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
)

// DeviceSize is the present size of a block device in bytes.
func (s *System) DeviceSize(device string) (int64, error) {
	if _, err := s.BlockDevice(device); err != nil {
		return 0, err
	}
	return s.files.DeviceSize(device)
}

// Grow makes the file system of a device, mounted at target, as large as the device. A file system that fills its
// device is not changed. So Grow may be repeated, even after an interruption: ext4 and xfs record each step of their
// growth in the journal. A blank device has nothing to grow.
//
// The tools compare the sizes, not this function: the size that a file system reports does not include its own
// metadata. Growing a mounted ext4 needs CAP_SYS_RESOURCE in the host's user namespace.
//
// Grow cannot be cancelled; see FormatAndMount.
func (s *System) Grow(device, target string) error {
	if _, err := s.BlockDevice(device); err != nil {
		return err
	}
	if _, err := mountutils.NewResizeFs(s.exec).Resize(device, target); err != nil {
		return fmt.Errorf("growing the file system of %s at %s: %w", device, target, err)
	}
	return nil
}

// ErrNotOffline: the file system grows only while it is mounted, or the device has none.
var ErrNotOffline = errors.New("only an ext4 file system can grow while it is not mounted")

// e2fsckCorrected is e2fsck's exit code for "there were errors, and all of them are corrected", see e2fsck(8).
const e2fsckCorrected = 1

// GrowOffline makes the ext4 on a device that is mounted nowhere as large as the device. It only needs the right to
// write the device, so it works where the kernel refuses to grow a mounted ext4.
//
// resize2fs requires a complete check of an unmounted file system first, which reads all of its metadata. Its work is
// in no journal: the file system is marked as faulty until the end. If resize2fs is interrupted, the check before the
// next mount repairs the file system. So callers must try Grow first. A file system with damage that only a person can
// repair is not changed: GrowOffline returns an error.
//
// If a device is in use elsewhere, even in another mount namespace, e2fsck refuses it. GrowOffline cannot be cancelled
// either; see FormatAndMount.
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
