package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
	utilexec "k8s.io/utils/exec"
)

// ErrNotTheDevice means that another device has taken the place of the one that was looked at.
var ErrNotTheDevice = errors.New("another device is there now")

// guardedMkfs runs a command that makes a file system only where check allows that. mount-utils runs it right after it found a device
// blank, and drops the error's chain: refused has it.
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

// refusedCmd is not run. mount-utils calls nothing but CombinedOutput.
type refusedCmd struct {
	utilexec.Cmd
	err error
}

// CombinedOutput implements utilexec.Cmd.
func (c refusedCmd) CombinedOutput() ([]byte, error) { return nil, c.err }

// checkBlank confirms that blkid, which has just seen nothing, has looked at a device that could be read: one exit code of blkid says
// "nothing found", "could not read" and "not there". held is the number of the device that was open all that time.
//
//	blkid sees nothing on             afterwards, the path leads to             mkfs
//	the volume's device               that device, and it can be read           yes
//	a device that has just died       that device, and it cannot be read        no
//	a device that has just died       the device that took its place            no: the data is there
//
// The read is a direct one: the page cache still has what an earlier read of the same blocks found. A dead device does not come back, so
// one that can be read now could be read by blkid.
func (s *System) checkBlank(device string, held DeviceNumber) error {
	if err := s.files.Probe(device); err != nil {
		return fmt.Errorf("reading device %s after nothing was found on it: %w: %w", device, ErrUnreadable, err)
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
	release := func() { _ = unix.Close(fd) } // only held
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		release()
		return 0, nil, &fs.PathError{Op: "stat", Path: device, Err: err}
	}
	return DeviceNumber(st.Rdev), release, nil
}
