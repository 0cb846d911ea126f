package instance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// dirWatch causes a check of a disk soon after an object in one of its directories was deleted or moved. It uses one
// inotify instance, because the kernel allows a user only a few. An event is only a hint: it shows neither which object
// is gone nor whether that matters; the check finds this out. So it does not matter that the kernel may drop events. It
// also does not matter if a path was closed before the watch is added.
type dirWatch struct {
	events *os.File
	// fd is the descriptor of events, and is used only by events: after File.Fd the file would no longer wait in the
	// runtime.
	fd int

	mu     sync.Mutex
	closed bool                                // guarded by mu
	users  map[int32]map[*guardedDisk]struct{} // guarded by mu; by watch descriptor
}

// gone are the events that report that a directory, or an object in it, was deleted or moved.
const gone = unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// newDirWatch creates a watch. The caller must call read and close.
func newDirWatch() (*dirWatch, error) {
	// The descriptor does not block: so the runtime waits for events, and close ends the wait.
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch directories: %w", err)
	}
	return &dirWatch{events: os.NewFile(uintptr(fd), "inotify"), fd: fd, users: map[int32]map[*guardedDisk]struct{}{}}, nil
}

// add makes each removal from a directory cause a check of a disk. The directory is the one to which the path leads
// now.
func (w *dirWatch) add(path string, d *guardedDisk) (descriptor int32, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, os.ErrClosed
	}
	n, err := unix.InotifyAddWatch(w.fd, path, gone)
	if err != nil {
		return 0, fmt.Errorf("watch directory %s: %w", path, err)
	}
	descriptor = int32(n)
	if w.users[descriptor] == nil {
		w.users[descriptor] = map[*guardedDisk]struct{}{}
	}
	w.users[descriptor][d] = struct{}{}
	return descriptor, nil
}

// remove undoes add.
func (w *dirWatch) remove(descriptor int32, d *guardedDisk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	users := w.users[descriptor]
	if users == nil || w.closed {
		return
	}
	if delete(users, d); len(users) == 0 {
		delete(w.users, descriptor)
		_, _ = unix.InotifyRmWatch(w.fd, uint32(descriptor)) // the kernel removes it on its own when the directory is gone
	}
}

// read causes checks until the watch is closed.
func (w *dirWatch) read() error {
	buffer := make([]byte, 64<<10)
	for {
		n, err := w.events.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read which files were deleted: %w", err)
		}
		w.tell(buffer[:n])
	}
}

// tell decodes events (inotify(7)): int32 descriptor, uint32 mask, cookie and length of the name, the name.
func (w *dirWatch) tell(events []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(events) >= unix.SizeofInotifyEvent {
		descriptor, mask := int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:])
		length := min(unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(events[12:])), len(events))
		events = events[length:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			for _, users := range w.users {
				makeDue(users)
			}
			continue
		}
		makeDue(w.users[descriptor])
		if mask&unix.IN_IGNORED != 0 { // the directory is gone, and so is its watch
			delete(w.users, descriptor)
		}
	}
}

func makeDue(disks map[*guardedDisk]struct{}) {
	for d := range disks {
		d.look()
	}
}

// close ends read.
func (w *dirWatch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	_ = w.events.Close() // only read
}
