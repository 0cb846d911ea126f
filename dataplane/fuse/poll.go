package fuse

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// poll is how readers wait for a connection to have something to read: while requests come, each in a thread of its own, with a waiter;
// else one of them in Go's poller, with rest. These are sets of descriptors (epoll_create(2)), which all have stop besides the connection:
//
//	waiter  has the connection exclusively: a request wakes one waiter, not all
//	rest    has the connection for one event at a time: while no reader rests, a request wakes nothing in Go's poller, which has rest
type poll struct {
	conn    int
	waiters [maxWaiting]*waiter
	rest    *os.File
	stop    *os.File // an eventfd; readable when nobody is to wait any more
	rested  func()   // called when a reader rests, in tests
}

// waiter is used by one reader at a time.
type waiter struct {
	epoll int
	event [1]unix.EpollEvent // room for what epoll_wait tells
}

func newPoll(conn int) (*poll, error) {
	p := &poll{conn: conn, rested: func() {}}
	if err := p.open(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *poll) open() error {
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make an eventfd: %w", err)
	}
	p.stop = os.NewFile(uintptr(stop), "stop")
	for i := range p.waiters {
		epoll, err := newSet()
		if err != nil {
			return err
		}
		p.waiters[i] = &waiter{epoll: epoll}
		if err := errors.Join(add(epoll, stop, unix.EPOLLIN), add(epoll, p.conn, unix.EPOLLIN|unix.EPOLLEXCLUSIVE)); err != nil {
			return err
		}
	}
	rest, err := newSet()
	if err != nil {
		return err
	}
	_ = unix.SetNonblock(rest, true) // os.NewFile gives it to Go's poller then
	p.rest = os.NewFile(uintptr(rest), "a connection at rest")
	return add(rest, stop, unix.EPOLLIN)
}

func newSet() (int, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("make a set of descriptors: %w", err)
	}
	return epoll, nil
}

func add(epoll, fd int, events uint32) error {
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("wait for a descriptor: %w", err)
	}
	return nil
}

// wakeAll makes everything readable, for ever.
func (p *poll) wakeAll() { _, _ = p.stop.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// close must be called when nobody waits any more.
func (p *poll) close() {
	_ = p.stop.Close()
	for _, w := range p.waiters {
		if w != nil {
			_ = unix.Close(w.epoll)
		}
	}
	if p.rest != nil {
		_ = p.rest.Close()
	}
}

// wait returns false when nothing came in time.
func (w *waiter) wait(patience time.Duration) bool {
	for {
		n, err := unix.EpollWait(w.epoll, w.event[:], int(patience.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

// awaitAtRest waits without a thread, for as long as it takes. It is called by one reader at a time. It may return without a reason.
func (p *poll) awaitAtRest() error {
	rest, err := p.rest.SyscallConn()
	if err != nil {
		return err
	}
	if err := control(rest, func(fd int) error { return add(fd, p.conn, unix.EPOLLIN) }); err != nil {
		return err
	}
	looked := false
	err = rest.Read(func(fd uintptr) bool {
		if looked {
			return true // Go's poller was woken
		}
		looked = true
		var events [1]unix.EpollEvent
		if n, _ := unix.EpollWait(int(fd), events[:], 0); n > 0 {
			return true
		}
		p.rested()
		return false
	})
	return errors.Join(err, control(rest, func(fd int) error { return unix.EpollCtl(fd, unix.EPOLL_CTL_DEL, p.conn, nil) }))
}

func control(c syscall.RawConn, f func(fd int) error) error {
	var failed error
	err := c.Control(func(fd uintptr) { failed = f(int(fd)) })
	return errors.Join(err, failed)
}
