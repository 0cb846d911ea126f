package replica

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// errUncertain is wrapped if it is unknown which of two versions of the metadata the disk holds. The replica must stop.
var errUncertain = errors.New("it is unknown whether the change was made")

// metaStore replaces the metadata of a replica, even when the disk is full: a spare file reserves room for the next
// metadata.
//
//	replica.meta       the metadata in force
//	replica.meta.tmp   the spare; the next metadata is written into its blocks. At first it has zeroes,
//	                   later the previous metadata
//
// The spare has the name under which the first release wrote the next metadata. That release removes the spare, and
// reads replica.meta as always; this release creates the spare again. A metaStore is not safe for concurrent use.
type metaStore struct {
	dir fsys.Dir
	// uncertain: the names were exchanged, and it is unknown which of the two files a loss of power leaves as
	// replica.meta. Then neither file may be written to.
	uncertain bool
}

// replace replaces the metadata with the output of Meta.encode, all or nothing:
//
//  1. write and sync replica.meta.tmp: in place if it is a spare of the right size, otherwise as a new file
//  2. exchange its name with replica.meta, or rename it where names cannot be exchanged: the commit point
//  3. sync the directory
//  4. create a spare if it is missing
//
// After an error before the commit point, the old metadata is in force. An error after it wraps errUncertain. Without a
// sync of the directory, a loss of power could undo the exchange and restore the spare as the metadata. So step 1 is
// safe only after the previous step 3. If an earlier process did the previous replacement, the sync in Open has the
// same effect.
func (s *metaStore) replace(b []byte) error {
	if err := s.stage(b); err != nil {
		return fmt.Errorf("write the metadata: %w", err)
	}
	was := s.uncertain
	s.uncertain = true
	err := s.dir.Exchange(metaTempName, metaName)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		err = s.dir.Rename(metaTempName, metaName)
	}
	if err == nil {
		err = s.dir.Sync()
	}
	if err != nil {
		return fmt.Errorf("%w: replace the metadata: %w", errUncertain, err)
	}
	s.uncertain = was // after a failed sync no later sync is believed
	s.keepSpare()
	return nil
}

// stage durably writes b to replica.meta.tmp.
func (s *metaStore) stage(b []byte) error {
	if f := s.openSpare(int64(len(b))); f != nil {
		err := f.WriteAt(b, 0)
		if err == nil {
			err = f.Sync()
		}
		return errors.Join(err, f.Close())
	}
	return s.makeTemp(b)
}

// makeTemp creates a new replica.meta.tmp, which needs space.
func (s *metaStore) makeTemp(b []byte) error {
	if err := s.dir.Unlink(metaTempName); err != nil && !errors.Is(err, syscall.ENOENT) {
		return err
	}
	err := writeNew(s.dir, metaTempName, b)
	if err != nil {
		_ = s.dir.Unlink(metaTempName) // best effort: frees a block of a full disk; the next replacement repeats it
	}
	return err
}

// openSpare opens the spare if size bytes can be written over it. For this, the spare must have that size and all its
// blocks. It must not be the metadata itself, under another name or after a loss of power.
func (s *metaStore) openSpare(size int64) fsys.File {
	if s.uncertain {
		return nil
	}
	f, err := s.dir.OpenFile(metaTempName, fsys.ReadWrite)
	if err != nil {
		return nil
	}
	have, errSize := f.Size()
	allocated, errAllocated := f.AllocatedBytes()
	spare, errSpare := f.ID()
	inForce, errInForce := s.dir.Lookup(metaName)
	if errors.Join(errSize, errAllocated, errSpare, errInForce) != nil || have != size || allocated < size || spare == inForce {
		_ = f.Close() // nothing was written
		return nil
	}
	return f
}

// keepSpare creates a spare if there is none. If the disk lacks the space, the next replacement tries again.
func (s *metaStore) keepSpare() {
	if f := s.openSpare(metaBlockBytes); f != nil {
		_ = f.Close() // nothing was written
		return
	}
	if !s.uncertain {
		_ = s.makeTemp(make([]byte, metaBlockBytes))
	}
}

// writeNew creates a file with the given content and syncs it.
func writeNew(dir fsys.Dir, name string, content []byte) error {
	f, err := dir.OpenFile(name, fsys.CreateNew)
	if err != nil {
		return err
	}
	err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// readMeta reads the metadata in an open directory. Errors wrap syscall.ENOENT, fsys.ErrNotRegular, or an error of
// decodeMeta.
//
// A reader without the lock may have opened a file that becomes the spare and is overwritten during the read. That
// requires two replacements, so the metadata looks torn at most once or twice in a row.
func readMeta(dir fsys.Dir) (m Meta, err error) {
	for range 3 {
		var b []byte
		if b, err = readFile(dir, metaName, maxMetaBytes); err != nil {
			return Meta{}, err
		}
		if m, err = decodeMeta(b); err == nil {
			return m, nil
		}
		err = fmt.Errorf("%s: %w", metaName, err)
		if !errors.Is(err, errTorn) {
			return m, err
		}
	}
	return m, err
}

// readFile reads a whole file, or limit+1 bytes of a file that is longer than limit.
func readFile(dir fsys.Dir, name string, limit int64) ([]byte, error) {
	f, err := dir.OpenFile(name, fsys.ReadOnly)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, min(size, limit+1))
	if len(b) == 0 {
		return b, nil
	}
	return b, f.ReadAt(b, 0)
}
