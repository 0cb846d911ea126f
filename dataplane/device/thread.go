package device

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/thread"
)

// The numbers of kept descriptors: those of loop devices lie in [lowestLoopFD, lowestConnFD), those of FUSE connections above. A process
// that is killed closes its files from the highest number down, and closing the last descriptor of a loop device writes back its page
// cache: the FUSE connection must be gone by then, or no server answers and the process never ends.
const (
	lowestLoopFD = 2048
	lowestConnFD = 4096 // fuse.Dup keeps to it
)

// handle is an open loop device that belongs to a thread of its own, with nothing else in its table of descriptors. What may wait for the
// answers of a FUSE server is done there: a thread that waits in the kernel keeps its table of descriptors, so in the table of the process
// it would keep the very connection open whose end it waits for, should the process and the server be killed at once.
type handle struct {
	thread *thread.Thread
	fd     int
	ended  chan struct{} // closed when the device is closed
}

// openHandle opens a device. The descriptors in keep are open in its thread too.
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

// close closes the device, and does not wait: it may take until a FUSE server answers. The handle must not be used any more.
func (h *handle) close() {
	go func() {
		defer close(h.ended)
		defer h.thread.Close()
		_ = h.do(unix.Close)
	}()
}
