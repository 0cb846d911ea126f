// Package netns calls functions in another network namespace, for example the node's from within a pod. It must not
// know for what purpose.
package netns

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// In calls act in its own thread, which has entered the network of the given file, such as /proc/1/ns/net. Threads that
// act starts have not entered it.
func In(file string, do func() error) error {
	done := make(chan error, 1)
	go entered(file, do, done)
	return <-done
}

func entered(file string, do func() error, done chan<- error) {
	runtime.LockOSThread() // never unlocked, so the runtime stops the thread with the goroutine
	if unix.Gettid() == unix.Getpid() {
		// The first thread of a process cannot exit, and would stay in the other network.
		again := make(chan error, 1)
		go entered(file, do, again)
		err := <-again
		runtime.UnlockOSThread()
		done <- err
		return
	}
	done <- func() error {
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening the node's network namespace %s: %w", file, err)
		}
		err = unix.Setns(fd, unix.CLONE_NEWNET)
		_ = unix.Close(fd) // the thread has entered, or not
		if err != nil {
			return fmt.Errorf("entering the node's network namespace %s: %w", file, err)
		}
		return do()
	}()
}
