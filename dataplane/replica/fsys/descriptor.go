package fsys

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/openat"
)

// descriptor is an open file or directory, in the table of descriptors of the process or of a thread (aside.go). Its
// methods may be called concurrently, and also after close; then they return os.ErrClosed.
type descriptor interface {
	// control calls do with the descriptor, which stays open during the call.
	control(do func(fd int) error) error
	// readAt and writeAt behave like io.ReaderAt and io.WriterAt.
	readAt(p []byte, off int64) (int, error)
	writeAt(p []byte, off int64) (int, error)
	// open opens a name in this directory. The lookup cannot leave the directory.
	open(name string, how *unix.OpenHow) (descriptor, error)
	// openDir is like open, for a directory. Another thread may do the calls on the opened directory.
	openDir(name string, how *unix.OpenHow) (descriptor, error)
	// path leads to the file through /proc, as long as it is open. It is only for calls that do not wait for the disk.
	path() string
	name() string
	close() error
}

// direct is a descriptor in the table of the process.
type direct struct{ file *os.File }

func (d direct) control(do func(fd int) error) error {
	raw, err := d.file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if raw.Control(func(fd uintptr) { result = do(int(fd)) }) != nil {
		return os.ErrClosed // no other reason exists
	}
	return result
}

func (d direct) readAt(p []byte, off int64) (int, error)  { return d.file.ReadAt(p, off) }
func (d direct) writeAt(p []byte, off int64) (int, error) { return d.file.WriteAt(p, off) }
func (d direct) path() string                             { return fmt.Sprintf("/proc/self/fd/%d", d.file.Fd()) }
func (d direct) name() string                             { return d.file.Name() }
func (d direct) close() error                             { return d.file.Close() }

func (d direct) open(name string, how *unix.OpenHow) (descriptor, error) {
	fd := -1
	err := d.control(func(dir int) (err error) {
		fd, err = openat.Open(dir, name, how)
		return err
	})
	if err != nil {
		return nil, err
	}
	return direct{os.NewFile(uintptr(fd), d.name()+"/"+name)}, nil
}

func (d direct) openDir(name string, how *unix.OpenHow) (descriptor, error) { return d.open(name, how) }

// all repeats a call that may transfer less than all of p; atEnd is the error if nothing was transferred.
func all(p []byte, off int64, atEnd error, call func(p []byte, off int64) (int, error)) (done int, err error) {
	for done < len(p) {
		n, err := call(p[done:], off+int64(done))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return done, err
		case n == 0:
			return done, atEnd
		}
		done += max(n, 0)
	}
	return done, nil
}
