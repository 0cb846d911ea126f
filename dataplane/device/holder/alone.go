package holder

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// takeLock takes the lock that a holder has for its life. What another one of the node has left is lost only if that one is dead; after
// a forced deletion of its pod two may run for a while.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the node's holders: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: another holder of this node runs: %w", path, err)
	}
	return f, nil
}

// removeLost ends the NBD devices of a holder that died together with the process that served them, whatever kind this one makes: their
// users wait for it. It returns what to do at the end.
func (h *holder) removeLost() (release func()) {
	if h.opts.ControlSocket == "" {
		return func() {} // nobody's but a test's
	}
	lock, err := takeLock(h.opts.ControlSocket + ".lock")
	if err != nil {
		h.log.WithError(err).Warn("Devices of a holder that died may be left")
		return func() {}
	}
	h.devices.RemoveLostNBD()
	return func() { _ = lock.Close() }
}
