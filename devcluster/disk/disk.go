// Package disk creates, mounts, cuts off from power and removes the file system images of nodes and the loop devices
// through which they are mounted. It must not know to which node an image belongs.
package disk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Create creates a sparse image of sizeBytes with an empty file system of the type (ext4 or xfs). The image must not
// exist yet.
func Create(image, fsType string, sizeBytes int64) error {
	f, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("create disk: %w", err)
	}
	err = f.Truncate(sizeBytes)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("create disk %s of %d bytes: %w", image, sizeBytes, err)
	}
	args := map[string][]string{
		"ext4": {"mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,nodiscard", image},
		"xfs":  {"mkfs.xfs", "-q", "-K", image},
	}[fsType]
	if args == nil {
		return fmt.Errorf("create disk: file system %q is neither ext4 nor xfs", fsType)
	}
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("make %s on %s: %w: %s", fsType, image, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Mount attaches the image to a loop device, which the kernel detaches after its last use, and mounts it. A journal
// that a power loss left is replayed.
func Mount(image, fsType, target string) error {
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open disk: %w", err)
	}
	defer f.Close()
	loop, err := attach(f)
	if err != nil {
		return fmt.Errorf("attach disk %s: %w", image, err)
	}
	defer loop.Close()
	if err := unix.Mount(loop.Name(), target, fsType, 0, ""); err != nil {
		return fmt.Errorf("mount disk %s: %w", image, err)
	}
	return nil
}

// attach attaches a free loop device. Another program may take the device that the kernel offers; then attach tries
// again.
func attach(image *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for range 64 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find free loop device: %w", err)
		}
		loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(image.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO
		copy(config.Info.File_name[:], image.Name())
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			return loop, nil
		}
		_ = loop.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("configure %s: %w", loop.Name(), err)
		}
	}
	return nil, errors.New("every free loop device was taken by others")
}

// The shutdown ioctl and its flag, the same for ext4 and xfs: EXT4_IOC_SHUTDOWN
// and XFS_IOC_GOINGDOWN are _IOR('X', 125, __u32); with this flag the log is
// not flushed either.
const (
	iocShutdown     = 0x8004587d
	shutdownNoFlush = 2
)

// CutPower makes the ext4 or xfs file system that holds path refuse all work immediately and lose its unwritten data,
// as in a power failure. This lasts until the file system is unmounted.
func CutPower(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cut power of %s: %w", path, err)
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), iocShutdown, shutdownNoFlush); err != nil {
		return fmt.Errorf("cut power of %s: %w", path, err)
	}
	return nil
}

// Sync writes out all data in memory of the file system that holds path.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

// Loop is an attached loop device.
type Loop struct {
	Device string
	// Backing is the path of the backing file as the kernel knows it.
	Backing string
	// BackingDevice is the device number of the file system with the backing file, and BackingInode the inode of the
	// file.
	BackingDevice uint64
	BackingInode  uint64
}

// Loops lists the attached loop devices.
func Loops() ([]Loop, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	var loops []Loop
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // it was detached in the meantime
		}
		l := Loop{
			Device:  "/dev/" + strings.Split(file, "/")[3],
			Backing: strings.TrimSpace(string(raw)),
		}
		if f, err := os.Open(l.Device); err == nil {
			if info, err := unix.IoctlLoopGetStatus64(int(f.Fd())); err == nil {
				l.BackingDevice, l.BackingInode = info.Device, info.Inode
			}
			_ = f.Close()
		}
		loops = append(loops, l)
	}
	return loops, nil
}

// IsBackedBy reports whether the file at path is the backing file of the device.
func (l Loop) IsBackedBy(path string) bool {
	var s unix.Stat_t
	return unix.Stat(path, &s) == nil && s.Dev == l.BackingDevice && s.Ino == l.BackingInode
}

// Detach detaches the backing file from the loop device. A device that is in use detaches when its last user closes it.
func (l Loop) Detach() error {
	f, err := os.Open(l.Device)
	if err != nil {
		return fmt.Errorf("detach %s: %w", l.Device, err)
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach %s: %w", l.Device, err)
	}
	return nil
}
