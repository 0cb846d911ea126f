package faults

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// connection is a client's access to the volume: NBD, or its block device.
type connection interface {
	nbd.Backend
	Done() <-chan struct{}
	Close() error
	Size() int64
}

// errNotItsDevice says that a path does not lead to the device of the requested run. By now its number may belong to
// the device of a later engine, or to a disk of a node.
var errNotItsDevice = errors.New("the device is not of this run")

func canHaveDevices() bool {
	_, noFUSE := os.Stat("/dev/fuse")
	_, noLoop := os.Stat("/dev/loop-control")
	return os.Geteuid() == 0 && noFUSE == nil && noLoop == nil
}

// connect opens the volume as a run of its engine serves it.
func (v *volume) connect(ctx context.Context, r *run) (connection, error) {
	if v.block {
		return v.openDevice(r)
	}
	return r.node.dial(ctx, "engine/"+v.name)
}

func (v *volume) devicePath(n *node) string { return filepath.Join(n.dir, "dev", v.name) }

// openDevice opens the device of the present run. An open device keeps its number, so openDevice performs its checks
// after opening it. The process must belong to the run, and the next run must not have been requested. The node in the
// file system, which disappears before the device, must exist.
func (v *volume) openDevice(r *run) (connection, error) {
	path := v.devicePath(r.node)
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		return nil, err
	}
	d := &deviceClient{file: f}
	if d.size, err = f.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	name, err := loopName(f)
	var opened, named unix.Stat_t
	err = cmp.Or(err, control(f, func(fd int) error { return unix.Fstat(fd, &opened) }), unix.Stat(path, &named))
	now, _ := v.current()
	c, _ := r.node.now()
	if err == nil && (name != "longhorn:"+v.name || opened.Rdev != named.Rdev || now != r || c != r.child) {
		err = errNotItsDevice
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return d, nil
}

func loopName(f *os.File) (string, error) {
	var name []byte
	err := control(f, func(fd int) error {
		info, err := unix.IoctlLoopGetStatus64(fd)
		if err == nil {
			name, _, _ = bytes.Cut(info.File_name[:], []byte{0})
		}
		return err
	})
	return string(name), err
}

// control calls do with the descriptor, which stays open during the call.
func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	return cmp.Or(raw.Control(func(fd uintptr) { result = do(int(fd)) }), result)
}

// deviceClient uses a block device without the page cache. If the caller's context is done, requests without an answer
// stay with the kernel, which holds the device until the engine answers or dies.
type deviceClient struct {
	file *os.File
	size int64 // at the time when it was opened
}

// directAlign is the alignment that direct I/O requires of memory addresses.
const directAlign = 4096

func alignedBuffer(length int) []byte {
	b := make([]byte, length+directAlign)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (directAlign - 1)
	return b[skip : skip+length]
}

func (d *deviceClient) do(ctx context.Context, do func(fd int) error) error {
	result := make(chan error, 1)
	go func() { result <- control(d.file, do) }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *deviceClient) ReadAt(ctx context.Context, p []byte, off int64) error {
	b := alignedBuffer(len(p)) // not p: the kernel may still have it when this returns
	err := d.do(ctx, func(fd int) error {
		n, err := unix.Pread(fd, b, off)
		return whole("read", n, len(b), err)
	})
	if err == nil {
		copy(p, b)
	}
	return err
}

func (d *deviceClient) WriteAt(ctx context.Context, p []byte, off int64, durable bool) error {
	b := alignedBuffer(len(p))
	copy(b, p)
	flags := 0
	if durable {
		flags = unix.RWF_DSYNC
	}
	return d.do(ctx, func(fd int) error {
		n, err := unix.Pwritev2(fd, [][]byte{b}, off, flags)
		return whole("write", n, len(b), err)
	})
}

func whole(what string, n, want int, err error) error {
	if err == nil && n != want {
		err = fmt.Errorf("%d of %d bytes", n, want)
	}
	if err != nil {
		return fmt.Errorf("%s the device: %w", what, err)
	}
	return nil
}

func (d *deviceClient) Flush(ctx context.Context) error { return d.do(ctx, unix.Fsync) }

func (d *deviceClient) Trim(ctx context.Context, off, length int64, durable bool) error {
	return d.clear(ctx, unix.BLKDISCARD, off, length, durable)
}

func (d *deviceClient) Zero(ctx context.Context, off, length int64, flags nbd.ZeroFlags) error {
	return d.clear(ctx, unix.BLKZEROOUT, off, length, flags&nbd.ZeroFUA != 0)
}

func (d *deviceClient) clear(ctx context.Context, ioctl uintptr, off, length int64, durable bool) error {
	err := d.do(ctx, func(fd int) error {
		of := [2]uint64{uint64(off), uint64(length)}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctl, uintptr(unsafe.Pointer(&of))); errno != 0 {
			return fmt.Errorf("clear a range of the device: %w", errno)
		}
		return nil
	})
	if err == nil && durable {
		err = d.Flush(ctx)
	}
	return err
}

// Extents reports everything as data.
func (d *deviceClient) Extents(_ context.Context, off, length int64) ([]nbd.Extent, error) {
	return []nbd.Extent{{Offset: off, Length: length}}, nil
}

// Done is never closed: a device that has ended returns errors.
func (d *deviceClient) Done() <-chan struct{} { return nil }

func (d *deviceClient) Size() int64 { return d.size }

func (d *deviceClient) Close() error { return d.file.Close() }

// leftDevices names the remaining loop devices of volumes. Each volume has a unique name on this machine.
func leftDevices(prefix string) ([]string, error) {
	paths, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return nil, err
	}
	var left []string
	for _, path := range paths {
		device := "/dev/" + filepath.Base(filepath.Dir(path))
		f, err := os.Open(device)
		if err != nil {
			continue // it has disappeared in the meantime
		}
		name, err := loopName(f)
		_ = f.Close()
		switch {
		case errors.Is(err, syscall.ENXIO):
		case err != nil:
			return nil, fmt.Errorf("look at %s: %w", device, err)
		case strings.HasPrefix(name, "longhorn:"+prefix):
			left = append(left, device+" "+name)
		}
	}
	return left, nil
}

// awaitNoDevices waits until nothing is left of the devices of processes that have exited. The kernel clears a loop
// device some time after its last user has closed it.
func awaitNoDevices(prefix string) error {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		left, err := leftDevices(prefix)
		switch {
		case err != nil || len(left) == 0:
			return err
		case time.Now().After(end):
			return fmt.Errorf("left: %v", left)
		}
	}
}
