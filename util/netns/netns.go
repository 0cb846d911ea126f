// Package netns calls functions in another network namespace, such as the node's from within a pod. It must not know what for.
package netns

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// In calls act in a thread of its own that has entered the network that file stands for, such as /proc/1/ns/net. Threads that act starts have not.
func In(file string, act func() error) error {
	done := make(chan error, 1)
	go entered(file, act, done)
	return <-done
}

func entered(file string, act func() error, done chan<- error) {
	runtime.LockOSThread() // and never unlocks: the runtime ends the thread with the goroutine
	if unix.Gettid() == unix.Getpid() {
		// The first thread of a process cannot end, and would stay in the other network.
		again := make(chan error, 1)
		go entered(file, act, again)
		err := <-again
		runtime.UnlockOSThread()
		done <- err
		return
	}
	done <- func() error {
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening the node's network %s: %w", file, err)
		}
		err = unix.Setns(fd, unix.CLONE_NEWNET)
		_ = unix.Close(fd) // the thread is there, or is not
		if err != nil {
			return fmt.Errorf("entering the node's network %s: %w", file, err)
		}
		return act()
	}()
}
