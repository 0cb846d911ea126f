package replica

import (
	"errors"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// blocks is the data of a replica, independent of its layout on the disk. Offsets and lengths are in bytes. Its methods
// may be called concurrently.
type blocks interface {
	// ReadAt and WriteAt transfer all of p or return an error.
	ReadAt(p []byte, off int64) error
	WriteAt(p []byte, off int64) error
	// Punch makes a range read as zeroes, and frees as much of its space as possible.
	Punch(off, length int64) error
	// Zero makes a range read as zeroes, and leaves all of it allocated.
	Zero(off, length int64) error
	// Extents describes [off, end), starting at off and ending at end or after maxExtents extents. The extents are
	// adjacent and not empty. Data and holes alternate.
	Extents(off, end int64) ([]nbd.Extent, error)
	// Datasync makes everything durable that was written before the call.
	Datasync() error
	// Truncate sets the size. An added part reads as zeroes.
	Truncate(size int64) error
	Size() (int64, error)
	// AllocatedBytes is the space that the data takes.
	AllocatedBytes() (int64, error)
	// ID identifies the file that is changed.
	ID() (fsys.ID, error)
	Close() error
}

// flat is data in one sparse file. The holes of the file are the holes of the data.
type flat struct{ fsys.File }

// zeroChunk is written repeatedly if a file system cannot zero a range itself.
var zeroChunk = make([]byte, 256<<10)

// Punch implements blocks. Where the range covers a block of the file only in part, that part becomes zeroes.
func (f flat) Punch(off, length int64) error {
	err := f.PunchHole(off, length)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		return f.writeZeroes(off, length)
	}
	return err
}

// Zero implements blocks.
func (f flat) Zero(off, length int64) error {
	err := f.ZeroRange(off, length)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		return f.writeZeroes(off, length)
	}
	return err
}

func (f flat) writeZeroes(off, length int64) error {
	for length > 0 {
		n := min(length, int64(len(zeroChunk)))
		if err := f.WriteAt(zeroChunk[:n], off); err != nil {
			return err
		}
		off, length = off+n, length-n
	}
	return nil
}

// maxExtents limits one answer; the caller asks again for the rest.
const maxExtents = 4096

// Extents implements blocks.
func (f flat) Extents(off, end int64) ([]nbd.Extent, error) {
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
		// If a hole was punched between the two questions, the answer may be empty. Then the caller asks again from
		// here.
		add(hole, 0)
	}
	return found, nil
}
