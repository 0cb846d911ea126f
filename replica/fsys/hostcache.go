package fsys

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropPauses are the pauses between the attempts to drop a file: a page that is in use at the moment of the call stays, and a program that
// reads the file, such as a backup of the disk, has read further by the next attempt.
var dropPauses = []time.Duration{time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond}

func (f *hostFile) DropCache() error {
	for try := 0; ; try++ {
		err := f.call("drop the cache of", func(fd int) error { return unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) })
		if err != nil {
			return err
		}
		cached, err := f.cachedPages()
		switch {
		case err != nil:
			return err
		case cached == 0:
			return nil
		case try == len(dropPauses):
			return fmt.Errorf("drop the cache of %s: %w: %d pages are left", f.name(), ErrCached, cached)
		}
		time.Sleep(dropPauses[try])
	}
}

// cachedPages is how many pages of the file the kernel has in its cache. A file system in memory has no disk that could differ, and so 0.
func (f *hostFile) cachedPages() (int64, error) {
	var on unix.Statfs_t
	if err := f.call("stat the file system of", func(fd int) error { return unix.Fstatfs(fd, &on) }); err != nil {
		return 0, err
	}
	if on.Type == unix.TMPFS_MAGIC || on.Type == unix.RAMFS_MAGIC {
		return 0, nil
	}
	var pages unix.Cachestat_t
	err := f.call("ask for the cached pages of", func(fd int) error {
		return unix.Cachestat(uint(fd), &unix.CachestatRange{}, &pages, 0)
	})
	if errors.Is(err, unix.ENOSYS) {
		return f.residentPages()
	}
	return int64(pages.Cache), err
}

// residentWindow is how much of a file is mapped at once.
const residentWindow = 1 << 30

// residentPages is cachedPages for kernels without cachestat (Linux before 6.5). mincore tells the truth to the owner of a file only, and
// calls all pages of other files cached.
func (f *hostFile) residentPages() (cached int64, err error) {
	size, err := f.Size()
	for off := int64(0); off < size && err == nil; off += residentWindow {
		err = f.call("ask for the resident pages of", func(fd int) error {
			found, err := resident(fd, off, int(min(residentWindow, size-off)))
			cached += found
			return err
		})
	}
	return cached, err
}

func resident(fd int, off int64, length int) (found int64, err error) {
	b, err := unix.Mmap(fd, off, length, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unix.Munmap(b)) }()
	pages := make([]byte, (length+os.Getpagesize()-1)/os.Getpagesize())
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(length), uintptr(unsafe.Pointer(&pages[0]))); errno != 0 {
		return 0, errno
	}
	for _, p := range pages {
		found += int64(p & 1)
	}
	return found, nil
}
