package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// A pageCache holds the differences between the kernel's cache of one file and its disk. The file itself is the cache:
// written data is read again, and stays when the process is killed. Some pages were changed since the last sync, or
// could not be written out by a sync. For these pages, the pageCache keeps the disk's content:
//
//	dirty    changed since the last sync that succeeded, or is being synced
//	lost     its sync failed: until the file is dropped from the cache, reads return the written data, and the page
//	         counts as clean
//
// The pages are noted in a journal outside of the node's disk. So they survive the process, like the kernel's cache. A
// loss of power drops lost pages; the file system decides about the dirty pages.
type pageCache struct {
	journal *os.File

	syncing sync.Mutex // held during a sync

	mu     sync.Mutex
	dirty  map[int64][]byte // guarded by mu, like all below; the disk's content, by offset of the page
	writes map[int64][]byte // like dirty, for the sync that is under way
	lost   map[int64][]byte

	telling sync.Mutex // separate from mu, which may be held while a disk hangs
	errors  int        // guarded by telling; failures to write out
	heard   int        // guarded by telling; the last of these that was reported to some opening
}

// The notes in a journal: the start of a sync, its end with success or failure, a dropped page, and the content of a
// page.
const (
	noteSync, noteSynced, noteFailed, noteDropped = 's', 'c', 'l', 'e'
	notePage, noteHole                            = 'd', 'z'
)

// openPageCache returns the cache of a file. If the file is the same, the cache contains the pages that an earlier
// process of the node left. booted says that these are of an earlier boot; then the caller must drop the lost pages.
func openPageCache(journal, identity, boot string) (c *pageCache, booted bool, err error) {
	c = &pageCache{dirty: map[int64][]byte{}, writes: map[int64][]byte{}, lost: map[int64][]byte{}}
	if c.journal, err = os.OpenFile(journal, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, false, err
	}
	in := bufio.NewReader(c.journal)
	head, err := in.ReadString('\n')
	was, at, _ := strings.Cut(strings.TrimSuffix(head, "\n"), " ")
	if err != nil || was != identity {
		return c, false, c.restart(identity, boot)
	}
	good := int64(len(head))
	for {
		n, err := c.replay(in)
		if err != nil {
			break // a note without an end did not take effect: the process was killed while writing it
		}
		good += n
	}
	for off, page := range c.writes { // the process was killed during a sync
		c.dirty[off] = page
	}
	c.writes = map[int64][]byte{}
	if err = c.journal.Truncate(good); err == nil {
		_, err = c.journal.Seek(0, io.SeekEnd)
	}
	return c, at != boot, err
}

func (c *pageCache) restart(identity, boot string) error {
	if err := c.journal.Truncate(0); err != nil {
		return err
	}
	_, err := c.journal.WriteAt([]byte(identity+" "+boot+"\n"), 0)
	if err == nil {
		_, err = c.journal.Seek(0, io.SeekEnd)
	}
	return err
}

func (c *pageCache) replay(in *bufio.Reader) (n int64, err error) {
	note, err := in.ReadByte()
	if err != nil {
		return 0, err
	}
	if note != notePage && note != noteHole && note != noteDropped {
		c.apply(note)
		return 1, nil
	}
	var off [8]byte
	page := make([]byte, pageBytes)
	if _, err := io.ReadFull(in, off[:]); err != nil {
		return 0, err
	}
	n = 9
	if note == notePage {
		if _, err := io.ReadFull(in, page); err != nil {
			return 0, err
		}
		n += pageBytes
	}
	at := int64(binary.LittleEndian.Uint64(off[:]))
	delete(c.lost, at)
	if note != noteDropped {
		c.dirty[at] = page
	}
	return n, nil
}

// apply performs the effect of a note.
func (c *pageCache) apply(note byte) {
	switch note {
	case noteSync:
		c.writes, c.dirty = c.dirty, map[int64][]byte{}
	case noteSynced:
		c.writes = map[int64][]byte{}
	case noteFailed:
		for off, page := range c.writes {
			if _, again := c.dirty[off]; again {
				c.dirty[off] = page // the disk has neither version
			} else {
				c.lost[off] = page
			}
		}
		c.writes = map[int64][]byte{}
	}
}

func (c *pageCache) note(note byte) error {
	c.apply(note)
	_, err := c.journal.Write([]byte{note})
	return err
}

// changeLocked notes the disk's content of a range that is about to be changed. The caller holds mu.
func (c *pageCache) changeLocked(f fsys.File, off, length int64) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	var notes []byte
	for at := off - off%pageBytes; at < min(off+length, size); at += pageBytes {
		if _, known := c.dirty[at]; known {
			continue
		}
		page, isLost := c.lost[at]
		if isLost && bytes.Equal(page, zeroPage) {
			continue // like ext4, which leaves the extent unwritten
		}
		if !isLost {
			page = make([]byte, pageBytes)
			if err := f.ReadAt(page[:min(pageBytes, size-at)], at); err != nil {
				return err
			}
		}
		delete(c.lost, at)
		c.dirty[at] = page
		kind := byte(notePage)
		if bytes.Equal(page, zeroPage) {
			kind = noteHole
		}
		notes = binary.LittleEndian.AppendUint64(append(notes, kind), uint64(at))
		if kind == notePage {
			notes = append(notes, page...)
		}
	}
	_, err = c.journal.Write(notes)
	return err
}

// dropLocked makes lost pages read the disk's content again, except for the pages that stay. The caller holds mu.
func (c *pageCache) dropLocked(f fsys.File, stays func(at int64) bool) (pages int, err error) {
	size, err := f.Size()
	if err != nil || len(c.lost) == 0 {
		return 0, err
	}
	var notes []byte
	for at, page := range c.lost {
		if stays(at) {
			continue
		}
		if at < size {
			err = errors.Join(err, f.WriteAt(page[:min(pageBytes, size-at)], at))
		}
		delete(c.lost, at)
		notes = binary.LittleEndian.AppendUint64(append(notes, noteDropped), uint64(at))
		pages++
	}
	err = errors.Join(err, f.Datasync())
	_, noteErr := c.journal.Write(notes)
	return pages, errors.Join(err, noteErr)
}

// writtenThroughLocked notes that the disk has the content that is read in these ranges. The caller holds mu.
func (c *pageCache) writtenThroughLocked(ranges []fsys.Range) error {
	var notes []byte
	for at := range c.lost {
		if isIn(at, ranges) {
			delete(c.lost, at)
			notes = binary.LittleEndian.AppendUint64(append(notes, noteDropped), uint64(at))
		}
	}
	_, err := c.journal.Write(notes)
	return err
}

func isIn(at int64, ranges []fsys.Range) bool {
	return slices.ContainsFunc(ranges, func(r fsys.Range) bool { return r.Off <= at && at < r.Off+r.Length })
}

// stayingLocked lists the pages in ranges that a drop has left, sorted. The caller holds mu.
func (c *pageCache) stayingLocked(ranges []fsys.Range) (staying []fsys.Range) {
	all := maps.Clone(c.lost)
	maps.Copy(all, c.dirty)
	maps.Copy(all, c.writes)
	for _, at := range slices.Sorted(maps.Keys(all)) {
		if isIn(at, ranges) {
			staying = append(staying, fsys.Range{Off: at, Length: pageBytes})
		}
	}
	return staying
}

// none is the inUse of a drop after which no page stays in the cache.
func none(int64) bool { return false }

// toldAtOpening returns the number of the last failure that a new opening does not report. If no opening has reported a
// failure, the next opening reports it.
func (c *pageCache) toldAtOpening() int {
	c.telling.Lock()
	defer c.telling.Unlock()
	if c.heard < c.errors {
		return c.errors - 1
	}
	return c.errors
}

// caches are the page caches of a process, by the path of their file.
type caches struct {
	dir  string // the directory of the journals
	boot string
	// inUse reports whether a page is in use when a replica's process drops its file from the cache; then the page
	// stays.
	inUse func(at int64) bool

	mu    sync.Mutex
	known map[string]*pageCache // guarded by mu
	files map[string]fsys.File  // guarded by mu; an opening of each file, to write the dropped pages
}

// of returns the cache of a file. reopen opens the file for writing.
func (cs *caches) of(path string, f fsys.File, created bool, reopen func() (fsys.File, error)) (*pageCache, error) {
	id, err := f.ID()
	if err != nil {
		return nil, err
	}
	identity := strings.ReplaceAll(fmt.Sprint(id), " ", ",")
	cs.mu.Lock()
	defer cs.mu.Unlock()
	key := path + " " + identity
	cs.forgetOthersLocked(volumeOf(path))
	if c := cs.known[key]; c != nil && !created {
		return c, nil
	}
	journal := filepath.Join(cs.dir, strings.ReplaceAll(strings.Trim(path, "/"), "/", "+"))
	if created {
		_ = os.Remove(journal)
	}
	c, booted, err := openPageCache(journal, identity, cs.boot)
	if err != nil {
		return nil, err
	}
	own, err := reopen()
	if err != nil {
		return nil, err
	}
	if booted {
		if _, err := c.dropLocked(own, none); err != nil {
			return nil, err
		}
		c.dirty = map[int64][]byte{}
		if err := c.restart(identity, cs.boot); err != nil {
			return nil, err
		}
	}
	cs.known[key], cs.files[key] = c, own
	return c, nil
}

// volumeOf returns the volume to which a file of a replica belongs.
func volumeOf(path string) string {
	volume, _, _ := strings.Cut(filepath.Base(filepath.Dir(path)), "-r-")
	return volume
}

// forgetOthersLocked forgets the caches of other volumes: a node has one volume after the other. The caller holds mu.
func (cs *caches) forgetOthersLocked(volume string) {
	for key, f := range cs.files {
		if path, _, _ := strings.Cut(key, " "); volumeOf(path) != volume {
			_ = errors.Join(f.Close(), cs.known[key].journal.Close(), os.Remove(cs.known[key].journal.Name()))
			delete(cs.files, key)
			delete(cs.known, key)
		}
	}
}

// dropName is a file in a node's directory. When it exists, the node's process drops its files from the cache, and then
// removes the file.
const dropName = "drop"

// dropOnOrder drops the files of a node's process at each order, until ctx is done.
func (cs *caches) dropOnOrder(ctx context.Context, order string, said func(pages int)) {
	for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(order); err != nil {
			continue
		}
		if pages, err := cs.drop(); err == nil {
			said(pages)
			_ = os.Remove(order)
		}
	}
}

// drop drops all files. It ignores files that are gone, and files on a disk that fails: no component reads them.
func (cs *caches) drop() (pages int, err error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for key, c := range cs.known {
		c.mu.Lock()
		n, dropErr := c.dropLocked(cs.files[key], none)
		c.mu.Unlock()
		pages += n
		if errors.Is(dropErr, syscall.ENOSPC) {
			err = dropErr
		}
	}
	return pages, err
}

// dropCaches orders a node to drop its caches, and returns when it has done so.
func (n *node) dropCaches() error {
	order := filepath.Join(n.dir, dropName)
	if err := os.WriteFile(order, nil, 0o600); err != nil {
		return err
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		switch _, err := os.Stat(order); {
		case errors.Is(err, os.ErrNotExist):
			return nil
		case err != nil || time.Now().After(end):
			return fmt.Errorf("node %d does not drop its caches (%w)", n.number, err)
		}
	}
}
