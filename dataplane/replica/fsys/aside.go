package fsys

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/openat"
	"github.com/longhorn-lep/longhorn-manager/util/thread"
)

// Aside is the file system of a host on which some file systems lie on block devices that this very process serves. A
// call that waits for such a device waits for this process. If the process is killed during the call, the wait must not
// keep the device's connection open. So each directory of such a file system has a thread of its own (package thread).
// This thread carries out all operations on the directory and its files, one after the other:
//
//	Dir ---- thread, its table of descriptors: the directory, its lock, its files     File ---- the thread of its Dir
//	  | OpenDir
//	  +----- another thread
//
// A directory's lock is in the same table as its files. So while a call on one of these is under way, no other opening
// gets the lock, even after the process was killed. For this reason its successor need not wait for such threads
// (thread.Aside). Host serves all other file systems.
//
// A call that hangs delays all later calls of its thread, except Close. Close waits for closeTimeout at most. A
// descriptor that was closed while another call hung is closed when that call has ended.
type Aside struct {
	Host
	// Mounts is the file of a mount namespace in which these file systems are visible. "" means the namespace of the
	// process; there they must not be mounted when the process exits.
	Mounts string
	// Served returns the numbers of the block devices that this process serves. It must not wait for them.
	Served func() map[uint64]bool
}

// ErrNotAside means that a directory lies on a block device that this process serves, and could not be opened in a
// thread of its own. If Host opened it, it would prevent the process from exiting.
var ErrNotAside = errors.New("the directory is on a device that this process serves, and cannot be opened in a thread of its own")

// OpenDir opens an existing directory by absolute path.
func (a Aside) OpenDir(path string) (Dir, error) {
	served := a.Served()
	if len(served) == 0 {
		return a.Host.OpenDir(path)
	}
	d, err := a.openServed(path, served)
	if d != nil || err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
		// The process itself may see something else at that path, which must not be taken for the disk.
		return d, err
	}
	host, err := a.Host.OpenDir(path)
	if err != nil {
		return nil, err
	}
	switch id, err := host.ID(); {
	case err != nil:
		return nil, errors.Join(err, host.Close())
	case served[id.Device]: // the namespace of Mounts lacks the mount
		return nil, errors.Join(fmt.Errorf("open directory %s: %w", path, ErrNotAside), host.Close())
	}
	return host, nil
}

// openServed opens a directory in a thread of its own. It returns nil for a directory that is not on a served device.
func (a Aside) openServed(path string, served map[uint64]bool) (Dir, error) {
	root := a.Root
	if root == "" {
		root = "/"
	}
	t, err := thread.New(thread.Options{Name: thread.Aside, Mounts: a.Mounts})
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	d, err := openAside(t, path, func() (int, error) {
		fd, err := openat.DirFD(root, path)
		if err == nil {
			err = unix.Fstat(fd, &st)
		}
		return fd, err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("open directory %s in a thread of its own: %w", path, err)
	case !served[st.Dev]:
		_ = d.close()
		return nil, nil
	}
	return &hostDir{d}, nil
}

// aside is a descriptor in the table of a thread.
type aside struct {
	thread *asideThread
	fd     int
	title  string

	mu     sync.Mutex
	users  int  // guarded by mu; calls under way
	closed bool // guarded by mu
}

// closeTimeout is how long Close waits behind another call of the thread. It is safe to close later: the lock of a
// directory stays as long as a call below the directory is under way.
const closeTimeout = time.Second

// asideThread is a thread that ends with its last descriptor.
type asideThread struct {
	*thread.Thread

	mu   sync.Mutex
	open int  // guarded by mu
	late bool // guarded by mu; a Close has timed out, and nothing was closed since
}

func (t *asideThread) add(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open += n; t.open == 0 {
		t.Close()
	}
}

// openAside opens the first descriptor of a thread. If that fails, the thread ends.
func openAside(t *thread.Thread, title string, open func() (int, error)) (*aside, error) {
	at := &asideThread{Thread: t}
	d, err := at.take(title, open)
	if err != nil {
		t.Close()
		return nil, err
	}
	return d, nil
}

// take opens a descriptor in the thread.
func (t *asideThread) take(title string, open func() (int, error)) (*aside, error) {
	d := &aside{thread: t, title: title, fd: -1}
	err := t.Do(func() (err error) {
		if d.fd, err = open(); err != nil && d.fd >= 0 {
			_ = unix.Close(d.fd)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	t.add(1)
	return d, nil
}

func (d *aside) control(do func(fd int) error) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	return d.thread.Do(func() error { return do(d.fd) })
}

// enter starts a call.
func (d *aside) enter() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return os.ErrClosed
	}
	d.users++
	return nil
}

// leave ends a call. The last call after close has the descriptor closed, and does not wait for that.
func (d *aside) leave() {
	d.mu.Lock()
	d.users--
	last := d.closed && d.users == 0
	d.mu.Unlock()
	if last {
		d.end()
	}
}

// close closes the descriptor after its current calls have ended; it does not wait for them. It waits for closeTimeout
// at most for calls on other descriptors of the thread.
func (d *aside) close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return os.ErrClosed
	}
	d.closed = true
	used := d.users > 0
	d.mu.Unlock()
	if used {
		return nil
	}
	ended := d.end()
	if d.thread.isLate() {
		return nil
	}
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return d.thread.noteTimeout(ended)
	}
}

// end closes the descriptor when the thread is free for that.
func (d *aside) end() <-chan error {
	ended := make(chan error, 1)
	go func() { // outlives its caller only while another call hangs
		err := d.thread.Do(func() error { return unix.Close(d.fd) })
		d.thread.add(-1)
		d.thread.mu.Lock()
		defer d.thread.mu.Unlock()
		d.thread.late = false
		ended <- err
	}()
	return ended
}

func (t *asideThread) isLate() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.late
}

// noteTimeout records that a Close has timed out, unless the close has just ended.
func (t *asideThread) noteTimeout(ended <-chan error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case err := <-ended:
		return err
	default:
		t.late = true
		return nil
	}
}

func (d *aside) readAt(p []byte, off int64) (n int, err error) {
	err = d.control(func(fd int) (err error) {
		n, err = all(p, off, io.EOF, func(p []byte, off int64) (int, error) { return unix.Pread(fd, p, off) })
		return err
	})
	return n, d.named("read", err)
}

func (d *aside) writeAt(p []byte, off int64) (n int, err error) {
	err = d.control(func(fd int) (err error) {
		n, err = all(p, off, io.ErrUnexpectedEOF, func(p []byte, off int64) (int, error) { return unix.Pwrite(fd, p, off) })
		return err
	})
	return n, d.named("write", err)
}

func (d *aside) named(what string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("%s %s: %w", what, d.title, err)
}

func (d *aside) open(name string, how *unix.OpenHow) (descriptor, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	return d.thread.take(d.title+"/"+name, func() (int, error) { return openat.Open(d.fd, name, how) })
}

// openDir opens a directory in a thread of its own, which finds this directory through /proc.
func (d *aside) openDir(name string, how *unix.OpenHow) (descriptor, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	t, err := thread.New(thread.Options{Name: thread.Aside})
	if err != nil {
		return nil, err
	}
	return openAside(t, d.title+"/"+name, func() (int, error) {
		parent, err := unix.Open(d.path(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		defer unix.Close(parent)
		return openat.Open(parent, name, how)
	})
}

func (d *aside) path() string { return fmt.Sprintf("/proc/self/task/%d/fd/%d", d.thread.ID(), d.fd) }
func (d *aside) name() string { return d.title }
