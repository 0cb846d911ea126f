// Package fsys is all that the replica package may ask of a file system: directories held open by descriptor, names
// resolved in them and never through a symbolic link, files read and written at offsets, and the calls that make either
// durable. Host is the real one; memfs is one for tests which loses what was not synced.
//
// It must not know what the files mean.
package fsys

import "errors"

var (
	// ErrLocked says that another process, or another opening in this one, holds the directory's lock.
	ErrLocked = errors.New("directory is locked by another user of it")
	// ErrNotRegular says that a name is something else than what was asked for: a symbolic link, a device, another file
	// system's root, a directory where a file was wanted.
	ErrNotRegular = errors.New("not a plain file or directory of this file system")
)

// FS gives access to directories by absolute path.
type FS interface {
	// OpenDir opens an existing directory. Symbolic links on the way are followed, beneath the file system's root.
	OpenDir(path string) (Dir, error)
}

// ID tells one file or directory from all others that exist at the same time.
type ID struct{ Device, Inode uint64 }

// Range is a part of a file, in bytes.
type Range struct{ Off, Length int64 }

// Mode says for what a file is opened.
type Mode int

const (
	// ReadOnly opens an existing file for reading.
	ReadOnly Mode = iota
	// ReadWrite opens an existing file for reading and writing.
	ReadWrite
	// CreateNew makes a file, readable by its owner alone, and fails with EEXIST when the name is taken.
	CreateNew
)

// Dir is an open directory. Names are single path elements. Errors wrap a syscall.Errno, ErrLocked or ErrNotRegular.
type Dir interface {
	// OpenDir opens a directory in this one, on the same file system.
	OpenDir(name string) (Dir, error)
	// OpenFile opens or makes a plain file in this directory, on the same file system.
	OpenFile(name string, mode Mode) (File, error)
	// Mkdir makes a directory for its owner alone.
	Mkdir(name string) error
	// Rename gives a file or directory of this directory another name in it, atomically, replacing a file that has it.
	Rename(from, to string) error
	// RenameNew is Rename that fails with EEXIST when the new name is taken.
	RenameNew(from, to string) error
	// Exchange makes each of two files of this directory have the other's name, atomically; EOPNOTSUPP where it cannot.
	Exchange(one, other string) error
	// Unlink removes a name that is not a directory.
	Unlink(name string) error
	// Rmdir removes an empty directory.
	Rmdir(name string) error
	// Names lists the directory, sorted, without "." and "..".
	Names() ([]string, error)
	// ID identifies this directory, Lookup what a name in it stands for, without following it.
	ID() (ID, error)
	Lookup(name string) (ID, error)
	// Sync makes the directory's entries durable.
	Sync() error
	// TryLock takes the directory for this opening until Close, or fails at once with ErrLocked.
	TryLock() error
	Close() error
}

// File is an open plain file. Offsets and lengths are in bytes. Its methods may be called concurrently.
type File interface {
	// ReadAt and WriteAt transfer all of p or return an error.
	ReadAt(p []byte, off int64) error
	WriteAt(p []byte, off int64) error
	// Truncate sets the size; what is added is a hole.
	Truncate(size int64) error
	// PunchHole frees a range, which then reads as zeroes; EOPNOTSUPP where it cannot. With any other error, as with one of ZeroRange, a
	// block of the range reads as zeroes or as it did, never as before a write that had succeeded.
	PunchHole(off, length int64) error
	// ZeroRange makes a range read as zeroes and keeps or makes it allocated; EOPNOTSUPP where it cannot.
	ZeroRange(off, length int64) error
	// NextData and NextHole give the first offset not below off that is data or hole. The end of the file counts as a
	// hole; NextData without any more data, and an off at or past the end, give the file's size.
	NextData(off int64) (int64, error)
	NextHole(off int64) (int64, error)
	Size() (int64, error)
	// ID identifies this file.
	ID() (ID, error)
	// AllocatedBytes is the space that the file takes.
	AllocatedBytes() (int64, error)
	// WriteBack writes out all that was written by now, and waits for that. It makes nothing durable, and does not wait for what is
	// written meanwhile.
	WriteBack() error
	// WriteBackPart is WriteBack for a range.
	WriteBackPart(r Range) error
	// Unwritten is how much the kernel has of the file that it has not written out, in bytes, rounded up to whole pages. It does not wait.
	// EOPNOTSUPP where the kernel does not tell (Linux before 6.5).
	Unwritten() (int64, error)
	// WriteError tells whether, since the file was opened or this was asked the last time, something could not be written out, no
	// matter who wrote it; then the file may read as before that write. It does not wait. The syncs and WriteBack tell the same of
	// their opening: each opening tells each error once, so a caller with several goroutines must see to it that all hear it.
	WriteError() error
	// DropCache makes the kernel drop what it has cached of the file. It returns the parts of the ranges, sorted, that stayed cached,
	// because a program uses or locks them: these may read as something that the disk does not have. All other parts of the ranges read
	// as the disk has them. What lies outside of the ranges is dropped too, but not checked. Changes must have been synced before, and
	// none may come meanwhile. It calls progress now and then, for it may take long.
	DropCache(ranges []Range, progress func()) (kept []Range, err error)
	// WriteThrough makes the disk have what the cache shows of ranges that DropCache has kept: it writes them past the cache, and reads
	// the disk to make sure. A write through the cache would not do: where a failed write-out has left an extent of ext4 unwritten, the
	// kernel writes the same page again with success, and reads zeroes later. A hole stays one. A sync must follow.
	WriteThrough(ranges []Range, progress func()) error
	// Datasync makes the content durable, Sync also all there is to know of the file.
	Datasync() error
	Sync() error
	Close() error
}
