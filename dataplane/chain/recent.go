package chain

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// A recent file has the blocks that became present since the map was last synced. It is written and not synced: it
// counts only while nothing can have been lost from the page cache. All numbers are little endian.
//
//	0         0    8   magic "LHRECENT"
//	(512      8    4   format version, 1
//	bytes)    12   4   flags: 1 in use half 1 (else half 0), 2 data or bits may be lost (a sync failed)
//	          16   8   salt, random; an entry of another salt is from before
//	          24   8   number of the file
//	          32   8   entries in one half
//	          40   64  uid, filled up with zeroes
//	          104  64  boot id, filled up with zeroes
//	          168  340 0
//	          508  4   CRC32C of bytes 0 to 507
//	4096      16*n entries of half 0, then of half 1
//
//	entry i   0    8   first block
//	          8    4   number of blocks, from 1
//	          12   4   CRC32C of the salt, i, and bytes 0 to 11
//
// Entries count up to the first one with another checksum: a process that was killed may leave a torn entry. When the
// map is synced, the entries that it does not cover are written to the other half under a new salt. Then one write of
// the header makes that half the one in use. A kill leaves the old header or the new one, because the header is in one
// page of the cache.
//
// The whole file is written when it is created. So no entry needs space on a file system that writes in place.
const (
	recentMagic      = "LHRECENT"
	recentVersion    = 1
	recentHeadBytes  = 512
	recentStart      = 4096
	recentEntryBytes = 16
	recentBootBytes  = 64
	// recentEntries is the number of entries in one half. When they are used up, a change first flushes.
	recentEntries = 32 << 10

	// mostRecentEntries and mostEntryBlocks limit what an opening believes: 16 MiB of entries, and 4 GiB in one change.
	mostRecentEntries = 1 << 20
	mostEntryBlocks   = 1 << 20

	// noBoot is the boot id of a file that does not count.
	noBoot = ""

	recentFlagHalf   = 1
	recentFlagFailed = 2
)

// entry is blocks [first, first+count) that became present.
type entry struct{ first, count int64 }

// recent is an open recent file. It is not safe for concurrent use.
type recent struct {
	file     fsys.File
	title    string
	uid      string
	n        layers.File
	boot     string
	capacity int64
	half     int64
	salt     uint64
	failed   bool
	log      []entry // the entries of the half in use
	reserved int64   // entries for changes under way
}

func recentFileBytes(capacity int64) int64 { return recentStart + 2*capacity*recentEntryBytes }

func (r *recent) header() []byte {
	b := make([]byte, recentHeadBytes)
	copy(b, recentMagic)
	flags := uint32(0)
	if r.half == 1 {
		flags |= recentFlagHalf
	}
	if r.failed {
		flags |= recentFlagFailed
	}
	binary.LittleEndian.PutUint32(b[8:], recentVersion)
	binary.LittleEndian.PutUint32(b[12:], flags)
	binary.LittleEndian.PutUint64(b[16:], r.salt)
	binary.LittleEndian.PutUint64(b[24:], uint64(r.n))
	binary.LittleEndian.PutUint64(b[32:], uint64(r.capacity))
	copy(b[40:40+listUIDBytes], r.uid)
	copy(b[104:104+recentBootBytes], r.boot)
	binary.LittleEndian.PutUint32(b[508:], crc32.Checksum(b[:508], castagnoli))
	return b
}

// writeNewRecent writes a whole recent file without entries. It does not sync.
func writeNewRecent(f fsys.File, uid string, n layers.File, boot string, capacity int64) error {
	r := recent{uid: uid, n: n, boot: boot, capacity: capacity, salt: rand.Uint64()}
	b := make([]byte, recentFileBytes(capacity))
	copy(b, r.header())
	return f.WriteAt(b, 0)
}

// openRecent reads a recent file. A header that is torn has an empty boot id, so that the file does not count: a loss
// of power may leave it. Errors wrap ErrNotOurs or ErrNewVersion.
func openRecent(f fsys.File, title, uid string, n layers.File) (*recent, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	r := &recent{file: f, title: title, uid: uid, n: n, capacity: (size - recentStart) / recentEntryBytes / 2, salt: rand.Uint64()}
	b := make([]byte, recentHeadBytes)
	if size < recentFileBytes(1) {
		return nil, fmt.Errorf("%s: %w: it has %d bytes", title, errShort, size)
	}
	if size != recentFileBytes(r.capacity) || r.capacity > mostRecentEntries {
		return nil, fmt.Errorf("%s: %w: it has %d bytes", title, ErrTorn, size)
	}
	if err := f.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("%s: %w", title, err)
	}
	if binary.LittleEndian.Uint32(b[508:]) != crc32.Checksum(b[:508], castagnoli) {
		return r, nil
	}
	if string(b[:len(recentMagic)]) != recentMagic {
		return nil, fmt.Errorf("%s: %w: it does not start with %s", title, ErrNotOurs, recentMagic)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != recentVersion {
		return nil, fmt.Errorf("%s: %w: %d, this release knows version %d", title, ErrNewVersion, v, recentVersion)
	}
	flags := binary.LittleEndian.Uint32(b[12:])
	r.half, r.failed, r.salt = int64(flags&recentFlagHalf), flags&recentFlagFailed != 0, binary.LittleEndian.Uint64(b[16:])
	r.boot = strings.TrimRight(string(b[104:104+recentBootBytes]), "\x00")
	if binary.LittleEndian.Uint64(b[32:]) > uint64(r.capacity) {
		return nil, fmt.Errorf("%s: %w: it has %d bytes", title, errShort, size)
	}
	if string(b) != string(r.header()) {
		return nil, fmt.Errorf("%s: %w: its header is not the one of file %d of replica %s", title, ErrTorn, n, uid)
	}
	return r, r.read()
}

// read reads the entries of the half in use. It takes no block number on trust: the caller compares it with the size.
func (r *recent) read() error {
	b := make([]byte, r.capacity*recentEntryBytes)
	if err := r.file.ReadAt(b, r.place(r.half, 0)); err != nil {
		return fmt.Errorf("%s: %w", r.title, err)
	}
	for i := range r.capacity {
		at := b[i*recentEntryBytes : (i+1)*recentEntryBytes]
		e := entry{int64(binary.LittleEndian.Uint64(at)), int64(binary.LittleEndian.Uint32(at[8:]))}
		valid := e.count >= 1 && e.count <= mostEntryBlocks && e.first >= 0 && e.first <= maxNumber
		if !valid || binary.LittleEndian.Uint32(at[12:]) != entrySum(r.salt, i, at) {
			break
		}
		r.log = append(r.log, e)
	}
	return nil
}

func (r *recent) place(half, i int64) int64 {
	return recentStart + (half*r.capacity+i)*recentEntryBytes
}

func entrySum(salt uint64, i int64, b []byte) uint32 {
	var head [16]byte
	binary.LittleEndian.PutUint64(head[:], salt)
	binary.LittleEndian.PutUint64(head[8:], uint64(i))
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, b[:12])
}

func encodeEntries(salt uint64, first int64, entries []entry) []byte {
	b := make([]byte, len(entries)*recentEntryBytes)
	for i, e := range entries {
		at := b[i*recentEntryBytes:]
		binary.LittleEndian.PutUint64(at, uint64(e.first))
		binary.LittleEndian.PutUint32(at[8:], uint32(e.count))
		binary.LittleEndian.PutUint32(at[12:], entrySum(salt, first+int64(i), at))
	}
	return b
}

// reserve takes up to want entries for a change, and returns how many.
func (r *recent) reserve(want int64) int64 {
	got := min(want, r.capacity-int64(len(r.log))-r.reserved)
	got = max(got, 0)
	r.reserved += got
	return got
}

// add writes a reserved entry.
func (r *recent) add(e entry) error {
	i := int64(len(r.log))
	if err := r.file.WriteAt(encodeEntries(r.salt, i, []entry{e}), r.place(r.half, i)); err != nil {
		return fmt.Errorf("%s: %w", r.title, err)
	}
	r.log = append(r.log, e)
	return nil
}

// forget removes the first entries: the map has their bits, durably.
func (r *recent) forget(first int) error { return r.restart(r.log[first:], r.boot) }

// restart makes the given entries the only ones, in the other half and under a new salt.
func (r *recent) restart(rest []entry, boot string) error {
	rest = append([]entry(nil), rest...)
	salt, half := rand.Uint64(), 1-r.half
	if len(rest) > 0 {
		if err := r.file.WriteAt(encodeEntries(salt, 0, rest), r.place(half, 0)); err != nil {
			return fmt.Errorf("%s: %w", r.title, err)
		}
	}
	r.salt, r.half, r.boot, r.failed, r.log = salt, half, boot, false, rest
	return r.writeHeader()
}

// fail records that a sync has failed. The record lasts as long as the machine runs.
func (r *recent) fail() error {
	r.failed = true
	return r.writeHeader()
}

func (r *recent) writeHeader() error {
	if err := r.file.WriteAt(r.header(), 0); err != nil {
		return fmt.Errorf("%s: %w", r.title, err)
	}
	return nil
}

// lost returns an error if an entry could not be written out. The kernel may drop such an entry from its cache, and
// reports it once. Errors wrap errSync.
func (r *recent) lost() error {
	if err := r.file.WriteError(); err != nil {
		return fmt.Errorf("%s: %w: %w", r.title, errSync, err)
	}
	return nil
}
