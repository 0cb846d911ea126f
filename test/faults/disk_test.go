package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	imageBytes = 40 << 20
	ballast    = "ballast"
	// fsBlockBytes is the size of one of its blocks: the part of a write in a client's first block is atomic, whatever
	// happens in the others.
	fsBlockBytes = 4096
	// shutdownIoctl is the kernel's EXT4_IOC_SHUTDOWN: every access is an I/O error until the file system is mounted
	// again.
	shutdownIoctl = 0x8004587d
	// freezeIoctl and thawIoctl are FIFREEZE and FITHAW: between them, writes and syncs hang without an error.
	freezeIoctl, thawIoctl = 0xc0045877, 0xc0045878
	// everythingWritten and nothingWritten are its flags. With the first, data in memory is written before. With the
	// second it is lost, together with the uncommitted part of the journal.
	everythingWritten, nothingWritten uint32 = 0, 2
	// bootIDFile is the file in which the kernel shows the id of the machine's boot.
	bootIDFile = "/proc/sys/kernel/random/boot_id"
)

// makeImage creates a small ext4 in a file, for a node to mount.
func makeImage(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(imageBytes), f.Close()); err != nil {
		return err
	}
	mkfs := exec.Command("mkfs.ext4", "-q", "-F", "-b", strconv.Itoa(fsBlockBytes), "-O", "^resize_inode", "-m", "0", path)
	if out, err := mkfs.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	return nil
}

// mountImage mounts an image only for this process: it is in its own mount namespace, and the mount disappears with
// that. The same holds for the id of the boot, which changes when the test simulates that the node has lost its power.
func mountImage(image, dir, boot string) error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
			return fmt.Errorf("mount %s: %w: %s", image, err, out)
		}
		err := isServed(dir)
		if err == nil {
			break
		}
		// mount(8) uses the loop device that the image already has. This can be the device of the process that exited,
		// with a file system that has lost its power. Then the test must wait for it longer than awaitUnmounted did.
		if err := errors.Join(unix.Unmount(dir, 0), err); time.Now().After(end) {
			return fmt.Errorf("mount %s: %w", image, err)
		}
	}
	if err := unix.Mount(boot, bootIDFile, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s over %s: %w", boot, bootIDFile, err)
	}
	return nil
}

// isServed returns an error if a file system was shut down.
func isServed(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// awaitUnmounted waits until no loop device has the image: the kernel unmounts it some time after its process has
// exited.
func awaitUnmounted(image string) error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		if err != nil {
			return err
		}
		used := false
		for _, name := range files {
			b, err := os.ReadFile(name)
			used = used || err == nil && strings.TrimSpace(string(b)) == image
		}
		switch {
		case !used:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%s is still mounted", image)
		}
	}
}

// fillDisk takes all the space of a file system except for some blocks.
func fillDisk(dir string, spareBlocks int) error {
	f, err := os.OpenFile(filepath.Join(dir, ballast), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	var at int64
	for chunk := int64(8 << 20); chunk >= fsBlockBytes; {
		switch err := unix.Fallocate(int(f.Fd()), 0, at, chunk); {
		case err == nil:
			at += chunk
		case errors.Is(err, syscall.ENOSPC):
			chunk /= 2
		case !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("take all space: %w", err)
		}
	}
	if err := f.Truncate(max(0, at-int64(spareBlocks)*fsBlockBytes)); err != nil {
		return fmt.Errorf("leave some space: %w", err)
	}
	return nil
}

// emptyDisk frees the space permanently: a loss of power must not bring the ballast back, because nothing would remove
// it then.
func emptyDisk(dir string) error {
	if err := os.Remove(filepath.Join(dir, ballast)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// breakDisk makes every access to a file system fail until it is mounted again. Data that was written to it before is
// not lost.
func breakDisk(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return shutDown(d, everythingWritten)
}

// shutDown shuts down the file system of the directory d.
func shutDown(d *os.File, flags uint32) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), shutdownIoctl, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		return fmt.Errorf("shut a file system down: %w", errno)
	}
	return nil
}

// freeze makes a file system hang. thaw must be called before its process can be stopped.
func freeze(dir string) (thaw func() error, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlSetInt(int(d.Fd()), freezeIoctl, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("freeze a file system: %w", err), d.Close())
	}
	return func() error { return errors.Join(unix.IoctlSetInt(int(d.Fd()), thawIoctl, 0), d.Close()) }, nil
}
