package device

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// Resize implements Keeper. The kernel asks the file's server, which is the owner's process: so a thread apart waits for the answer, and if
// the owner ends meanwhile its successor gives it.
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
		return fmt.Errorf("%s: %w", volume, err)
	}
	select {
	case k.op <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", volume, ctx.Err())
	}
	defer func() { <-k.op }()
	if l.find(volume) != k {
		return fmt.Errorf("%s: %w", volume, ErrNotHeld)
	}
	size, err := k.loop.grow(sizeBytes)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k.held.SizeBytes = max(k.held.SizeBytes, size)
	return nil
}

// grow has the kernel take the size of the file for that of the device, and returns it. Asking for the status makes it look at the file.
func (d *loopDevice) grow(wanted int64) (size int64, err error) {
	h, err := openHandle(d.path, unix.O_RDWR)
	if err != nil {
		return 0, err
	}
	defer h.close()
	err = h.do(func(fd int) error {
		if _, err := unix.IoctlLoopGetStatus64(fd); err != nil {
			return fmt.Errorf("look at the file of %s: %w", d.path, err)
		}
		if err := unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0); err != nil {
			return fmt.Errorf("set the capacity of %s: %w", d.path, err)
		}
		end, err := unix.Seek(fd, 0, 2)
		size = end
		return err
	})
	if err == nil && size < wanted {
		err = fmt.Errorf("%s has %d bytes after it was to grow to %d", d.path, size, wanted)
	}
	return size, err
}
