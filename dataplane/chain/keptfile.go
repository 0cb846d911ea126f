package chain

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// A kept map file has the blocks that changed since a point, up to the file End. It is replaced as a whole. All numbers
// are little endian; bits start at the lowest of a byte.
//
//	0    8   magic "LHKEPMAP"
//	8    4   format version, 1
//	12   4   blocks for one bit, 16
//	16   8   number of the point
//	24   8   nonce of the point
//	32   8   number of the file at which the map ends
//	40   8   n, the number of bits
//	48   64  uid, filled up with zeroes
//	112  16  0
//	128  ..  n bits, filled up with zeroes to whole bytes
//	     4   CRC32C of everything before
const (
	keptMagic     = "LHKEPMAP"
	keptVersion   = 1
	keptHeadBytes = 128
	keptSuffix    = ".kept"
	keptTemp      = ".tmp" // the suffix of an unfinished one
	// keptUnit is how many blocks have one bit: 64 KiB. So a map has 2 MiB for 1 TiB.
	keptUnit = 16
	// mostKeptBits limits what is read: a volume of 64 TiB.
	mostKeptBits = 1 << 30
)

// keptMap describes a kept map. Its bits are in its file.
type keptMap struct {
	from layers.Point
	end  layers.File
}

// keptBits is a kept map with its bits. A block past their end has not changed.
type keptBits struct {
	keptMap
	n    int64
	bits []byte
}

func keptName(p layers.Point) string { return fmt.Sprintf("%d-%d%s", p.Number, p.Nonce, keptSuffix) }

func (k keptBits) has(block int64) bool {
	unit := block / keptUnit
	return unit < k.n && k.bits[unit/8]>>(unit%8)&1 != 0
}

// take adds all bits of a larger or smaller map.
func (k *keptBits) take(bits []byte, n int64) {
	k.n = max(k.n, n)
	merged := make([]byte, (k.n+7)/8)
	copy(merged, k.bits)
	for i, b := range bits {
		merged[i] |= b
	}
	k.bits = merged
}

func (k keptBits) encode(uid string) []byte {
	b := make([]byte, keptHeadBytes, keptHeadBytes+len(k.bits)+4)
	copy(b, keptMagic)
	binary.LittleEndian.PutUint32(b[8:], keptVersion)
	binary.LittleEndian.PutUint32(b[12:], keptUnit)
	binary.LittleEndian.PutUint64(b[16:], uint64(k.from.Number))
	binary.LittleEndian.PutUint64(b[24:], k.from.Nonce)
	binary.LittleEndian.PutUint64(b[32:], uint64(k.end))
	binary.LittleEndian.PutUint64(b[40:], uint64(k.n))
	copy(b[48:48+listUIDBytes], uid)
	b = append(b, k.bits...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeKept reads the content of the kept map of a point. next is the number of the next new file. Errors wrap
// ErrNotOurs, ErrNewVersion or ErrTorn.
func decodeKept(b []byte, uid string, p layers.Point, next layers.File) (keptBits, error) {
	torn := func(why string) (keptBits, error) {
		return keptBits{}, fmt.Errorf("%s: %w: %s", keptName(p), ErrTorn, why)
	}
	if len(b) < len(keptMagic) || string(b[:len(keptMagic)]) != keptMagic {
		return keptBits{}, fmt.Errorf("%s: %w: it does not start with %s", keptName(p), ErrNotOurs, keptMagic)
	}
	if len(b) < keptHeadBytes+4 {
		return torn("it is too short")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != keptVersion {
		return keptBits{}, fmt.Errorf("%s: %w: %d, this release knows version %d", keptName(p), ErrNewVersion, v, keptVersion)
	}
	k := keptBits{
		keptMap: keptMap{from: p, end: layers.File(binary.LittleEndian.Uint64(b[32:]))},
		n:       int64(binary.LittleEndian.Uint64(b[40:])),
	}
	switch {
	case crc32.Checksum(b[:len(b)-4], castagnoli) != binary.LittleEndian.Uint32(b[len(b)-4:]):
		return torn("its checksum does not match")
	case k.n < 0 || k.n > mostKeptBits || int64(len(b)) != keptHeadBytes+(k.n+7)/8+4:
		return torn("its size does not match")
	case k.end < 1 || k.end > next:
		return torn("it ends at a file that was never given out")
	}
	k.bits = b[keptHeadBytes : len(b)-4]
	if string(k.encode(uid)[:keptHeadBytes]) != string(b[:keptHeadBytes]) {
		return torn("its head is not the one of this map")
	}
	return k, nil
}

// readKept reads the kept map of a point.
func readKept(dir fsys.Dir, uid string, p layers.Point, next layers.File) (keptBits, error) {
	f, err := dir.OpenFile(keptName(p), fsys.ReadOnly)
	if err != nil {
		return keptBits{}, fmt.Errorf("%s: %w", keptName(p), err)
	}
	defer func() { _ = f.Close() }() // only read
	size, err := f.Size()
	if err != nil {
		return keptBits{}, err
	}
	b := make([]byte, min(size, keptHeadBytes+mostKeptBits/8+5))
	if len(b) > 0 {
		if err := f.ReadAt(b, 0); err != nil {
			return keptBits{}, fmt.Errorf("%s: %w", keptName(p), err)
		}
	}
	return decodeKept(b, uid, p, next)
}

// readAllKept reads all kept maps of a directory. The ones that cannot be read are unwanted, and so are unfinished ones:
// then the base is unknown, and the job compares all. Names that no kept map has are not its concern.
func readAllKept(dir fsys.Dir, uid string, names []string, next layers.File) (found []keptMap, unwanted []string) {
	for _, name := range names {
		whole, unfinished := strings.CutSuffix(name, keptTemp)
		p, ok := parseKeptName(whole)
		if !ok {
			continue
		}
		if unfinished {
			unwanted = append(unwanted, name)
			continue
		}
		k, err := readKept(dir, uid, p, next)
		if err != nil {
			unwanted = append(unwanted, name)
			continue
		}
		found = append(found, k.keptMap)
	}
	return found, unwanted
}

func parseKeptName(name string) (p layers.Point, ok bool) {
	if _, err := fmt.Sscanf(name, "%d-%d"+keptSuffix, &p.Number, &p.Nonce); err != nil {
		return layers.Point{}, false
	}
	return p, keptName(p) == name
}

// storeKept replaces the file of a kept map, durably.
func (c *Chain) storeKept(k keptBits) error {
	name := keptName(k.from)
	r := fsys.Replacer{Dir: c.dir, Name: name, Temp: name + keptTemp}
	return r.Replace(k.encode(c.opts.UID))
}

// unlinkKept removes the files of kept maps, durably.
func (c *Chain) unlinkKept(maps []keptMap) error {
	if len(maps) == 0 {
		return nil
	}
	for _, k := range maps {
		if err := unlinkIfAny(c.dir, keptName(k.from)); err != nil {
			return fmt.Errorf("remove %s: %w", keptName(k.from), err)
		}
	}
	if err := c.dir.Sync(); err != nil {
		return fmt.Errorf("%w: %w", errSync, err)
	}
	return nil
}
