// Package thread gives work an OS thread with a table of file descriptors of its own (unshare(2), CLONE_FILES).
//
// A process that is killed closes a file when the last of its threads that share the table has ended. A thread that waits in the kernel
// without being killable does not end, so it keeps every file of its table open: also one whose closing alone would end that wait, as the
// connection of a FUSE server that ends with this process. Do such waits in a Thread, whose table has only what was opened there.
//
// The package knows neither devices nor disks.
package thread

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Aside is the name of threads that may outlive their process, while they wait for a device that it served. That is harmless: what they
// still do happens under a lock that their table of descriptors holds until then. The successor of the process need not wait for them.
const Aside = "longhorn-aside"

// ErrEnded is returned for work that was given to a thread after Close.
var ErrEnded = errors.New("the thread has ended")

// Options say how a thread differs from the others, besides its descriptors.
type Options struct {
	// Name is what /proc/<pid>/task/<tid>/comm says, at most 15 bytes; "" leaves the process's.
	Name string
	// Keep are descriptors of the process that stay open in the thread too, under the same numbers.
	Keep []int
	// Mounts is a file of a mount namespace (setns(2)) that the thread enters; "" leaves it in the process's.
	Mounts string
	// OwnMounts gives it a mount namespace of its own, a copy of that which it was in.
	OwnMounts bool
}

// Thread does one piece of work after the other. Its owner must Close it.
type Thread struct {
	work  chan func()
	quit  chan struct{}
	once  sync.Once
	ended chan struct{}
	id    int
}

// New starts a thread. Descriptors that are open now are not open there, but for the standard streams, those of the Go runtime, and
// opts.Keep.
func New(opts Options) (*Thread, error) {
	t := &Thread{work: make(chan func()), quit: make(chan struct{}), ended: make(chan struct{})}
	ready := make(chan error)
	go own(func() {
		defer close(t.ended)
		t.id = unix.Gettid()
		err := set(opts)
		ready <- err
		if err == nil {
			t.run()
		}
	})
	if err := <-ready; err != nil {
		return nil, err
	}
	return t, nil
}

// own runs f in an OS thread that ends with it. The first thread of a process cannot end, so f does not run there.
func own(f func()) {
	runtime.LockOSThread() // and never unlocks: the runtime ends the thread with the goroutine
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		own(f)
	}()
	<-done
	runtime.UnlockOSThread()
}

// set makes the calling thread differ from the others.
func set(opts Options) error {
	if opts.Name != "" {
		if err := os.WriteFile("/proc/thread-self/comm", []byte(opts.Name), 0); err != nil {
			return fmt.Errorf("name the thread %q: %w", opts.Name, err)
		}
	}
	first, err := lowest(opts.Keep)
	if err != nil {
		return err
	}
	if err := unix.CloseRange(first, ^uint(0)>>32, unix.CLOSE_RANGE_UNSHARE); err != nil {
		return fmt.Errorf("leave the descriptors of the process: %w", err)
	}
	if err := closeInherited(opts.Keep); err != nil {
		return err
	}
	return enter(opts)
}

// enter changes the mount namespace.
func enter(opts Options) error {
	if opts.Mounts == "" && !opts.OwnMounts {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // else setns refuses
		return fmt.Errorf("leave the root directory of the process: %w", err)
	}
	if opts.Mounts != "" {
		fd, err := unix.Open(opts.Mounts, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open mount namespace %s: %w", opts.Mounts, err)
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter mount namespace %s: %w", opts.Mounts, err)
		}
	}
	if opts.OwnMounts {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("leave the mounts of the process: %w", err)
		}
	}
	return nil
}

// descriptors lists those of the calling thread.
const descriptors = "/proc/thread-self/fd"

// closeInherited closes what the thread's table has from the process. The runtime's own descriptors stay: it ends the process when it
// cannot wake its poller, whichever thread tries.
func closeInherited(keep []int) error {
	entries, err := os.ReadDir(descriptors)
	if err != nil {
		return fmt.Errorf("list the descriptors of the process: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 || slices.Contains(keep, fd) {
			continue
		}
		if isRuntimes(e.Name()) {
			continue
		}
		_ = unix.Close(fd) // that of the listing itself is closed already
	}
	return nil
}

// lowest is above all that stays. What lies there and above, the devices and their connections above all, is not even copied to the
// thread's table: for a moment it would be open there, and closing it there may wait.
func lowest(keep []int) (uint, error) {
	top := 2
	entries, err := os.ReadDir(descriptors)
	if err != nil {
		return 0, fmt.Errorf("list the descriptors of the process: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err == nil && (slices.Contains(keep, fd) || isRuntimes(e.Name())) {
			top = max(top, fd)
		}
	}
	return uint(top) + 1, nil
}

// isRuntimes tells whether a descriptor may be one of the Go runtime's poller.
func isRuntimes(fd string) bool {
	target, err := os.Readlink(descriptors + "/" + fd)
	return err == nil && (strings.HasPrefix(target, "anon_inode:[eventpoll]") || strings.HasPrefix(target, "anon_inode:[eventfd]"))
}

func (t *Thread) run() {
	for {
		select {
		case f := <-t.work:
			f()
		case <-t.quit:
			return
		}
	}
}

// ID is the thread's number, as in /proc/self/task.
func (t *Thread) ID() int { return t.id }

// Do runs f in the thread, after what others gave it before, waits for it, and returns its error, or ErrEnded. Descriptors that f opens are
// open in this thread alone; they must not become an os.File, which another thread would close.
func (t *Thread) Do(f func() error) error {
	result := make(chan error, 1)
	select {
	case t.work <- func() { result <- f() }:
		return <-result
	case <-t.quit:
		return ErrEnded
	}
}

// Close ends the thread after the work that it has begun, and does not wait. The kernel closes what it has open.
func (t *Thread) Close() { t.once.Do(func() { close(t.quit) }) }

// Ended is closed when the thread does nothing more; its descriptors may be closed a moment later.
func (t *Thread) Ended() <-chan struct{} { return t.ended }
