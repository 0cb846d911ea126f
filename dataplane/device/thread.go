package device

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/thread"
)

// The numbers of kept descriptors: those of loop devices lie in [lowestLoopFD, lowestConnFD), those of FUSE connections
// above that range. A killed process closes its files from the highest number down. Closing the last descriptor of a
// loop device writes back its page cache. By then the FUSE connection must be closed: otherwise no server answers, and
// the process never exits.
const (
	lowestLoopFD = 2048
	lowestConnFD = 4096 // fuse.Dup uses this too
)

// handle is an open loop device that belongs to a separate thread, with nothing else in its table of descriptors. The
// thread performs the operations that may wait for the answers of a FUSE server. A thread that waits in the kernel
// keeps its table of descriptors. If it had the table of the process, and the process and the server were killed at
// once, it would keep a connection open and wait for its end.
type handle struct {
	thread *thread.Thread
	fd     int
	ended  chan struct{} // closed when the device is closed
}

// openHandle opens a device. The descriptors in keep are also open in its thread.
func openHandle(path string, flags int, keep ...int) (*handle, error) {
	t, err := thread.New(thread.Options{Keep: keep})
	if err != nil {
		return nil, err
	}
	h := &handle{thread: t, ended: make(chan struct{})}
	err = t.Do(func() (err error) {
		h.fd, err = unix.Open(path, flags|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return h, nil
}

// do runs f in the thread and waits for it.
func (h *handle) do(f func(fd int) error) error {
	return h.thread.Do(func() error { return f(h.fd) })
}

// close closes the device, and does not wait: closing may take until a FUSE server answers. The caller must not use the
// handle afterwards.
func (h *handle) close() {
	go func() {
		defer close(h.ended)
		defer h.thread.Close()
		_ = h.do(unix.Close)
	}()
}
