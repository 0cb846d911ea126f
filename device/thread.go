package device

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// The numbers of kept descriptors: those of loop devices lie in [lowestLoopFD, lowestConnFD), those of FUSE connections above. A process
// that is killed closes its files from the highest number down, and closing the last descriptor of a loop device writes back its page
// cache: the FUSE connection must be gone by then, or nobody answers and the process never ends.
const (
	lowestLoopFD = 2048
	lowestConnFD = 4096 // fuse.Dup keeps to it
)

// handle is an open loop device that belongs to a thread of its own, with a table of descriptors of its own, in which there is neither a
// FUSE connection nor another loop device. What may wait for the answers of a FUSE server is done there: a thread that waits in the kernel
// keeps its table of descriptors, so in the table of the process it would keep the very connection open whose end it waits for, should the
// process and the server be killed at once.
type handle struct {
	work  chan func(fd int)
	ended chan struct{}
}

// openHandle opens a device. The descriptors below lowestLoopFD are those of the process at this moment.
func openHandle(path string, flags int) (*handle, error) {
	h := &handle{work: make(chan func(int)), ended: make(chan struct{})}
	opened := make(chan error)
	go ownThread(func() {
		defer close(h.ended)
		fd := -1
		err := unix.CloseRange(lowestLoopFD, ^uint(0)>>32, unix.CLOSE_RANGE_UNSHARE)
		if err != nil {
			err = fmt.Errorf("leave the descriptors of the process: %w", err)
		} else if fd, err = unix.Open(path, flags|unix.O_CLOEXEC, 0); err != nil {
			err = fmt.Errorf("open %s: %w", path, err)
		}
		opened <- err
		if err != nil {
			return
		}
		for work := range h.work {
			work(fd)
		}
		_ = unix.Close(fd)
	})
	if err := <-opened; err != nil {
		return nil, err
	}
	return h, nil
}

// ownThread runs f in a thread that ends with it. The first thread of a process cannot end, so f does not run there.
func ownThread(f func()) {
	runtime.LockOSThread() // and never unlocks: the runtime ends the thread with the goroutine
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ownThread(f)
	}()
	<-done
	runtime.UnlockOSThread()
}

// do runs f in the thread and waits for it.
func (h *handle) do(f func(fd int) error) error {
	result := make(chan error, 1)
	h.work <- func(fd int) { result <- f(fd) }
	return <-result
}

// close closes the device. Ended tells when that is done: it may wait for a FUSE server.
func (h *handle) close() { close(h.work) }
