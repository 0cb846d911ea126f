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

// A pageCache is what the kernel's cache of one file has and its disk has not. The file itself is the cache: what is
// written is read again, and stays when the process is killed. For each page that was changed since the last sync, or
// that a sync could not write out, the cache keeps what the disk has in its place:
//
//	dirty    changed since the last sync that succeeded, or is being synced
//	lost     its sync failed: it reads as it was written, and counts as clean, until the file is dropped from the cache
//
// The pages are noted in a journal outside of the node's disk, so they survive the process, as the kernel's cache
// does. A loss of power drops what is lost; what becomes of dirty pages then is the file system's to say.
type pageCache struct {
	journal *os.File

	syncing sync.Mutex // one sync at a time

	mu     sync.Mutex
	dirty  map[int64][]byte // guarded by mu, as all below; what the disk has, by offset of the page
	writes map[int64][]byte // as dirty: of the sync that is under way
	lost   map[int64][]byte

	telling sync.Mutex // apart from mu, with which others may wait for a disk that hangs
	errors  int        // guarded by telling; failures to write out
	heard   int        // guarded by telling; the last of these that some opening was told
}

// What is noted in a journal: the beginning of a sync, its end with success or without; that a page was dropped; or
// the content of a page.
const (
	noteSync, noteSynced, noteFailed, noteDropped = 's', 'c', 'l', 'e'
	notePage, noteHole                            = 'd', 'z'
)

// openPageCache returns the cache of a file, with what an earlier process of the node left if the file and the boot
// of its machine are the same. Of an earlier boot it returns what was lost, to be dropped.
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
			break // what has no end was not begun: the process was killed while it noted it
		}
		good += n
	}
	for off, page := range c.writes { // the process was killed in a sync
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

// apply does what a note says.
func (c *pageCache) apply(note byte) {
	switch note {
	case noteSync:
		c.writes, c.dirty = c.dirty, map[int64][]byte{}
	case noteSynced:
		c.writes = map[int64][]byte{}
	case noteFailed:
		for off, page := range c.writes {
			if _, again := c.dirty[off]; again {
				c.dirty[off] = page // the disk has neither
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

// changeLocked notes what the disk has of a range that is about to be changed.
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
			continue // as ext4 does, which leaves the extent unwritten
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

// dropLocked makes what was lost read as the disk has it, except for the pages that stay.
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

// writtenThroughLocked notes that the disk has what is read of ranges.
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

// stayingLocked lists the pages in ranges that a drop has left, sorted.
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

// none is said of pages of which none stays in a cache that is dropped.
func none(int64) bool { return false }

// toldAtOpening is up to which failure a new opening tells none: one that no opening was told of is told by the next.
func (c *pageCache) toldAtOpening() int {
	c.telling.Lock()
	defer c.telling.Unlock()
	if c.heard < c.errors {
		return c.errors - 1
	}
	return c.errors
}

// caches are those of a process, by the path of their file.
type caches struct {
	dir  string // where the journals are
	boot string
	// inUse tells whether a page is in use at the moment at which a replica's process has its file dropped; then the page stays.
	inUse func(at int64) bool

	mu    sync.Mutex
	known map[string]*pageCache // guarded by mu
	files map[string]fsys.File  // guarded by mu; an opening of each to write what is dropped
}

// of returns the cache of a file. reopen opens it to be written.
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

// volumeOf returns the volume of a file of a replica.
func volumeOf(path string) string {
	volume, _, _ := strings.Cut(filepath.Base(filepath.Dir(path)), "-r-")
	return volume
}

// forgetOthersLocked forgets what belongs to other volumes: a node has one after the other.
func (cs *caches) forgetOthersLocked(volume string) {
	for key, f := range cs.files {
		if path, _, _ := strings.Cut(key, " "); volumeOf(path) != volume {
			_ = errors.Join(f.Close(), cs.known[key].journal.Close(), os.Remove(cs.known[key].journal.Name()))
			delete(cs.files, key)
			delete(cs.known, key)
		}
	}
}

// dropName is the file in a node's directory that has its process drop its files from the cache. It removes the file
// then.
const dropName = "drop"

// dropOnOrder drops the files of a node's process as often as that is ordered, until ctx ends.
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

// drop drops all files. Those that are gone, and those of a disk that fails, have nothing that anybody reads.
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

// dropCaches has the caches of a node dropped, and returns when they are.
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
