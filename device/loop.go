package device

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/engine"
)

// logicalBlock is the device's logical block size in bytes, for ever: file systems bake it in.
const logicalBlock = 512

// loopMajor is the kernel's number for loop devices.
const loopMajor = 7

// errClaimed says that a device is not merely open: it is mounted, or opened exclusively.
var errClaimed = errors.New("it is mounted or claimed")

// loopDevice is a loop device of this process. It clears itself with its last user, so the death of this process leaks none.
type loopDevice struct {
	path string
	dev  uint64 // major and minor
	held int    // descriptor that keeps it; -1 when closed
}

// attachLoop makes a loop device on a file. dir is where the kernel's device nodes are; name is shown by losetup.
func attachLoop(dir string, file int, name string) (*loopDevice, error) {
	control, err := unix.Open(filepath.Join(dir, "loop-control"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open loop-control: %w", err)
	}
	defer unix.Close(control)
	config := unix.LoopConfig{Fd: uint32(file), Size: logicalBlock}
	config.Info.Flags = unix.LO_FLAGS_DIRECT_IO | unix.LO_FLAGS_AUTOCLEAR
	copy(config.Info.File_name[:len(config.Info.File_name)-1], name)
	const tries = 64 // others take free devices too, between the two calls
	for range tries {
		n, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		d, err := openLoop(dir, n)
		if err != nil {
			return nil, err
		}
		switch err := unix.IoctlLoopConfigure(d.held, &config); {
		case err == nil:
			return d, nil
		case errors.Is(err, unix.EBUSY):
			_ = unix.Close(d.held)
		default:
			_ = unix.Close(d.held)
			return nil, fmt.Errorf("configure %s: %w", d.path, err)
		}
	}
	return nil, errors.New("no free loop device: each was taken by another process first")
}

// openLoop opens loop device n, and makes its node where nobody has.
func openLoop(dir string, n int) (*loopDevice, error) {
	d := &loopDevice{path: filepath.Join(dir, fmt.Sprintf("loop%d", n)), dev: unix.Mkdev(loopMajor, uint32(n))}
	err := unix.Mknod(d.path, unix.S_IFBLK|0o660, int(d.dev))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make %s: %w", d.path, err)
	}
	if d.held, err = unix.Open(d.path, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open %s: %w", d.path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(d.held, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK || st.Rdev != d.dev {
		_ = unix.Close(d.held)
		return nil, fmt.Errorf("%s is not loop device %d (%w)", d.path, n, errors.Join(err, unix.ENOTBLK))
	}
	return d, nil
}

// detach ends the device if nobody else uses it; otherwise it returns ErrInUse and the device stays.
//
//  1. open it exclusively: fails while it is mounted or otherwise claimed, in any mount namespace, and keeps new claims away
//  2. write back what plain writers left in its page cache
//  3. close the descriptor that held it, so that the exclusive one is the last, unless others have it open
//  4. clear it: the kernel then refuses new openers, or does not, if there are others; asking for the status tells which
//  5. close; the kernel drops the file
func (d *loopDevice) detach() (syncErr, err error) {
	claim, err := unix.Open(d.path, unix.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("%s: %w: %w", d.path, errClaimed, engine.ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", d.path, err)
	}
	syncErr = unix.Fsync(claim)
	if d.held >= 0 {
		_ = unix.Close(d.held)
		d.held = -1
	}
	clearErr := unix.IoctlSetInt(claim, unix.LOOP_CLR_FD, 0)
	if clearErr != nil && !errors.Is(clearErr, unix.ENXIO) {
		err = fmt.Errorf("clear %s: %w", d.path, clearErr)
	} else if _, bound := unix.IoctlLoopGetStatus64(claim); bound == nil {
		err = fmt.Errorf("%s is open: %w", d.path, engine.ErrInUse)
	}
	if err != nil { // hold it again, before the claim ends
		if d.held, clearErr = unix.Open(d.path, unix.O_RDWR|unix.O_CLOEXEC, 0); clearErr != nil {
			err = errors.Join(err, clearErr)
		}
	}
	_ = unix.Close(claim)
	return syncErr, err
}

// release lets go of the device, which clears itself when all have.
func (d *loopDevice) release() {
	if d.held >= 0 {
		_ = unix.Close(d.held)
		d.held = -1
	}
}
