package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// logicalBlock is the device's logical block size in bytes. It must never change: file systems depend on it.
const logicalBlock = 512

// loopMajor is the kernel's major number of loop devices.
const loopMajor = 7

// errClaimed says that a device is not merely open: it is mounted, or opened exclusively.
var errClaimed = errors.New("it is mounted, or another program uses it exclusively")

// blockNode is the kernel's node of a device that this process keeps open.
type blockNode struct {
	path string
	dev  uint64 // major and minor
	held int    // descriptor that keeps the device open; -1 when closed
}

// loopDevice is a loop device of this process. The kernel clears it when its last user closes it, so the death of this
// process leaves no loop device behind.
type loopDevice struct{ blockNode }

// attachLoop creates a loop device on a file. dir contains the kernel's device nodes; losetup shows name.
func attachLoop(dir string, file int, name string) (*loopDevice, error) {
	control, err := unix.Open(filepath.Join(dir, "loop-control"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open loop-control: %w", err)
	}
	defer unix.Close(control)
	config := unix.LoopConfig{Fd: uint32(file), Size: logicalBlock}
	config.Info.Flags = unix.LO_FLAGS_DIRECT_IO | unix.LO_FLAGS_AUTOCLEAR
	copy(config.Info.File_name[:len(config.Info.File_name)-1], name)
	const tries = 64 // other processes may take the free device between the two calls
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
	return nil, errors.New("no free loop device: other processes took each one first")
}

// configureLoop binds loop device n. During that call the kernel sends requests to the file's file system, so a
// separate thread does it.
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

// makeNode creates the kernel's node of the device if it does not exist.
func (d *blockNode) makeNode() error {
	err := unix.Mknod(d.path, unix.S_IFBLK|0o660, int(d.dev))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("create %s: %w", d.path, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(d.path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK || st.Rdev != d.dev {
		return fmt.Errorf("%s is not the block device with the expected number (%w)", d.path, errors.Join(err, unix.ENOTBLK))
	}
	return nil
}

// hold keeps the device open. The number of its descriptor is lower than those of the FUSE connections, so a dying
// process closes it after them.
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
		return fmt.Errorf("keep %s open: the limit of %d devices is reached", d.path, lowestConnFD-lowestLoopFD)
	}
	d.held = fd
	return nil
}

// limit makes the kernel send no requests that are too large. A request that is longer than a FUSE request would be
// split. A discard of many gigabytes would hold its range, and all requests that wait for the range, for as long as it
// takes. If the kernel refuses, its own limits apply.
func (d *loopDevice) limit() error {
	queue := fmt.Sprintf("/sys/dev/block/%d:%d/queue", unix.Major(d.dev), unix.Minor(d.dev))
	return errors.Join(
		os.WriteFile(filepath.Join(queue, "discard_max_bytes"), []byte(fmt.Sprint(64<<20)), 0),
		os.WriteFile(filepath.Join(queue, "max_sectors_kb"), []byte("1024"), 0),
	)
}

// detach removes the device if nothing else uses it. Otherwise it returns ErrInUse and the device stays. The steps:
//
//  1. Open the device exclusively. This fails while it is mounted or otherwise claimed, in any mount namespace. It
//     also prevents new claims.
//  2. Write back the data that plain writers left in its page cache. This takes as long as the server of the file
//     system takes.
//  3. Call proceed: the last moment at which everything can stay as it is.
//  4. Close the descriptor that held the device. The exclusive descriptor is then the last one, unless other
//     processes have the device open.
//  5. Clear the device. If other processes have it open, the kernel keeps it bound; otherwise it refuses new openers.
//     A query of the status shows which is the case.
//  6. Call gone, while no other device can have the number. Then close the device; the kernel releases the file.
func (d *loopDevice) detach(proceed func() error, gone func()) (syncErr, err error) {
	claim, err := openHandle(d.path, unix.O_RDWR|unix.O_EXCL)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("%s: %w: %w", d.path, errClaimed, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("open the device exclusively: %w", err)
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

// clear unbinds a device that no other process has open.
func (d *loopDevice) clear(fd int) error {
	if err := unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach the file from %s: %w", d.path, err)
	}
	if _, err := unix.IoctlLoopGetStatus64(fd); err == nil {
		return fmt.Errorf("%s is open: %w", d.path, ErrInUse)
	}
	return nil
}

// release closes the device. The kernel frees it when all users have closed it. If this was the last user,
// another thread writes back the page cache, and release waits for that for a second at most.
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
