package fsys

import (
	"errors"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropPauses are the pauses between the attempts to drop a file. A page stays cached if it is in use at the moment of
// the call. By the next attempt, a program that reads the file, such as a backup of the disk, has moved to a later
// part.
var dropPauses = []time.Duration{time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond}

func (f *hostFile) DropCache(ranges []Range, progress func()) (kept []Range, err error) {
	drop := func() error {
		return f.call("drop the cache of", func(fd int) error { return unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) })
	}
	cached := func(ranges []Range) ([]Range, error) { return f.cachedIn(ranges, progress) }
	return keptByAll(ranges, drop, cached, time.Sleep)
}

// keptByAll returns the parts that stay cached in all attempts to drop a file. Each attempt asks only about the parts
// that the previous attempts could not drop. After a page was not cached once, it reads as on the disk. Changes were
// synced, so the kernel can only have read that page from the disk since. So a program that continues to read the file,
// and fills the cache again, does not matter.
func keptByAll(
	ranges []Range, drop func() error, cachedIn func([]Range) ([]Range, error), pause func(time.Duration),
) (kept []Range, err error) {
	kept = ranges
	for try := 0; ; try++ {
		if err := drop(); err != nil {
			return nil, err
		}
		kept, err = cachedIn(kept)
		if err != nil || len(kept) == 0 || try == len(dropPauses) {
			return kept, err
		}
		pause(dropPauses[try])
	}
}

// cachedIn lists the parts of ranges that the kernel has in its cache. For a file system in memory it lists none,
// because there is no disk that could differ.
func (f *hostFile) cachedIn(ranges []Range, progress func()) (found []Range, err error) {
	var on unix.Statfs_t
	if err := f.call("stat the file system of", func(fd int) error { return unix.Fstatfs(fd, &on) }); err != nil {
		return nil, err
	}
	if on.Type == unix.TMPFS_MAGIC || on.Type == unix.RAMFS_MAGIC {
		return nil, nil
	}
	for _, r := range ranges {
		found, err = f.addCached(found, r)
		if errors.Is(err, unix.ENOSYS) {
			return f.residentIn(ranges, progress)
		}
		if err != nil {
			return nil, err
		}
		progress()
	}
	return found, nil
}

// addCached adds the cached parts of a range to the parts that were found. The kernel counts the cached pages of a
// range. The count takes time in proportion to its result. So a range that is cached in part is divided until its parts
// are known.
func (f *hostFile) addCached(found []Range, r Range) ([]Range, error) {
	cached, err := f.cachedPages(r)
	pages := pagesOf(r.Length)
	switch {
	case err != nil || cached == 0:
		return found, err
	case cached >= pages:
		return addRange(found, r), nil
	}
	half := pages / 2 * int64(os.Getpagesize())
	if found, err = f.addCached(found, Range{r.Off, half}); err != nil {
		return found, err
	}
	return f.addCached(found, Range{r.Off + half, r.Length - half})
}

// cachedPages counts the cached pages of a range; ENOSYS on Linux before 6.5.
func (f *hostFile) cachedPages(r Range) (int64, error) {
	var pages unix.Cachestat_t
	err := f.call("count the cached pages of", func(fd int) error {
		return unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(r.Off), Len: uint64(r.Length)}, &pages, 0)
	})
	return int64(pages.Cache), err
}

func pagesOf(length int64) int64 {
	page := int64(os.Getpagesize())
	return (length + page - 1) / page
}

// addRange adds a range to others, which lie before it.
func addRange(ranges []Range, r Range) []Range {
	if n := len(ranges); n > 0 && ranges[n-1].Off+ranges[n-1].Length == r.Off {
		ranges[n-1].Length += r.Length
		return ranges
	}
	return append(ranges, r)
}

// residentWindow is the largest part of a file that is mapped at once.
const residentWindow = 1 << 30

// residentIn is cachedIn for kernels without cachestat (Linux before 6.5). mincore checks each page of a range, cached
// or not, which takes about 15 s for each TiB. It answers correctly only for the owner of a file. For other files it
// reports all pages as cached.
func (f *hostFile) residentIn(ranges []Range, progress func()) (found []Range, err error) {
	for _, r := range ranges {
		for end := r.Off + r.Length; r.Off < end; r.Off += residentWindow {
			var pages []byte
			err := f.call("count the resident pages of", func(fd int) (err error) {
				pages, err = resident(fd, r.Off, int(min(residentWindow, end-r.Off)))
				return err
			})
			if err != nil {
				return nil, err
			}
			found = addResident(found, pages, r.Off, end)
			progress()
		}
	}
	return found, nil
}

// addResident adds the pages of a window that are resident.
func addResident(found []Range, pages []byte, off, end int64) []Range {
	page := int64(os.Getpagesize())
	for i, p := range pages {
		if p&1 != 0 {
			at := off + int64(i)*page
			found = addRange(found, Range{at, min(page, end-at)})
		}
	}
	return found
}

// resident returns a byte for each page of a part of a file. The lowest bit is set if the page is cached. A file system
// that cannot map a file (ENODEV) does not use the page cache for it. The mapping is private, because some file systems
// allow no other mapping for files that they do not cache.
func resident(fd int, off int64, length int) (pages []byte, err error) {
	b, err := unix.Mmap(fd, off, length, unix.PROT_READ, unix.MAP_PRIVATE)
	switch {
	case errors.Is(err, unix.ENODEV):
		return nil, nil
	case err != nil:
		return nil, err
	}
	defer func() { err = errors.Join(err, unix.Munmap(b)) }()
	pages = make([]byte, pagesOf(int64(length)))
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(length), uintptr(unsafe.Pointer(&pages[0]))); errno != 0 {
		return nil, errno
	}
	return pages, nil
}
