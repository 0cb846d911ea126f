package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// content is the content of an export: its pages by their offsets, without pages of zeroes.
type content map[int64][]byte

const pageBytes = fsBlockBytes

var zeroPage = make([]byte, pageBytes)

// readAll returns the content of an export. It reads only the parts that are not holes.
func readAll(ctx context.Context, b nbd.Backend, size int64) (content, error) {
	c := content{}
	for off := int64(0); off < size; {
		extents, err := b.Extents(ctx, off, size-off)
		if err != nil {
			return nil, err
		}
		if len(extents) == 0 {
			return nil, fmt.Errorf("nothing is told of what is at %d", off)
		}
		for _, e := range extents {
			if e.Flags&nbd.ExtentZero == 0 {
				if err := c.read(ctx, b, e.Offset, e.Offset+e.Length); err != nil {
					return nil, err
				}
			}
			off = e.Offset + e.Length
		}
	}
	return c, nil
}

// read reads the pages that overlap a range.
func (c content) read(ctx context.Context, b nbd.Backend, off, end int64) error {
	buf := make([]byte, 64*pageBytes)
	for off -= off % pageBytes; off < end; {
		p := buf[:min(int64(len(buf)), end-off+pageBytes-1)/pageBytes*pageBytes]
		if err := b.ReadAt(ctx, p, off); err != nil {
			return err
		}
		for page := range slices.Chunk(p, pageBytes) {
			if !bytes.Equal(page, zeroPage) {
				c[off] = bytes.Clone(page)
			}
			off += pageBytes
		}
	}
	return nil
}

// difference describes where two contents differ, or returns "".
func (c content) difference(o content) string {
	pages := maps.Clone(c)
	maps.Copy(pages, o)
	var differ []int64
	for off := range pages {
		if !bytes.Equal(c[off], o[off]) {
			differ = append(differ, off)
		}
	}
	if len(differ) == 0 {
		return ""
	}
	at := slices.Min(differ)
	return fmt.Sprintf("%d pages, the first at %d, %d and %d", len(differ), at, c.value(at), o.value(at))
}

// stray describes where the content has data that no client wrote, or returns "". So a larger volume must read as
// zeroes in the new range until that is written.
func (c content) stray() string {
	for _, off := range slices.Sorted(maps.Keys(c)) {
		if !isWritten(off) {
			return fmt.Sprintf("%d at %d, which no client wrote", c.value(off), off)
		}
	}
	return ""
}

func isWritten(off int64) bool {
	for block := range blockCount {
		if off >= offset(block) && off < offset(block)+blockBytes {
			return true
		}
	}
	for i := range floodWriters {
		if off >= floodOffset(i) && off < floodOffset(i)+floodBytes {
			return true
		}
	}
	return false
}

// value returns the number at the start of a page.
func (c content) value(off int64) uint64 {
	if page := c[off]; page != nil {
		return binary.LittleEndian.Uint64(page)
	}
	return 0
}

// block returns the value of a block while no client writes it. The end of the block may have another value, or none.
func (c content) block(block int) (uint64, error) {
	first := c.value(offset(block))
	for i := 0; i < len(c[offset(block)]); i += 8 {
		if v := binary.LittleEndian.Uint64(c[offset(block)][i:]); v != first {
			return 0, fmt.Errorf("block %d is torn: %d at its beginning, %d at byte %d", block, first, v, i)
		}
	}
	return first, nil
}
