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

// Aside is a host's file systems of which some lie on block devices that this very process serves. What waits for one of those waits for
// this process; if it is killed meanwhile, that wait must not keep the device's connection open. So each directory of such a file system
// has a thread of its own (package thread), which does all that is asked of it and of the files in it, one after the other:
//
//	Dir ---- thread, its table of descriptors: the directory, its lock, its files     File ---- the thread of its Dir
//	  | OpenDir
//	  +----- another thread
//
// Since a directory's lock is in the same table as its files, no other opening gets the lock while a call on one of these goes on, also
// after the process was killed: so its successor need not wait for such threads (thread.Aside). All other file systems are Host's.
//
// A call that hangs holds up all later ones of its thread, but for closing: Close waits for closePatience at most, and what was closed while
// another call hung is closed when that has ended.
type Aside struct {
	Host
	// Mounts is the file of a mount namespace in which these file systems are seen; "" for that of the process, where they must not be
	// mounted when the process ends.
	Mounts string
	// Served has the numbers of the block devices that this process serves. It must not wait for them.
	Served func() map[uint64]bool
}

// ErrNotAside says that a directory lies on a block device that this process serves, and could not be opened aside. Opened as Host does it
// would keep the process from ending.
var ErrNotAside = errors.New("it lies on a device that this process serves, and cannot be used in a thread of its own")

// OpenDir opens an existing directory by absolute path.
func (a Aside) OpenDir(path string) (Dir, error) {
	served := a.Served()
	if len(served) == 0 {
		return a.Host.OpenDir(path)
	}
	d, err := a.openServed(path, served)
	if d != nil || err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
		return d, err // what the process itself sees by that path may be something else, and must not be taken for the disk
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

// openServed opens a directory aside. It returns nil for one that is not on a served device.
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
		return nil, fmt.Errorf("open directory %s aside: %w", path, err)
	case !served[st.Dev]:
		_ = d.close()
		return nil, nil
	}
	return &hostDir{d}, nil
}

// aside is a descriptor of a thread.
type aside struct {
	thread *asideThread
	fd     int
	title  string

	mu     sync.Mutex
	users  int  // guarded by mu; calls that have begun
	closed bool // guarded by mu
}

// closePatience is how long Close waits behind another call of the thread. To close later is safe: the lock of a directory stays as long as a
// call goes on beneath it.
const closePatience = time.Second

// asideThread ends with the last descriptor in it.
type asideThread struct {
	*thread.Thread

	mu   sync.Mutex
	open int  // guarded by mu
	late bool // guarded by mu; a Close has waited in vain, and nothing was closed since
}

func (t *asideThread) add(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open += n; t.open == 0 {
		t.Close()
	}
}

// openAside opens the first descriptor of a thread, which ends if that fails.
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

// enter begins a call.
func (d *aside) enter() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return os.ErrClosed
	}
	d.users++
	return nil
}

// leave ends a call. The last one after close has the descriptor closed, and does not wait for that.
func (d *aside) leave() {
	d.mu.Lock()
	d.users--
	last := d.closed && d.users == 0
	d.mu.Unlock()
	if last {
		d.end()
	}
}

// close closes the descriptor, once the calls on it that have begun have ended: for those it does not wait, and for closePatience at most for
// those on other descriptors of the thread.
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
	patience := time.NewTimer(closePatience)
	defer patience.Stop()
	select {
	case err := <-ended:
		return err
	case <-patience.C:
		return d.thread.giveUp(ended)
	}
}

// end closes the descriptor when its turn in the thread has come.
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

// giveUp notes that a Close has waited in vain, unless it has just ended.
func (t *asideThread) giveUp(ended <-chan error) error {
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

// openDir opens a directory in a thread of its own, which finds this one by way of /proc.
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
