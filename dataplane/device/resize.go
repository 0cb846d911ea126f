package device

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Resize implements Keeper. The kernel asks the server of the file for the size, and that is the owner's process. So a
// separate thread waits for the answer. If the owner exits in the meantime, its successor gives the answer.
func (s session) Resize(ctx context.Context, volume string, owner Owner, sizeBytes int64) error {
	l := s.Local
	l.mu.Lock()
	k, err := s.findLocked(volume)
	switch {
	case err != nil:
	case k == nil:
		err = ErrNotHeld
	case k.held.Owner != owner:
		err = ErrFenced
	}
	l.mu.Unlock()
	if err != nil {
		return fmt.Errorf("volume %s: %w", volume, err)
	}
	select {
	case k.op <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("volume %s: %w", volume, ctx.Err())
	}
	defer func() { <-k.op }()
	if l.find(volume) != k {
		return fmt.Errorf("volume %s: %w", volume, ErrNotHeld)
	}
	grow := func(wanted int64) (int64, error) {
		if k.nbd != nil {
			return k.nbd.grow(wanted)
		}
		return k.loop.grow(wanted)
	}
	size, err := grow(sizeBytes)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k.held.SizeBytes = max(k.held.SizeBytes, size)
	return nil
}

// growTries is how often growOnce tells the kernel to read the file's size. Repeats are needed because the kernel can
// lose the new size when users write at the same time.
const growTries = 20

// grow makes the kernel use the size of the file as the size of the device. It returns the size that can be read.
func (d *loopDevice) grow(wanted int64) (size int64, err error) {
	h, err := openHandle(d.path, unix.O_RDWR|unix.O_DIRECT)
	if err != nil {
		return 0, err
	}
	defer h.close()
	err = h.do(func(fd int) error {
		for range growTries {
			if size, err = growOnce(fd); err == nil && size >= wanted {
				return nil
			}
		}
		return err
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("grow %s: %w", d.path, err)
	case size < wanted:
		return size, fmt.Errorf("%s has %d bytes, but should have grown to %d bytes", d.path, size, wanted)
	}
	return size, nil
}

// growOnce asks for the status, which makes the kernel read the attributes of the file, and then tells the kernel to
// set the capacity. The loop device may see the new size while the file system below it still has the old one. In that
// case the end of the device cannot be read.
func growOnce(fd int) (size int64, err error) {
	if _, err := unix.IoctlLoopGetStatus64(fd); err != nil {
		return 0, fmt.Errorf("examine the file: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0); err != nil {
		return 0, fmt.Errorf("set the capacity: %w", err)
	}
	if size, err = unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		return 0, fmt.Errorf("read the size: %w", err)
	}
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return 0, fmt.Errorf("allocate memory to read the end: %w", err)
	}
	defer func() { _ = unix.Munmap(page) }()
	if n, err := unix.Pread(fd, page[:logicalBlock], size-logicalBlock); err != nil || n < logicalBlock {
		return 0, fmt.Errorf("read the end: %d bytes (%w)", n, errors.Join(err, unix.EIO))
	}
	return size, nil
}
