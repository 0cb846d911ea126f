package chain

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// The list has a fixed size, so that a spare of that size has room for any list. All numbers are little endian.
//
//	0        8   magic "LHLAYERS"
//	8        4   format version, 1
//	12       4   length n of the payload
//	16       8   generation: counts the replacements, from 1
//	24       64  uid, filled up with zeroes
//	88       n   payload: layers.Chain as JSON, in exactly the form that encode writes
//	88+n     ..  zeroes
//	65532    4   CRC32C of bytes 0 to 65531
const (
	listMagic     = "LHLAYERS"
	listVersion   = 1
	listBytes     = 64 << 10
	listHeadBytes = 88
	listUIDBytes  = 64
)

// maxNumber limits the numbers of files and points, so that no addition overflows.
const maxNumber = 1 << 53

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// list is the content of the list file.
type list struct {
	uid        string
	generation int64
	chain      layers.Chain
}

// check reports why a list must be neither written nor believed.
func (l list) check() error {
	switch {
	case l.uid == "" || len(l.uid) > listUIDBytes || strings.ContainsRune(l.uid, 0):
		return fmt.Errorf("the uid must have 1 to %d bytes, and none is zero", listUIDBytes)
	case l.generation < 1 || l.generation > maxNumber:
		return fmt.Errorf("generation %d is not from 1 to %d", l.generation, int64(maxNumber))
	case l.chain.Next > maxNumber || l.chain.Reverted.By > maxNumber:
		return fmt.Errorf("a number is larger than %d", int64(maxNumber))
	case l.chain.FileCount() > layers.AllFiles:
		return fmt.Errorf("%d files: %w", l.chain.FileCount(), layers.ErrManyFiles)
	}
	for i, layer := range l.chain.Layers {
		if layer.From > maxNumber || layer.Top.Number > maxNumber {
			return fmt.Errorf("layer %d: a number is larger than %d", i, int64(maxNumber))
		}
	}
	return l.chain.Validate()
}

func (l list) encode() ([]byte, error) {
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", listName, err)
	}
	payload, err := json.Marshal(l.chain)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", listName, err)
	}
	if len(payload) > listBytes-listHeadBytes-4 {
		return nil, fmt.Errorf("%s: %d bytes for %d files: %w", listName, len(payload), l.chain.FileCount(), layers.ErrManyFiles)
	}
	b := make([]byte, listBytes)
	copy(b, listMagic)
	binary.LittleEndian.PutUint32(b[8:], listVersion)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(payload)))
	binary.LittleEndian.PutUint64(b[16:], uint64(l.generation))
	copy(b[24:24+listUIDBytes], l.uid)
	copy(b[listHeadBytes:], payload)
	binary.LittleEndian.PutUint32(b[listBytes-4:], crc32.Checksum(b[:listBytes-4], castagnoli))
	return b, nil
}

// decodeList reads the content of a list file. uid is the owner that the caller expects. It reads at most listBytes,
// and accepts only content that encode writes. Errors wrap ErrNotOurs, ErrNewVersion or ErrTorn.
func decodeList(b []byte, uid string) (list, error) {
	torn := func(format string, a ...any) (list, error) {
		return list{}, fmt.Errorf("%s: %w: %w", listName, ErrTorn, fmt.Errorf(format, a...))
	}
	if len(b) < len(listMagic) || string(b[:len(listMagic)]) != listMagic {
		return list{}, fmt.Errorf("%s: %w: it does not start with %s", listName, ErrNotOurs, listMagic)
	}
	if len(b) < listHeadBytes {
		return torn("it has %d bytes, not %d", len(b), listBytes)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != listVersion {
		return list{}, fmt.Errorf("%s: %w: %d, this release knows version %d", listName, ErrNewVersion, v, listVersion)
	}
	if len(b) != listBytes {
		return torn("it has %d bytes, not %d", len(b), listBytes)
	}
	if crc32.Checksum(b[:listBytes-4], castagnoli) != binary.LittleEndian.Uint32(b[listBytes-4:]) {
		return torn("its checksum does not match")
	}
	n := binary.LittleEndian.Uint32(b[12:])
	if n > listBytes-listHeadBytes-4 {
		return torn("its payload has %d bytes", n)
	}
	l := list{
		uid:        strings.TrimRight(string(b[24:24+listUIDBytes]), "\x00"),
		generation: int64(binary.LittleEndian.Uint64(b[16:])),
	}
	if l.uid != uid {
		return torn("it belongs to replica %q, not to replica %q", l.uid, uid)
	}
	if err := json.Unmarshal(b[listHeadBytes:listHeadBytes+n], &l.chain); err != nil {
		return torn("its payload: %w", err)
	}
	again, err := l.encode()
	if err != nil {
		return torn("%w", err)
	}
	if !bytes.Equal(again, b) {
		return torn("it is not in the form in which a list is written")
	}
	return l, nil
}
