package replica

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// dataFile is what a change may do to the data.
type dataFile interface {
	WriteAt(p []byte, off int64) error
	PunchHole(off, length int64) error
	ZeroRange(off, length int64) error
}

// zeroPiece bounds the range of one call that makes zeroes.
const zeroPiece = 64 << 20

// zeroChunk is written again and again where a file system cannot zero a range itself.
var zeroChunk = make([]byte, 256<<10)

// punch frees a range; the parts of blocks at its ends become zeroes.
func punch(data dataFile, off, length int64) error {
	err := data.PunchHole(off, length)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		return writeZeroes(data, off, length)
	}
	return err
}

// allocateZeroes zeroes a range and keeps it allocated.
func allocateZeroes(data dataFile, off, length int64) error {
	err := data.ZeroRange(off, length)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		return writeZeroes(data, off, length)
	}
	return err
}

func writeZeroes(data dataFile, off, length int64) error {
	for length > 0 {
		n := min(length, int64(len(zeroChunk)))
		if err := data.WriteAt(zeroChunk[:n], off); err != nil {
			return err
		}
		off, length = off+n, length-n
	}
	return nil
}

// maxExtents bounds one answer; the caller asks again for the rest.
const maxExtents = 4096

func (r *Replica) extents(off, length int64) ([]nbd.Extent, error) {
	if err := r.checkRange(off, length); err != nil || length == 0 {
		return nil, err
	}
	found, err := listExtents(r.data, off, off+length)
	if err != nil {
		return nil, fmt.Errorf("list extents of replica %s: %w", r.name, err)
	}
	if err := r.believe(); err != nil { // what could not be written out may look like a hole
		return nil, err
	}
	return found, nil
}

// listExtents describes [off, end) as far as maxExtents reach: extents that touch, none empty, data and hole in turn.
func listExtents(f fsys.File, off, end int64) ([]nbd.Extent, error) {
	found := []nbd.Extent{}
	add := func(to int64, flags nbd.ExtentFlags) {
		to = min(to, end)
		if to <= off {
			return
		}
		if n := len(found); n > 0 && found[n-1].Flags == flags {
			found[n-1].Length += to - off
		} else {
			found = append(found, nbd.Extent{Offset: off, Length: to - off, Flags: flags})
		}
		off = to
	}
	for off < end && len(found) < maxExtents {
		data, err := f.NextData(off)
		if err != nil {
			return nil, err
		}
		add(data, nbd.ExtentHole|nbd.ExtentZero)
		if off == end {
			break
		}
		hole, err := f.NextHole(off)
		if err != nil {
			return nil, err
		}
		// A hole punched between the two questions can make the answer empty: then ask again from here.
		add(hole, 0)
	}
	return found, nil
}
