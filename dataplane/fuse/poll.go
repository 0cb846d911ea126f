package fuse

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// poll makes readers wait until a connection has a request to read. While requests come, each reader waits in a thread
// of its own, with a waiter. Otherwise one reader waits in Go's poller, with rest. Both are sets of descriptors
// (epoll_create(2)). All of them contain stop, and also the connection:
//
//	waiter  has the connection exclusively: a request wakes one waiter, not all
//	rest    has the connection for one event at a time, and Go's poller has rest: while no reader rests, a request wakes
//	        nothing in Go's poller
type poll struct {
	conn    int
	waiters [maxWaiting]*waiter
	rest    *os.File
	stop    *os.File // an eventfd; it becomes readable when all waits must end
	rested  func()   // called when a reader rests, in tests
}

// waiter is used by one reader at a time.
type waiter struct {
	epoll int
	event [1]unix.EpollEvent // room for the result of epoll_wait
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
		return fmt.Errorf("create an eventfd: %w", err)
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
	_ = unix.SetNonblock(rest, true) // required so that os.NewFile adds it to Go's poller
	p.rest = os.NewFile(uintptr(rest), "a connection at rest")
	return add(rest, stop, unix.EPOLLIN)
}

func newSet() (int, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("create an epoll descriptor: %w", err)
	}
	return epoll, nil
}

func add(epoll, fd int, events uint32) error {
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("wait for descriptors: %w", err)
	}
	return nil
}

// wakeAll makes all sets readable, permanently.
func (p *poll) wakeAll() { _, _ = p.stop.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// close must be called only when no reader waits.
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

// wait returns false if nothing came in time.
func (w *waiter) wait(timeout time.Duration) bool {
	for {
		n, err := unix.EpollWait(w.epoll, w.event[:], int(timeout.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

// awaitAtRest waits without a thread, without a time limit. One reader at a time calls it. It may return without a
// reason.
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
