package share

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

var (
	// ErrWrongDevice means that the file at the device's path is not a block device.
	ErrWrongDevice = errors.New("not a block device")
	// ErrReadOnlyDevice means that a device accepts no writes although the share is writable.
	ErrReadOnlyDevice = errors.New("the device is read-only")
)

const (
	devicePoll    = 200 * time.Millisecond
	deviceMessage = time.Minute
)

// awaitDevice waits until a block device is at a path and can be opened. It returns an error only if the file is not a
// block device: in all other cases the engine may still be starting.
func awaitDevice(ctx context.Context, path string, readOnly bool, log *logrus.Entry) error {
	poll := time.NewTicker(devicePoll)
	defer poll.Stop()
	message := time.NewTicker(deviceMessage)
	defer message.Stop()
	err := lookAtDevice(path, readOnly)
	if isLate(err) {
		log.WithError(err).WithField(logfields.Path, path).Info("Waiting for the volume's device")
	}
	for isLate(err) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-message.C:
			log.WithError(err).WithField(logfields.Path, path).Warn("Still waiting for the volume's device")
		case <-poll.C:
			err = lookAtDevice(path, readOnly)
		}
	}
	return err
}

func isLate(err error) bool {
	return err != nil && !errors.Is(err, ErrWrongDevice) && !errors.Is(err, ErrReadOnlyDevice)
}

// lookAtDevice opens a device, once.
func lookAtDevice(path string, readOnly bool) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Errorf("checking %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return fmt.Errorf("%s: %w", path, ErrWrongDevice)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	defer unix.Close(fd)
	switch size, err := unix.Seek(fd, 0, unix.SEEK_END); {
	case err != nil:
		return fmt.Errorf("reading the size of %s: %w", path, err)
	case size == 0:
		return fmt.Errorf("the size of %s is still 0", path)
	}
	refused, err := unix.IoctlGetInt(fd, unix.BLKROGET)
	switch {
	case err != nil:
		return fmt.Errorf("checking whether %s is read-only: %w", path, err)
	case refused != 0 && !readOnly:
		return fmt.Errorf("%s: %w", path, ErrReadOnlyDevice)
	}
	return nil
}
