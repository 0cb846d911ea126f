// Package mountwatch detects changes of this process's mount table: any process created, removed, moved or remounted a
// mount in this mount namespace, or a mount arrived there by propagation. The package only waits. Its callers read the
// table and decide what to do. It must not know disks, volumes or Kubernetes.
//
//	kernel: any change of the mount namespace
//	   |  poll(2): POLLPRI on /proc/self/mountinfo (proc_pid_mountinfo(5))
//	   v
//	Watch: changed(), and back to poll; changes in between are not lost
package mountwatch

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const mountTable = "/proc/self/mountinfo"

// Watch calls changed once at the start and then after every change of this process's mount table, until ctx is done,
// when it returns nil. It blocks; its caller owns the goroutine. Calls follow one another. Changes that happen while
// changed runs, or close together, cause one call. Its errors are failures of the kernel's calls.
func Watch(ctx context.Context, changed func()) error {
	// This does not use os.Open, which would also register the file with the runtime's poller. The kernel reports each
	// change of an open file only to the first poll.
	table, err := unix.Open(mountTable, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("watch mounts: open %s: %w", mountTable, err)
	}
	defer func() { _ = unix.Close(table) }()
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch mounts: create an event: %w", err)
	}
	// The number of the descriptor is freed only when no goroutine writes to it: it could belong to another file by
	// then.
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	defer func() {
		if !stop() {
			<-woken
		}
		_ = unix.Close(wake)
	}()

	for ctx.Err() == nil {
		// A poll of the file records the present state of the table, as the opening did. A later change, even while
		// changed runs, ends the next poll at once.
		changed()
		if err := waitForEither(int32(table), int32(wake)); err != nil {
			return fmt.Errorf("watch mounts: %w", err)
		}
	}
	return nil
}

// waitForEither returns when the mount table has changed or the event was raised.
func waitForEither(table, event int32) error {
	fds := []unix.PollFd{
		{Fd: table, Events: unix.POLLPRI},
		{Fd: event, Events: unix.POLLIN},
	}
	for {
		_, err := unix.Poll(fds, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
