package replica

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
	"strings"
)

// The intent map records which regions may differ between the replicas of a volume: bit set = marked. It has one bit
// for each RegionBytes of the volume. It is written in place. All numbers are little endian; bits start at the lowest
// of a byte.
//
//	sector 0        0    8   magic "LHINTENT"
//	(512 bytes)     8    4   format version, 1
//	                12   4   0
//	                16   8   region size in bytes
//	                24   8   number of regions
//	                32   64  uid, filled up with zeroes
//	                96   412 0
//	                508  4   CRC32C of bytes 0 to 507
//	sector 1+i      0    4   magic "LHim"
//	                4    4   i
//	                8    504 bits of regions 4032*i and following; those past the last region are 0
//
// This is why the bits have no checksum, and why a torn sector loses no mark. A sector is only ever replaced by a
// sector that differs in some bits. A crash may leave any mixture of the old and the new image, even byte by byte.
// Still, a bit that is equal in both images has its value. A bit that is being set is relied on only after the sync
// that made it durable has returned. A bit that is being cleared may have either value, and a mark too many costs only
// a comparison. With a checksum, a torn sector would be refused, although it is only imprecise. The constant first
// eight bytes distinguish a lost, zeroed or misplaced sector from a sector without marks.
const (
	intentMagic       = "LHINTENT"
	intentSectorMagic = "LHim"
	intentVersion     = 1
	intentSectorBytes = 512
	intentSectorHead  = 8
	regionsPerSector  = (intentSectorBytes - intentSectorHead) * 8
	intentUIDBytes    = 64
)

// intentImage is the content of an intent map file. It is not safe for concurrent use.
type intentImage struct {
	b       []byte
	regions int64
}

func intentFileBytes(regions int64) int64 {
	return (1 + (regions+regionsPerSector-1)/regionsPerSector) * intentSectorBytes
}

// newIntentImage creates the image of a map without marks.
func newIntentImage(uid string, regionBytes, regions int64) intentImage {
	b := make([]byte, intentFileBytes(regions))
	copy(b, intentMagic)
	binary.LittleEndian.PutUint32(b[8:], intentVersion)
	binary.LittleEndian.PutUint64(b[16:], uint64(regionBytes))
	binary.LittleEndian.PutUint64(b[24:], uint64(regions))
	copy(b[32:32+intentUIDBytes], uid)
	binary.LittleEndian.PutUint32(b[508:], crc32.Checksum(b[:508], castagnoli))
	for i := 1; i < len(b)/intentSectorBytes; i++ {
		s := b[i*intentSectorBytes:]
		copy(s, intentSectorMagic)
		binary.LittleEndian.PutUint32(s[4:], uint32(i-1))
	}
	return intentImage{b: b, regions: regions}
}

// decodeIntentImage compares the content of an intent map file with the metadata's uid and sizes. The image uses b.
// Errors wrap errNotOurs, errTorn or errNewVersion.
func decodeIntentImage(b []byte, uid string, regionBytes, regions int64) (intentImage, error) {
	if len(b) < intentSectorBytes || string(b[:len(intentMagic)]) != intentMagic {
		return intentImage{}, errNotOurs
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != intentVersion {
		return intentImage{}, fmt.Errorf("%w: %d, this release knows version %d", errNewVersion, v, intentVersion)
	}
	if int64(len(b)) != intentFileBytes(regions) {
		return intentImage{}, fmt.Errorf("%w: it has %d bytes for %d regions", errTorn, len(b), regions)
	}
	want := newIntentImage(uid, regionBytes, regions)
	if string(b[:intentSectorBytes]) != string(want.b[:intentSectorBytes]) {
		return intentImage{}, fmt.Errorf("%w: its header does not match this replica", errTorn)
	}
	for at := intentSectorBytes; at < len(b); at += intentSectorBytes {
		if string(b[at:at+intentSectorHead]) != string(want.b[at:at+intentSectorHead]) {
			return intentImage{}, fmt.Errorf("%w: sector %d is not a sector of an intent map", errTorn, at/intentSectorBytes)
		}
	}
	m := intentImage{b: b, regions: regions}
	for r := regions; r%regionsPerSector != 0; r++ {
		if m.has(r) {
			return intentImage{}, fmt.Errorf("%w: it has a mark after the last region", errTorn)
		}
	}
	return m, nil
}

// intentOwner returns the uid of an intent map's owner, from the first sector; "" if that sector is not sound.
func intentOwner(b []byte) (uid string) {
	if len(b) < intentSectorBytes || string(b[:len(intentMagic)]) != intentMagic || binary.LittleEndian.Uint32(b[8:]) != intentVersion ||
		binary.LittleEndian.Uint32(b[508:]) != crc32.Checksum(b[:508], castagnoli) {
		return ""
	}
	return strings.TrimRight(string(b[32:32+intentUIDBytes]), "\x00")
}

// intentRegions returns the number of regions that an intent map says that it has; 0 if its first sector is missing.
func intentRegions(b []byte) int64 {
	if len(b) < intentSectorBytes {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(b[24:]))
}

func (m intentImage) at(region int64) (index int64, bit byte) {
	sector := 1 + region/regionsPerSector
	in := region % regionsPerSector
	return sector*intentSectorBytes + intentSectorHead + in/8, 1 << (in % 8)
}

func (m intentImage) has(region int64) bool {
	i, bit := m.at(region)
	return m.b[i]&bit != 0
}

// set changes one mark and returns the sector that holds it.
func (m intentImage) set(region int64, marked bool) (sector int64) {
	i, bit := m.at(region)
	if marked {
		m.b[i] |= bit
	} else {
		m.b[i] &^= bit
	}
	return i / intentSectorBytes
}

// marked lists the marked regions, sorted.
func (m intentImage) marked() []int64 {
	found := []int64{}
	for at := int64(intentSectorBytes); at < int64(len(m.b)); at++ {
		in := at % intentSectorBytes
		if in < intentSectorHead {
			continue
		}
		first := (at/intentSectorBytes-1)*regionsPerSector + (in-intentSectorHead)*8
		for b := m.b[at]; b != 0; b &= b - 1 {
			found = append(found, first+int64(bits.TrailingZeros8(b)))
		}
	}
	return found
}
