package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
	utilexec "k8s.io/utils/exec"
)

// ErrNotTheDevice means that another device has replaced the one that was examined.
var ErrNotTheDevice = errors.New("another device has replaced this device")

// guardedMkfs runs a command that creates a file system only if check allows it. mount-utils runs the command right
// after it found a device blank, and drops the error's chain, so refused has the error.
type guardedMkfs struct {
	utilexec.Interface
	check   func() error
	refused *error
}

// Command implements utilexec.Interface.
func (g guardedMkfs) Command(cmd string, args ...string) utilexec.Cmd {
	if strings.HasPrefix(cmd, "mkfs.") {
		if *g.refused = g.check(); *g.refused != nil {
			return refusedCmd{err: *g.refused}
		}
	}
	return g.Interface.Command(cmd, args...)
}

// refusedCmd is never run. mount-utils calls only CombinedOutput.
type refusedCmd struct {
	utilexec.Cmd
	err error
}

// CombinedOutput implements utilexec.Cmd.
func (c refusedCmd) CombinedOutput() ([]byte, error) { return nil, c.err }

// checkBlank confirms a result of blkid: blkid has just found nothing, and the device could be read at that time. It is
// needed because one exit code of blkid stands for "nothing found", "could not read" and "not there". held is the
// number of the device that was open all that time.
//
//	blkid finds nothing on            afterwards, the path leads to             mkfs
//	the volume's device               that device, and it can be read           yes
//	a device that has just died       that device, and it cannot be read        no
//	a device that has just died       the device that replaced it               no: the data is there
//
// The read is a direct one: the page cache still has the result of an earlier read of the same blocks. A dead device
// does not come back, so if the device can be read now, blkid could read it.
func (s *System) checkBlank(device string, held DeviceNumber) error {
	if err := s.files.Probe(device); err != nil {
		return fmt.Errorf("reading device %s again, to confirm that it is blank: %w: %w", device, ErrUnreadable, err)
	}
	switch now, err := s.BlockDevice(device); {
	case err != nil:
		return err
	case now != held:
		return fmt.Errorf("%s: %w", device, ErrNotTheDevice)
	}
	return nil
}

// Hold implements Files.
func (HostFiles) Hold(device string) (DeviceNumber, func(), error) {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, nil, &fs.PathError{Op: "open", Path: device, Err: err}
	}
	release := func() { _ = unix.Close(fd) } // only held open
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		release()
		return 0, nil, &fs.PathError{Op: "stat", Path: device, Err: err}
	}
	return DeviceNumber(st.Rdev), release, nil
}
