package fsys

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// hostFile is a plain file of the kernel.
type hostFile struct{ descriptor }

func (f *hostFile) ReadAt(p []byte, off int64) error {
	_, err := f.readAt(p, off)
	return err
}

// writePiece limits one write to the page cache. The kernel (ext4 of Linux 6.18) keeps the data of one write as one
// piece. A later small write costs time in proportion to the size of the piece that it changes. With this limit, writes
// of 4 KiB were measured to be twice as fast.
const writePiece = 64 << 10

func (f *hostFile) WriteAt(p []byte, off int64) error {
	for len(p) > 0 {
		n := min(int64(len(p)), writePiece-off%writePiece)
		if _, err := f.writeAt(p[:n], off); err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}

func (f *hostFile) Truncate(size int64) error {
	return f.call("truncate", func(fd int) error { return unix.Ftruncate(fd, size) })
}

// writtenOut writes out a range of the page cache that will be zeroed. The kernel (ext4 of Linux 6.18) first drops the
// pages. If it then lacks space for the rest, the file reads as it was on the disk, before writes that were
// acknowledged.
func (f *hostFile) writtenOut(off, length int64) error {
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	err := f.call("write back the range to be zeroed of", func(fd int) error { return unix.SyncFileRange(fd, off, length, all) })
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %s", unix.EIO, err.Error()) // earlier writes are lost, which is worse than lack of space
	}
	return err
}

func (f *hostFile) PunchHole(off, length int64) error {
	return f.fallocate("punch hole into", unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, length)
}

func (f *hostFile) ZeroRange(off, length int64) error {
	return f.fallocate("zero range of", unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, off, length)
}

func (f *hostFile) fallocate(what string, mode uint32, off, length int64) error {
	if err := f.writtenOut(off, length); err != nil {
		return err
	}
	return f.call(what, func(fd int) error { return unix.Fallocate(fd, mode, off, length) })
}

// call makes a system call, and repeats it if it is interrupted.
func (f *hostFile) call(what string, do func(fd int) error) error {
	if err := f.control(retried(do)); err != nil {
		return fmt.Errorf("%s %s: %w", what, f.name(), err)
	}
	return nil
}

func (f *hostFile) stat() (st unix.Stat_t, err error) {
	err = f.call("stat", func(fd int) error { return unix.Fstat(fd, &st) })
	return st, err
}

func (f *hostFile) NextData(off int64) (int64, error) { return f.seek(off, unix.SEEK_DATA) }

func (f *hostFile) NextHole(off int64) (int64, error) { return f.seek(off, unix.SEEK_HOLE) }

// seek moves the position of the descriptor, which nothing else uses.
func (f *hostFile) seek(off int64, whence int) (int64, error) {
	found := int64(0)
	err := f.call("seek in", func(fd int) (err error) {
		found, err = unix.Seek(fd, off, whence)
		return err
	})
	if errors.Is(err, unix.ENXIO) { // no data or hole from off to the end
		return f.Size()
	}
	return found, err
}

func (f *hostFile) Size() (int64, error) {
	st, err := f.stat()
	return st.Size, err
}

func (f *hostFile) ID() (ID, error) {
	st, err := f.stat()
	return ID{Device: st.Dev, Inode: st.Ino}, err
}

func (f *hostFile) AllocatedBytes() (int64, error) {
	st, err := f.stat()
	return st.Blocks * 512, err
}

func (f *hostFile) WriteBack() error { return f.WriteBackPart(Range{}) } // no length: to the end of the file

func (f *hostFile) WriteBackPart(r Range) error {
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	return f.call("write back", func(fd int) error { return unix.SyncFileRange(fd, r.Off, r.Length, all) })
}

func (f *hostFile) Unwritten() (int64, error) {
	var pages unix.Cachestat_t
	err := f.call("read the state of the cached pages of", func(fd int) error {
		err := unix.Cachestat(uint(fd), &unix.CachestatRange{}, &pages, 0) // no length: to the end of the file
		if errors.Is(err, unix.ENOSYS) {
			return unix.EOPNOTSUPP
		}
		return err
	})
	return int64(pages.Dirty+pages.Writeback) * int64(os.Getpagesize()), err
}

// maxOffset is an offset beyond the end of any file.
const maxOffset = 1 << 62

// WriteError waits for the write-out of a page that does not exist. So the call only checks the file's errors.
func (f *hostFile) WriteError() error {
	return f.call("write back", func(fd int) error {
		return unix.SyncFileRange(fd, maxOffset, 1, unix.SYNC_FILE_RANGE_WAIT_BEFORE)
	})
}

func (f *hostFile) Datasync() error {
	return f.call("sync data of", unix.Fdatasync)
}

func (f *hostFile) Sync() error { return f.call("sync", unix.Fsync) }

func (f *hostFile) Close() error { return f.close() }
