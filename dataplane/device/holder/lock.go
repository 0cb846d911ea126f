package holder

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// takeLock takes the lock that a holder keeps for its life. The devices of another holder of the node are lost only if
// that holder is dead. After a forced deletion of its pod, two holders may run for a while.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file of the node's holders: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: another holder is running on this node: %w", path, err)
	}
	return f, nil
}

// removeLost disconnects the NBD devices of a holder that died together with its serving process. It does so whatever
// kind of device this holder creates, because the users of those devices wait for it. It returns a function to call at
// the end.
func (h *holder) removeLost() (release func()) {
	if h.opts.ControlSocket == "" {
		return func() {} // only a test has no control socket
	}
	lock, err := takeLock(h.opts.ControlSocket + ".lock")
	if err != nil {
		h.log.WithError(err).Warn("Devices of a holder that died cannot be removed")
		return func() {}
	}
	h.devices.RemoveLostNBD()
	return func() { _ = lock.Close() }
}
