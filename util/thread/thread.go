// Package thread runs work in an OS thread with its own table of file descriptors (unshare(2), CLONE_FILES).
//
// When a process is killed, a file is closed when the last thread that shares its table has exited. A thread that waits
// in the kernel and cannot be killed does not exit, so it keeps every file of its table open. Perhaps only the closing
// of one of these files would end that wait, for example the connection of a FUSE server that exits with this process.
// Do such waits in a Thread: its table contains only files that were opened there.
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

// Aside is the name of threads that may outlive their process, while they wait for a device that the process served.
// That is harmless: their remaining work happens under a lock, which their table of descriptors holds until they exit.
// The successor of the process need not wait for them.
const Aside = "longhorn-aside"

// ErrEnded is returned for work after Close.
var ErrEnded = errors.New("the thread has stopped")

// Options say how a thread differs from the others, in addition to its descriptors.
type Options struct {
	// Name is the text of /proc/<pid>/task/<tid>/comm, at most 15 bytes; "" leaves the process's name.
	Name string
	// Keep are descriptors of the process that stay open in the thread too, under the same numbers.
	Keep []int
	// Mounts is a file of a mount namespace (setns(2)) that the thread enters; "" leaves it in the process's.
	Mounts string
	// OwnMounts gives the thread its own mount namespace, a copy of its present one.
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

// New starts a thread. The present descriptors of the process are not open in the thread, except the standard streams,
// the Go runtime's descriptors, and opts.Keep.
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

// own runs f in an OS thread that exits with it. The first thread of a process cannot exit, so f does not run there.
func own(f func()) {
	runtime.LockOSThread() // never unlocked, so the runtime stops the thread with the goroutine
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
		return fmt.Errorf("separate the descriptors of the thread from those of the process: %w", err)
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
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // otherwise setns refuses
		return fmt.Errorf("separate the root directory of the thread from that of the process: %w", err)
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
			return fmt.Errorf("separate the mounts of the thread from those of the process: %w", err)
		}
	}
	return nil
}

// descriptors lists the descriptors of the calling thread.
const descriptors = "/proc/thread-self/fd"

// closeInherited closes the descriptors that the thread's table has from the process. The runtime's own descriptors
// stay: the runtime stops the process when it cannot wake its poller, whichever thread tries.
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
		_ = unix.Close(fd) // the descriptor of the listing itself is closed already
	}
	return nil
}

// lowest is greater than all descriptors that stay. Descriptors from there on, above all the devices and their
// connections, are not even copied to the thread's table. Otherwise they would be open there for a moment, and closing
// them there might block.
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

// isRuntimes reports whether a descriptor may belong to the Go runtime's poller.
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

// Do runs f in the thread, after earlier work, waits for it, and returns its error, or ErrEnded. Descriptors that f
// opens are open only in this thread. They must not become an os.File, which another thread would close.
func (t *Thread) Do(f func() error) error {
	result := make(chan error, 1)
	select {
	case t.work <- func() { result <- f() }:
		return <-result
	case <-t.quit:
		return ErrEnded
	}
}

// Close stops the thread after the work that it has started, and does not wait. The kernel closes its open files.
func (t *Thread) Close() { t.once.Do(func() { close(t.quit) }) }

// Ended is closed when the thread has stopped working; its descriptors may be closed a moment later.
func (t *Thread) Ended() <-chan struct{} { return t.ended }
