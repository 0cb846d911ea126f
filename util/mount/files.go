package mount

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Inode is the result of stat for a path.
type Inode struct {
	// Block and Device are as in Point.
	Block  bool
	Device DeviceNumber
}

// Statistics of a file system, or of a block device (TotalBytes alone).
type Statistics struct {
	Block bool
	// Bytes. Available is the space that an ordinary user may still write.
	TotalBytes, UsedBytes, AvailableBytes int64
	TotalInodes, UsedInodes, FreeInodes   int64
}

// Files are the operations on files and devices that a System needs.
type Files interface {
	// Inspect follows symbolic links. The error keeps the errno.
	Inspect(path string) (Inode, error)
	// ReadEnds reads the first and the last block of a device.
	ReadEnds(device string) error
	// Hold opens a device until release is called. Until then, the kernel gives its number to no other device.
	Hold(device string) (number DeviceNumber, release func(), err error)
	// DeviceSize in bytes.
	DeviceSize(device string) (int64, error)
	Statfs(path string) (Statistics, error)
	// Probe reads one block from the device itself, not from the page cache. The error keeps the errno.
	Probe(device string) error
	// Detach removes a mount from the mount table at once, even while processes use it. The kernel ends the mount when
	// its last user is gone.
	Detach(path string) error
	// Table is the mount table, in the order of mounting.
	Table() ([]Entry, error)
	// Umount is umount2(2). It must not access the path, and keeps the errno.
	Umount(path string, flags int) error
	// Bind mounts a directory at a second path.
	Bind(source, target string, readOnly bool) error
}

// HostFiles implements Files for the host.
type HostFiles struct{}

// Inspect implements Files.
func (HostFiles) Inspect(path string) (Inode, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Inode{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return Inode{Block: true, Device: DeviceNumber(st.Rdev)}, nil
	}
	return Inode{Device: DeviceNumber(st.Dev)}, nil
}

// ReadEnds implements Files.
func (HostFiles) ReadEnds(device string) error {
	f, size, err := openDevice(device)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // opened only for reading
	block := make([]byte, min(size, 64<<10))
	for _, offset := range []int64{0, size - int64(len(block))} {
		if _, err := f.ReadAt(block, offset); err != nil {
			return fmt.Errorf("at byte %d: %w", offset, err)
		}
	}
	return nil
}

// DeviceSize implements Files.
func (HostFiles) DeviceSize(device string) (int64, error) {
	f, size, err := openDevice(device)
	if err != nil {
		return 0, err
	}
	return size, f.Close()
}

func openDevice(device string) (*os.File, int64, error) {
	f, err := os.Open(device)
	if err != nil {
		return nil, 0, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil && size == 0 {
		err = fmt.Errorf("%s has the size 0", device)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, size, nil
}

// Statfs implements Files.
func (HostFiles) Statfs(path string) (Statistics, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Statistics{}, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	unit := st.Bsize
	return Statistics{
		TotalBytes:     int64(st.Blocks) * unit,
		UsedBytes:      int64(st.Blocks-st.Bfree) * unit,
		AvailableBytes: int64(st.Bavail) * unit,
		TotalInodes:    int64(st.Files),
		UsedInodes:     int64(st.Files - st.Ffree),
		FreeInodes:     int64(st.Ffree),
	}, nil
}

// Probe implements Files.
func (HostFiles) Probe(device string) error {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: device, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // opened only for reading
	// Direct reads need memory that is aligned to the device's blocks; a page is.
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("allocating a page: %w", err)
	}
	defer func() { _ = unix.Munmap(page) }() // nothing depends on it
	if _, err := unix.Pread(fd, page, 0); err != nil {
		return &fs.PathError{Op: "read", Path: device, Err: err}
	}
	return nil
}

// Detach implements Files.
func (HostFiles) Detach(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "detach", Path: path, Err: err}
	}
	return nil
}
