package chain

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// The index tells where the search for a block of the volume starts (layers.Index). It has pages, and each of them is
// an index of its blocks. A page is written in place, and never synced: an older version of it is right as well. A page
// without its checksum is made from the maps again. All numbers are little endian.
//
//	0     4     CRC32C of the uid, and of all that follows
//	4     4     magic "LHix"
//	8     8     number of the page
//	16    8     generation of the list from which it was made
//	24    8     Reach
//	32    8     base, a file number
//	40    1024  256 numbers: n stands for file base + n - 1, and 0 for none. The first one is 0
//	1064  7128  one byte for each block: which of these numbers is its slot
const (
	indexName      = "index"
	indexMagic     = "LHix"
	indexPageBytes = 8192
	indexTable     = 40
	indexSlots     = indexTable + 4*256
	// indexPageBlocks is how many blocks have their slots in one page.
	indexPageBlocks = indexPageBytes - indexSlots
	// indexLayers is the number of sealed layers from which on the index is used. A shorter walk is cheaper.
	indexLayers = 4
)

// errNoIndex says that a page cannot hold the slots.
var errNoIndex = errors.New("the index cannot name the files")

// index is the index file of a chain. Its pages are in the cache of the chain. It is safe for concurrent use.
type index struct {
	uid   string
	cache *Cache
	least int // sealed layers

	mu       sync.Mutex // one page is made at a time
	file     fsys.File  // guarded by mu; nil: pages are only in memory
	readOnly bool
}

// openIndex opens the index of a directory, and creates it if it is missing. The index is derived, so a chain without
// the file serves as well.
func openIndex(dir fsys.Dir, opts Options) *index {
	x := &index{uid: opts.UID, cache: opts.Cache, least: opts.indexFrom(), readOnly: opts.ReadOnly}
	mode := fsys.ReadWrite
	if opts.ReadOnly {
		mode = fsys.ReadOnly
	}
	f, err := dir.OpenFile(indexName, mode)
	if errors.Is(err, syscall.ENOENT) && !opts.ReadOnly {
		f, err = dir.OpenFile(indexName, fsys.CreateNew)
	}
	if err == nil {
		x.file = f
	}
	return x
}

func (x *index) close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cache.drop(x)
	if x.file == nil {
		return nil
	}
	err := x.file.Close()
	x.file = nil
	return err
}

// isUsed reports whether reads of a state ask the index.
func (x *index) isUsed(s *state) bool { return x != nil && s.list.chain.SealedLayers() >= x.least }

// page returns a page whose Reach is not below the one of the chain. The caller holds Chain.reads, so no file is closed
// or punched. If it holds an older state than another caller, a page of the newer state is right for it too.
func (x *index) page(s *state, n int64) (indexPage, error) {
	if p := indexPage(x.cache.get(x, n)); p != nil && p.reach() >= s.list.chain.Reach() {
		return p, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	p := indexPage(x.cache.get(x, n))
	if p == nil {
		p = x.readLocked(n, s.list.generation)
	}
	if p != nil && p.reach() >= s.list.chain.Reach() {
		x.cache.put(x, n, p)
		return p, nil
	}
	p, err := x.make(s, n, p)
	if err != nil {
		return nil, err
	}
	x.cache.put(x, n, p)
	if x.file != nil && !x.readOnly {
		_ = x.file.WriteAt(p, n*indexPageBytes) // the page is derived: a later read makes it again
	}
	return p, nil
}

// readLocked returns a page of the file, or nil if it must not be believed. A page from after the present list belongs
// to a directory that was copied or restored.
func (x *index) readLocked(n, generation int64) indexPage {
	if x.file == nil {
		return nil
	}
	size, err := x.file.Size()
	if err != nil || size < (n+1)*indexPageBytes {
		return nil
	}
	p := make(indexPage, indexPageBytes)
	if x.file.ReadAt(p, n*indexPageBytes) != nil || !p.isOf(x.uid, n) || p.generation() > generation {
		return nil
	}
	return p
}

// make returns a page with all sealed layers. old is an earlier version, or nil.
func (x *index) make(s *state, n int64, old indexPage) (indexPage, error) {
	slots := layers.NewIndex(indexPageBlocks)
	if old != nil {
		slots = old.decode()
	}
	windows := map[layers.File]window{}
	var failed error
	has := func(f layers.File, b int64) bool {
		w, known := windows[f]
		if !known && failed == nil {
			if w, failed = s.files[f].window(n*indexPageBlocks, indexPageBlocks); failed == nil {
				windows[f] = w
			}
		}
		return failed == nil && w.Has(b)
	}
	slots = slots.Update(s.list.chain, has)
	if failed != nil {
		return nil, failed
	}
	return encodeIndexPage(x.uid, n, s.list.generation, slots)
}

// indexPage is the content of a page. It is never changed.
type indexPage []byte

func (p indexPage) reach() layers.File { return layers.File(binary.LittleEndian.Uint64(p[24:])) }

func (p indexPage) generation() int64 { return int64(binary.LittleEndian.Uint64(p[16:])) }

// slot returns the slot of a block, counted from the first one of the page.
func (p indexPage) slot(b int64) layers.File {
	n := binary.LittleEndian.Uint32(p[indexTable+4*int64(p[indexSlots+b]):])
	if n == 0 {
		return 0
	}
	return layers.File(binary.LittleEndian.Uint64(p[32:])) + layers.File(n) - 1
}

func (p indexPage) sum(uid string) uint32 {
	return crc32.Update(crc32.Checksum([]byte(uid), castagnoli), castagnoli, p[4:])
}

// isOf reports whether the page is sound, and the one with this number of this replica.
func (p indexPage) isOf(uid string, n int64) bool {
	return binary.LittleEndian.Uint32(p) == p.sum(uid) && string(p[4:8]) == indexMagic &&
		binary.LittleEndian.Uint64(p[8:]) == uint64(n) && binary.LittleEndian.Uint32(p[indexTable:]) == 0
}

func (p indexPage) decode() layers.Index {
	x := layers.NewIndex(indexPageBlocks)
	x.Reach = p.reach()
	for b := range x.Slots {
		x.Slots[b] = p.slot(int64(b))
	}
	return x
}

func encodeIndexPage(uid string, n, generation int64, x layers.Index) (indexPage, error) {
	files := slices.Clone(x.Slots)
	slices.Sort(files)
	files = slices.DeleteFunc(slices.Compact(files), func(f layers.File) bool { return f == 0 })
	if len(files) > 255 || len(files) > 0 && files[len(files)-1]-files[0] >= 1<<32-1 {
		return nil, fmt.Errorf("page %d, %d files: %w", n, len(files), errNoIndex)
	}
	p := make(indexPage, indexPageBytes)
	copy(p[4:], indexMagic)
	binary.LittleEndian.PutUint64(p[8:], uint64(n))
	binary.LittleEndian.PutUint64(p[16:], uint64(generation))
	binary.LittleEndian.PutUint64(p[24:], uint64(x.Reach))
	numbers := map[layers.File]byte{}
	for i, f := range files {
		binary.LittleEndian.PutUint64(p[32:], uint64(files[0]))
		binary.LittleEndian.PutUint32(p[indexTable+4*(i+1):], uint32(f-files[0]+1))
		numbers[f] = byte(i + 1)
	}
	for b, f := range x.Slots {
		p[indexSlots+b] = numbers[f]
	}
	binary.LittleEndian.PutUint32(p, p.sum(uid))
	return p, nil
}
