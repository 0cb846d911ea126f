package fsys

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// directPiece limits one transfer past the cache.
const directPiece = 256 << 10

// ErrNotWrittenThrough means that a file system has not stored on the disk the data that was written past the cache.
var ErrNotWrittenThrough = errors.New("data that was written directly to the disk is not there")

func (f *hostFile) WriteThrough(ranges []Range, progress func()) error {
	// An anonymous mapping is aligned, as direct I/O requires.
	both, err := unix.Mmap(-1, 0, 2*directPiece, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("allocate buffers: %w", err)
	}
	defer func() { _ = unix.Munmap(both) }()
	shown, disk := both[:directPiece], both[directPiece:]
	for _, r := range ranges {
		for end := r.Off + r.Length; r.Off < end; r.Off += directPiece {
			n := min(directPiece, end-r.Off)
			if err := f.writePieceThrough(shown[:n], disk[:n], r.Off); err != nil {
				return err
			}
			progress()
		}
	}
	return nil
}

// writePieceThrough fills both buffers. If a program reads all of a file, the kernel also caches the holes of the file.
// Holes equal the disk.
func (f *hostFile) writePieceThrough(shown, disk []byte, off int64) error {
	if err := f.ReadAt(shown, off); err != nil {
		return err
	}
	data, err := f.NextData(off)
	if err != nil || data >= off+int64(len(shown)) && len(bytes.TrimLeft(shown, "\x00")) == 0 {
		return err
	}
	return f.call("bypass the cache of", func(fd int) error {
		direct, err := unix.Open(fmt.Sprintf("/proc/thread-self/fd/%d", fd), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(direct) }()
		if err := passesCache(direct); err != nil {
			return err
		}
		if _, err := all(shown, off, io.ErrUnexpectedEOF, func(p []byte, off int64) (int, error) { return unix.Pwrite(direct, p, off) }); err != nil {
			return err
		}
		if _, err := all(disk, off, io.ErrUnexpectedEOF, func(p []byte, off int64) (int, error) { return unix.Pread(direct, p, off) }); err != nil {
			return err
		}
		if !bytes.Equal(shown, disk) {
			return fmt.Errorf("%w: %d bytes at offset %d", ErrNotWrittenThrough, len(shown), off)
		}
		return nil
	})
}

// passesCache returns an error if the kernel opens a file for direct writes but lets the cache do them, including
// direct reads. ext4 does this for files that it encrypts, and for files whose data passes through its journal.
func passesCache(direct int) error {
	var file unix.Statx_t
	if err := unix.Statx(direct, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &file); err != nil {
		return err
	}
	if !isDirect(file) {
		return fmt.Errorf("%w: the file system passes direct writes through its cache", ErrNotWrittenThrough)
	}
	return nil
}

// isDirect reports whether direct writes of a file pass the cache. Some file systems do not report this: all of them on
// Linux before 6.1, and some on later kernels. They are believed, except for encrypted files.
func isDirect(file unix.Statx_t) bool {
	if file.Mask&unix.STATX_DIOALIGN != 0 {
		return file.Dio_offset_align != 0
	}
	return file.Attributes&unix.STATX_ATTR_ENCRYPTED == 0
}
