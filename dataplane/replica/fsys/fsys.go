// Package fsys has all operations that the replica package may use on a file system. Directories are held open by
// descriptor. Names are resolved in them and never through a symbolic link. Files are read and written at offsets.
// Other calls make files or directories durable. Host is the real file system; memfs is a file system for tests, which
// loses unsynced data.
//
// It must not know the meaning of the files.
package fsys

import "errors"

var (
	// ErrLocked means that another process, or another opening in this process, holds the directory's lock.
	ErrLocked = errors.New("the directory is locked by another process, or by another opening in this process")
	// ErrNotRegular means that a name has another type than requested. Examples are a symbolic link, a device, the root
	// of another file system, or a directory instead of a file.
	ErrNotRegular = errors.New("it is not a plain file or directory of this file system")
)

// FS gives access to directories by absolute path.
type FS interface {
	// OpenDir opens an existing directory. Symbolic links on the way are followed, below the file system's root.
	OpenDir(path string) (Dir, error)
}

// ID distinguishes a file or directory from all others that exist at the same time.
type ID struct{ Device, Inode uint64 }

// Range is a part of a file, in bytes.
type Range struct{ Off, Length int64 }

// Mode is the purpose for which a file is opened.
type Mode int

const (
	// ReadOnly opens an existing file for reading.
	ReadOnly Mode = iota
	// ReadWrite opens an existing file for reading and writing.
	ReadWrite
	// CreateNew creates a file that only its owner can read. It fails with EEXIST if the name exists.
	CreateNew
)

// Dir is an open directory. Names are single path elements. Errors wrap a syscall.Errno, ErrLocked or ErrNotRegular.
type Dir interface {
	// OpenDir opens a directory in this one, on the same file system.
	OpenDir(name string) (Dir, error)
	// OpenFile opens or creates a plain file in this directory, on the same file system.
	OpenFile(name string, mode Mode) (File, error)
	// Mkdir creates a directory that only its owner can use.
	Mkdir(name string) error
	// Rename gives a file or directory of this directory another name in it, atomically. An existing file of that name
	// is replaced.
	Rename(from, to string) error
	// RenameNew is like Rename, but fails with EEXIST if the new name exists.
	RenameNew(from, to string) error
	// Exchange exchanges the names of two files of this directory, atomically; EOPNOTSUPP if it cannot.
	Exchange(one, other string) error
	// Unlink removes a name that is not a directory.
	Unlink(name string) error
	// Rmdir removes an empty directory.
	Rmdir(name string) error
	// AvailableBytes is the space of the directory's file system that files can still take.
	AvailableBytes() (int64, error)
	// Names lists the directory, sorted, without "." and "..".
	Names() ([]string, error)
	// ID identifies this directory. Lookup identifies the object of a name in it, without following a link.
	ID() (ID, error)
	Lookup(name string) (ID, error)
	// Sync makes the directory's entries durable.
	Sync() error
	// TryLock locks the directory for this opening until Close, or fails at once with ErrLocked.
	TryLock() error
	Close() error
}

// Mounted is a Dir that knows its mount.
type Mounted interface {
	// MountID identifies the mount through which the directory was opened. No other mount gets the number until the
	// machine restarts. known is false if the kernel has no such number (Linux before 6.8).
	MountID() (id uint64, known bool)
}

// File is an open plain file. Offsets and lengths are in bytes. Its methods may be called concurrently.
type File interface {
	// ReadAt and WriteAt transfer all of p or return an error.
	ReadAt(p []byte, off int64) error
	WriteAt(p []byte, off int64) error
	// Truncate sets the size; an added part is a hole.
	Truncate(size int64) error
	// PunchHole frees a range, which then reads as zeroes; EOPNOTSUPP if it cannot. After any other error, a block of
	// the range reads either as zeroes or as it did before the call. It never reads as before an earlier successful
	// write. The same holds for ZeroRange.
	PunchHole(off, length int64) error
	// ZeroRange makes a range read as zeroes and leaves all of it allocated; EOPNOTSUPP if it cannot.
	ZeroRange(off, length int64) error
	// NextData and NextHole return the first offset not below off that is data or hole. The end of the file counts as a
	// hole. If no data follows, or off is at or past the end, NextData returns the file's size.
	NextData(off int64) (int64, error)
	NextHole(off int64) (int64, error)
	Size() (int64, error)
	// ID identifies this file.
	ID() (ID, error)
	// AllocatedBytes is the space that the file uses.
	AllocatedBytes() (int64, error)
	// WriteBack writes out everything that was written before the call, and waits for that. It makes nothing durable,
	// and does not wait for later writes.
	WriteBack() error
	// WriteBackPart is WriteBack for a range.
	WriteBackPart(r Range) error
	// Unwritten returns how many bytes of the file the kernel has not written out, rounded up to whole pages. It does
	// not wait. It returns EOPNOTSUPP if the kernel cannot answer (Linux before 6.5).
	Unwritten() (int64, error)
	// WriteError returns an error if a write-out has failed since the file was opened or since the last call of
	// WriteError, whichever opening wrote the data. Then the file may read as before that write. It does not wait. The
	// syncs and WriteBack report the same error of their opening. Each opening reports each error once. So a caller
	// with several goroutines must ensure that all of them learn of it.
	WriteError() error
	// DropCache makes the kernel drop its cache of the file. It returns the parts of the ranges, sorted, that stayed
	// cached because a program uses or locks them. Their cached content may differ from the content of the disk. All
	// other parts of the ranges read as on the disk. Data outside of the ranges is dropped too, but not checked.
	// Changes must have been synced before, and no change may come during the call. DropCache calls progress
	// repeatedly, because it may take long.
	DropCache(ranges []Range, progress func()) (kept []Range, err error)
	// WriteThrough writes the cached content of ranges that DropCache has kept to the disk. It writes past the cache,
	// and reads the disk to verify. A write through the cache would not be sufficient. After a failed write-out has
	// left an extent of ext4 unwritten, the kernel writes the same page again with success, and later reads zeroes. A
	// hole stays a hole. A sync must follow.
	WriteThrough(ranges []Range, progress func()) error
	// Datasync makes the content durable. Sync makes the metadata of the file durable as well.
	Datasync() error
	Sync() error
	Close() error
}
