package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
)

// logicalBlock is the device's logical block size in bytes, for ever: file systems bake it in.
const logicalBlock = 512

// loopMajor is the kernel's number for loop devices.
const loopMajor = 7

// errClaimed says that a device is not merely open: it is mounted, or opened exclusively.
var errClaimed = errors.New("it is mounted or claimed")

// blockNode is the kernel's node of a device that this process keeps open.
type blockNode struct {
	path string
	dev  uint64 // major and minor
	held int    // descriptor that keeps it; -1 when closed
}

// loopDevice is a loop device of this process. It clears itself with its last user, so the death of this process leaks none.
type loopDevice struct{ blockNode }

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
		d, err := configureLoop(dir, n, &config)
		if !errors.Is(err, unix.EBUSY) {
			return d, err
		}
	}
	return nil, errors.New("no free loop device: each was taken by another process first")
}

// configureLoop binds loop device n. The kernel asks the file system of the file meanwhile, so a thread apart does it.
func configureLoop(dir string, n int, config *unix.LoopConfig) (*loopDevice, error) {
	d := &loopDevice{blockNode{path: filepath.Join(dir, fmt.Sprintf("loop%d", n)), dev: unix.Mkdev(loopMajor, uint32(n)), held: -1}}
	if err := d.makeNode(); err != nil {
		return nil, err
	}
	h, err := openHandle(d.path, unix.O_RDWR, int(config.Fd))
	if err != nil {
		return nil, err
	}
	if err := h.do(func(fd int) error { return unix.IoctlLoopConfigure(fd, config) }); err != nil {
		h.close()
		<-h.ended
		return nil, fmt.Errorf("configure %s: %w", d.path, err)
	}
	if err = d.hold(); err != nil {
		_ = h.do(func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0) })
	}
	h.close()
	<-h.ended
	if err != nil {
		return nil, err
	}
	return d, nil
}

// makeNode makes the kernel's node of the device where there is none.
func (d *blockNode) makeNode() error {
	err := unix.Mknod(d.path, unix.S_IFBLK|0o660, int(d.dev))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make %s: %w", d.path, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(d.path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK || st.Rdev != d.dev {
		return fmt.Errorf("%s is not the device of that number (%w)", d.path, errors.Join(err, unix.ENOTBLK))
	}
	return nil
}

// hold keeps the device open, at a number that is closed after the FUSE connections.
func (d *blockNode) hold() error {
	low, err := unix.Open(d.path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", d.path, err)
	}
	fd, err := unix.FcntlInt(uintptr(low), unix.F_DUPFD_CLOEXEC, lowestLoopFD)
	_ = unix.Close(low)
	if err != nil {
		return fmt.Errorf("keep %s open: %w", d.path, err)
	}
	if fd >= lowestConnFD {
		_ = unix.Close(fd)
		return fmt.Errorf("keep %s open: there are %d devices, and no more can be kept", d.path, lowestConnFD-lowestLoopFD)
	}
	d.held = fd
	return nil
}

// limit makes the kernel send no larger requests than fit: what is longer than a request of FUSE would be split, and a discard of many
// gigabytes would hold its range, and all that waits for it, for as long as it takes. A kernel that refuses keeps its own limits.
func (d *loopDevice) limit() error {
	queue := fmt.Sprintf("/sys/dev/block/%d:%d/queue", unix.Major(d.dev), unix.Minor(d.dev))
	return errors.Join(
		os.WriteFile(filepath.Join(queue, "discard_max_bytes"), []byte(fmt.Sprint(64<<20)), 0),
		os.WriteFile(filepath.Join(queue, "max_sectors_kb"), []byte("1024"), 0),
	)
}

// detach ends the device if nothing else uses it; otherwise it returns ErrInUse and the device stays.
//
//  1. open it exclusively: fails while it is mounted or otherwise claimed, in any mount namespace, and keeps new claims away
//  2. write back what plain writers left in its page cache; that takes as long as the server of the file system takes
//  3. ask proceed: the last moment at which all can stay as it is
//  4. close the descriptor that held it, so that the exclusive one is the last, unless others have it open
//  5. clear it: the kernel then refuses new openers, or does not, if there are others; asking for the status tells which
//  6. call gone, while no other can have the device's number; close; the kernel drops the file
func (d *loopDevice) detach(proceed func() error, gone func()) (syncErr, err error) {
	claim, err := openHandle(d.path, unix.O_RDWR|unix.O_EXCL)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("%s: %w: %w", d.path, errClaimed, engine.ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	defer func() { <-claim.ended }()
	defer claim.close()
	syncErr = claim.do(unix.Fsync)
	if err := proceed(); err != nil {
		return syncErr, err
	}
	if d.held >= 0 {
		_ = unix.Close(d.held)
		d.held = -1
	}
	if err := claim.do(d.clear); err != nil { // hold it again, before the claim ends
		return syncErr, errors.Join(err, d.hold())
	}
	gone()
	return syncErr, nil
}

// clear unbinds a device that is open nowhere else.
func (d *loopDevice) clear(fd int) error {
	if err := unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("clear %s: %w", d.path, err)
	}
	if _, err := unix.IoctlLoopGetStatus64(fd); err == nil {
		return fmt.Errorf("%s is open: %w", d.path, engine.ErrInUse)
	}
	return nil
}

// release lets go of the device, which clears itself when all have. If this was the last, its page cache is written back, in another thread:
// that is waited for only for a moment.
func (d *blockNode) release() {
	if d.held < 0 {
		return
	}
	last, err := openHandle(d.path, unix.O_RDWR)
	_ = unix.Close(d.held)
	d.held = -1
	if err != nil {
		return
	}
	last.close()
	moment := time.NewTimer(time.Second)
	defer moment.Stop()
	select {
	case <-last.ended:
	case <-moment.C:
	}
}
