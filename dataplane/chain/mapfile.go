package chain

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// The map of a file has one bit for each block of layers.BlockBytes: set = present. It is written in place. All numbers
// are little endian; bits start at the lowest of a byte. A map has whole pages of 4096 bytes, and all of them are
// written when the file is created. So no later write needs space on a file system that writes in place.
//
//	sector 0        0    8   magic "LHLAYMAP"
//	(512 bytes)     8    4   format version, 1
//	                12   4   0
//	                16   8   block size in bytes
//	                24   8   number of the file
//	                32   64  uid, filled up with zeroes
//	                96   412 0
//	                508  4   CRC32C of bytes 0 to 507
//	sector 1+i      0    4   magic "LHlm"
//	                4    4   i
//	                8    504 bits of blocks 4032*i and following
//
// The bits have no checksum, like the ones of the replica's intent map: a sector is only ever replaced by a
// sector that differs in some bits, so a torn sector has the old or the new value of each bit. A bit that is being set
// is relied on only after the sync that made it durable. The data below a bit that is being cleared is still correct.
// The constant first eight bytes distinguish a lost, zeroed or misplaced sector from a sector without bits. They are
// checked when the sector is read.
const (
	mapMagic        = "LHLAYMAP"
	mapSectorMagic  = "LHlm"
	mapVersion      = 1
	mapSectorBytes  = 512
	mapSectorHead   = 8
	mapBitsBytes    = mapSectorBytes - mapSectorHead
	blocksPerSector = mapBitsBytes * 8
	mapPageBytes    = 4096
	sectorsPerPage  = mapPageBytes / mapSectorBytes
)

// mapFileBytes is the size of a map for a number of blocks.
func mapFileBytes(blocks int64) int64 {
	sectors := 1 + (blocks+blocksPerSector-1)/blocksPerSector
	return (sectors + sectorsPerPage - 1) / sectorsPerPage * mapPageBytes
}

func blocksOf(size int64) int64 { return (size + layers.BlockBytes - 1) / layers.BlockBytes }

// mapHeader returns sector 0.
func mapHeader(uid string, n layers.File) []byte {
	b := make([]byte, mapSectorBytes)
	copy(b, mapMagic)
	binary.LittleEndian.PutUint32(b[8:], mapVersion)
	binary.LittleEndian.PutUint64(b[16:], layers.BlockBytes)
	binary.LittleEndian.PutUint64(b[24:], uint64(n))
	copy(b[32:32+listUIDBytes], uid)
	binary.LittleEndian.PutUint32(b[508:], crc32.Checksum(b[:508], castagnoli))
	return b
}

// checkMapHeader compares sector 0 with the expected one. Errors wrap ErrNotOurs, ErrNewVersion or ErrTorn.
func checkMapHeader(b []byte, title, uid string, n layers.File) error {
	if len(b) < mapSectorBytes || string(b[:len(mapMagic)]) != mapMagic {
		return fmt.Errorf("%s: %w: it does not start with %s", title, ErrNotOurs, mapMagic)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != mapVersion {
		return fmt.Errorf("%s: %w: %d, this release knows version %d", title, ErrNewVersion, v, mapVersion)
	}
	if string(b[:mapSectorBytes]) != string(mapHeader(uid, n)) {
		return fmt.Errorf("%s: %w: its header is not the one of file %d of replica %s", title, ErrTorn, n, uid)
	}
	return nil
}

// emptyMapPage returns one page of a map without bits.
func emptyMapPage(uid string, n layers.File, page int64) []byte {
	b := make([]byte, mapPageBytes)
	for i := range int64(sectorsPerPage) {
		s := b[i*mapSectorBytes:]
		if sector := page*sectorsPerPage + i; sector == 0 {
			copy(s, mapHeader(uid, n))
		} else {
			copy(s, mapSectorMagic)
			binary.LittleEndian.PutUint32(s[4:], uint32(sector-1))
		}
	}
	return b
}

// writeEmptyMap writes the pages from one size of a map to another one. It does not sync.
func writeEmptyMap(f fsys.File, uid string, n layers.File, from, to int64) error {
	const most = 256 // pages in one write
	b := make([]byte, 0, min(most*mapPageBytes, max(0, to-from)))
	for at := from; at < to; at += int64(len(b)) {
		b = b[:0]
		for p := at; p < to && len(b) < most*mapPageBytes; p += mapPageBytes {
			b = append(b, emptyMapPage(uid, n, p/mapPageBytes)...)
		}
		if err := f.WriteAt(b, at); err != nil {
			return err
		}
	}
	return nil
}

// mapFile is an open map. Its bits are the ones of the file, synced or not. It is not safe for concurrent use.
type mapFile struct {
	file  fsys.File
	title string
	uid   string
	n     layers.File
	bytes int64
	cache *Cache
}

// openMap checks the header and the size of a map. A growth that was interrupted may have left more pages than the data
// needs. They have no bits, and the next growth writes them again.
func openMap(f fsys.File, title, uid string, n layers.File, blocks int64, cache *Cache) (*mapFile, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, min(size, mapSectorBytes))
	if len(b) > 0 {
		if err := f.ReadAt(b, 0); err != nil {
			return nil, err
		}
	}
	if err := checkMapHeader(b, title, uid, n); err != nil {
		return nil, err
	}
	if size < mapFileBytes(blocks) {
		return nil, fmt.Errorf("%s: %w: it has %d bytes for %d blocks", title, ErrTorn, size, blocks)
	}
	return &mapFile{file: f, title: title, uid: uid, n: n, bytes: mapFileBytes(blocks), cache: cache}, nil
}

// covers reports whether the map has a place for the bits of a sector.
func (m *mapFile) covers(sector int64) bool {
	page, _ := mapPlace(sector)
	return (page+1)*mapPageBytes <= m.bytes
}

// page returns one page of the file. The caller must not change it.
func (m *mapFile) page(page int64) ([]byte, error) {
	if b := m.cache.get(m, page); b != nil {
		return b, nil
	}
	if (page+1)*mapPageBytes > m.bytes {
		return nil, fmt.Errorf("%s: %w: it has %d bytes, and page %d is needed", m.title, ErrTorn, m.bytes, page)
	}
	b := make([]byte, mapPageBytes)
	if err := m.file.ReadAt(b, page*mapPageBytes); err != nil {
		return nil, fmt.Errorf("%s: %w", m.title, err)
	}
	want := emptyMapPage(m.uid, m.n, page)
	for at := 0; at < mapPageBytes; at += mapSectorBytes {
		length := mapSectorHead
		if page == 0 && at == 0 {
			length = mapSectorBytes
		}
		if string(b[at:at+length]) != string(want[at:at+length]) {
			return nil, fmt.Errorf("%s: %w: sector %d is not a sector of this map", m.title, ErrTorn, page*sectorsPerPage+int64(at/mapSectorBytes))
		}
	}
	m.cache.put(m, page, b)
	return b, nil
}

// bits returns the bits of a sector, counted without the header. The caller must not change them.
func (m *mapFile) bits(sector int64) ([]byte, error) {
	page, at := mapPlace(sector)
	b, err := m.page(page)
	if err != nil {
		return nil, err
	}
	return b[at : at+mapBitsBytes], nil
}

// mapPlace returns where the bits of a sector are: the page, and the offset in it.
func mapPlace(sector int64) (page, at int64) {
	return (1 + sector) / sectorsPerPage, (1+sector)%sectorsPerPage*mapSectorBytes + mapSectorHead
}

// write replaces the bits of a sector. It does not sync.
func (m *mapFile) write(sector int64, bits []byte) error {
	page, at := mapPlace(sector)
	old, err := m.page(page)
	if err != nil {
		return err
	}
	b := append([]byte(nil), old...)
	copy(b[at:at+mapBitsBytes], bits)
	start := at - mapSectorHead
	if err := m.file.WriteAt(b[start:start+mapSectorBytes], page*mapPageBytes+start); err != nil {
		return fmt.Errorf("%s: %w", m.title, err)
	}
	m.cache.put(m, page, b)
	return nil
}

// grow makes room for a larger number of blocks, durably. Errors of the sync wrap errSync.
func (m *mapFile) grow(blocks int64) error {
	to := mapFileBytes(blocks)
	if to <= m.bytes {
		return nil
	}
	if err := writeEmptyMap(m.file, m.uid, m.n, m.bytes, to); err != nil {
		return fmt.Errorf("%s: %w", m.title, err)
	}
	if err := m.file.Sync(); err != nil {
		return fmt.Errorf("%s: %w: %w", m.title, errSync, err)
	}
	m.bytes = to
	return nil
}

func (m *mapFile) close() error {
	m.cache.drop(m)
	return m.file.Close()
}
