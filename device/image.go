package device

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/nbd"
)

// imageName is the one file of the file system.
const imageName = "volume.img"

const (
	rootNode  = fuse.FUSE_ROOT_ID
	imageNode = 2

	// fuseBlock is the block size that the file shows, in bytes: the loop device's granularity of discards.
	fuseBlock = 4096
	// fuseMaxIO is the largest request the kernel sends, in bytes.
	fuseMaxIO = 1 << 20
	// fuseBackground is how many requests the kernel has under way at once; a loop device offers 128.
	fuseBackground = 256
	// forever is how long the kernel may keep attributes: nothing here changes.
	forever = uint64(365 * 24 * time.Hour / time.Second)
)

// imageFS is a file system with one file, which is the volume. Requests go to the backend as they come, side by side; nothing is
// cached on either side.
type imageFS struct {
	fuse.RawFileSystem
	size    int64
	backend nbd.Backend
}

// image is a mounted imageFS. The mount has no path: it lives as long as a file of it is open, so it needs no directory, nobody
// sees it, and nothing of it is left when the loop device and this process are gone.
//
//	mount ── root directory ── volume.img   held open by: this process until the loop device has it, then the loop device alone
type image struct {
	dev  int // descriptor of the FUSE connection
	file int // descriptor of volume.img, for direct I/O; -1 when closed
	// served is closed when the kernel has let go of the file system.
	served chan struct{}
}

// mountImage mounts a file system whose file is the volume and opens that file.
func mountImage(size int64, b nbd.Backend) (*image, error) {
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/fuse: %w", err)
	}
	mount, err := detachedMount(dev)
	if err != nil {
		_ = unix.Close(dev)
		return nil, err
	}
	i, err := serveImage(dev, mount, size, b)
	_ = unix.Close(mount)
	if err != nil && i != nil {
		<-i.served // with the mount, its last user is gone
	}
	if err != nil {
		return nil, err
	}
	return i, nil
}

// serveImage serves a mount and opens its file. It takes dev over. When it fails after it began to serve it returns both.
func serveImage(dev, mount int, size int64, b nbd.Backend) (*image, error) {
	fs := &imageFS{RawFileSystem: fuse.NewDefaultRawFileSystem(), size: size, backend: b}
	server, err := fuse.NewServer(fs, fmt.Sprintf("/dev/fd/%d", dev), &fuse.MountOptions{
		MaxBackground: fuseBackground, MaxWrite: fuseMaxIO, DisableXAttrs: true, DisableSplice: true,
		ExtraCapabilities: fuse.CAP_ASYNC_DIO, Logger: log.New(io.Discard, "", 0),
	})
	if err != nil { // it has closed dev, or never will: the mount's end makes it useless
		return nil, fmt.Errorf("serve the file system: %w", err)
	}
	i := &image{dev: dev, file: -1, served: make(chan struct{})}
	go func() {
		defer close(i.served)
		server.Serve()
	}()
	// Not os.OpenFile: its poller would ask the file system, from a thread that may be the last one free to answer.
	if i.file, err = unix.Openat(mount, imageName, unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0); err != nil {
		i.file = -1
		return i, fmt.Errorf("open %s: %w", imageName, err)
	}
	return i, nil
}

// abortConnection makes the kernel end a file system: what is under way and what comes later fails, and nothing asks this process any more.
// The mount stays until its last user lets go of it. The control file system is mounted for this alone, without a path.
func abortConnection(connection uint32) error {
	fs, err := unix.Fsopen("fusectl", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("abort the file system: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return fmt.Errorf("abort the file system: %w", err)
	}
	control, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return fmt.Errorf("abort the file system: %w", err)
	}
	defer unix.Close(control)
	file, err := unix.Openat(control, fmt.Sprintf("%d/abort", connection), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // it has ended
	}
	if err != nil {
		return fmt.Errorf("abort the file system: %w", err)
	}
	defer unix.Close(file)
	if _, err := unix.Write(file, []byte("1")); err != nil {
		return fmt.Errorf("abort the file system: %w", err)
	}
	return nil
}

// detachedMount makes a FUSE mount that is served through dev and attached nowhere, and returns its descriptor.
func detachedMount(dev int) (int, error) {
	fs, err := unix.Fsopen("fuse", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("make a fuse mount: %w", err)
	}
	defer unix.Close(fs)
	for _, o := range [][2]string{
		{"source", "longhorn"},
		{"fd", fmt.Sprint(dev)},
		{"rootmode", fmt.Sprintf("%o", unix.S_IFDIR)},
		{"user_id", fmt.Sprint(os.Geteuid())},
		{"group_id", fmt.Sprint(os.Getegid())},
		{"max_read", fmt.Sprint(fuseMaxIO)},
	} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return -1, fmt.Errorf("set option %s of a fuse mount: %w", o[0], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("create a fuse mount: %w", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1, fmt.Errorf("mount fuse: %w", err)
	}
	return mount, nil
}

// abort ends the file system of an open file.
func (i *image) abort() error {
	connection, err := connectionOf(i.file)
	if err != nil {
		return err
	}
	return abortConnection(connection)
}

// closeFile lets go of the file; the mount goes with its last user.
func (i *image) closeFile() {
	if i.file >= 0 {
		_ = unix.Close(i.file)
		i.file = -1
	}
}

// wait returns when the kernel has let go of the file system. That is soon after its last user has, so it waits for a moment also when
// ctx has ended.
func (i *image) wait(ctx context.Context) error {
	select {
	case <-i.served:
		return nil
	case <-ctx.Done():
	}
	moment := time.NewTimer(detachPatience)
	defer moment.Stop()
	select {
	case <-i.served:
		return nil
	case <-moment.C:
		return fmt.Errorf("wait for the end of the file system: %w", ctx.Err())
	}
}

func (f *imageFS) attr(node uint64, out *fuse.Attr) fuse.Status {
	switch node {
	case rootNode:
		*out = fuse.Attr{Ino: rootNode, Mode: fuse.S_IFDIR | 0o500, Nlink: 2}
	case imageNode:
		*out = fuse.Attr{
			Ino: imageNode, Mode: fuse.S_IFREG | 0o600, Nlink: 1, Size: uint64(f.size), Blocks: uint64(f.size+511) / 512, Blksize: fuseBlock,
		}
	default:
		return fuse.ENOENT
	}
	return fuse.OK
}

// String names the file system.
func (f *imageFS) String() string { return "longhorn" }

// Lookup finds the one file.
func (f *imageFS) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if h.NodeId != rootNode || name != imageName {
		return fuse.ENOENT
	}
	out.NodeId, out.Generation, out.EntryValid, out.AttrValid = imageNode, 1, forever, forever
	return f.attr(imageNode, &out.Attr)
}

// GetAttr says the size.
func (f *imageFS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.AttrValid = forever
	return f.attr(in.NodeId, &out.Attr)
}

// StatFs gives the block size, without which a loop device offers no discard.
func (f *imageFS) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	out.Bsize, out.Frsize, out.NameLen, out.Blocks = fuseBlock, fuseBlock, 255, uint64(f.size)/fuseBlock
	return fuse.OK
}

// SetAttr changes nothing.
func (f *imageFS) SetAttr(_ <-chan struct{}, _ *fuse.SetAttrIn, _ *fuse.AttrOut) fuse.Status {
	return fuse.EPERM
}

// Open lets the kernel send writes side by side and cache nothing.
func (f *imageFS) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if in.NodeId != imageNode {
		return fuse.EISDIR
	}
	out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES | fuse.FOPEN_NOFLUSH
	return fuse.OK
}

// Read gives bytes of the volume; at its end fewer than asked for.
func (f *imageFS) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	off := int64(in.Offset)
	if off >= f.size {
		return fuse.ReadResultData(nil), fuse.OK
	}
	buf = buf[:min(int64(in.Size), int64(len(buf)), f.size-off)]
	if err := f.backend.ReadAt(context.Background(), buf, off); err != nil {
		return nil, status(err)
	}
	return fuse.ReadResultData(buf), fuse.OK
}

// Write writes to the volume.
func (f *imageFS) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	if err := f.backend.WriteAt(context.Background(), data, int64(in.Offset), false); err != nil {
		return 0, status(err)
	}
	return uint32(len(data)), fuse.OK
}

// Fsync is the device's flush.
func (f *imageFS) Fsync(_ <-chan struct{}, _ *fuse.FsyncIn) fuse.Status {
	return status(f.backend.Flush(context.Background()))
}

// Fallocate is how a loop device discards and writes zeroes. It punches a hole also where its user asked for zeroes, so a hole must
// read as zeroes.
func (f *imageFS) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	off, length := int64(in.Offset), int64(in.Length)
	switch in.Mode {
	case unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE:
		return status(f.backend.Zero(context.Background(), off, length, 0))
	case unix.FALLOC_FL_ZERO_RANGE, unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE:
		return status(f.backend.Zero(context.Background(), off, length, nbd.ZeroNoHole))
	}
	return fuse.Status(syscall.EOPNOTSUPP)
}

// Release has nothing to do, for nothing is kept here.
func (f *imageFS) Release(<-chan struct{}, *fuse.ReleaseIn) {}

// Flush is called when a descriptor is closed.
func (f *imageFS) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

// status says an error as the kernel understands it. A block device's users know few errors.
func status(err error) fuse.Status {
	var no syscall.Errno
	switch {
	case err == nil:
		return fuse.OK
	case errors.As(err, &no) && (no == syscall.ENOSPC || no == syscall.EINVAL || no == syscall.EPERM || no == syscall.ENOMEM):
		return fuse.Status(no)
	case errors.As(err, &no) && no == syscall.ENOTSUP:
		return fuse.Status(syscall.EOPNOTSUPP)
	}
	return fuse.EIO
}
