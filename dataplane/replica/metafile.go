package replica

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// errUncertain is wrapped when it is not known which of two metadata the disk holds. The replica must stop.
var errUncertain = errors.New("not known whether it happened")

// metaStore replaces the metadata of a replica, also when the disk is full: room for the next is kept in a spare file.
//
//	replica.meta       the metadata in force
//	replica.meta.tmp   the spare, whose blocks the next metadata is written into: at first zeroes, later the metadata before this one
//
// The spare has the name under which the first release wrote the next metadata. That release removes it, and reads what is in
// replica.meta as ever; this one makes it anew. It is not safe for concurrent use.
type metaStore struct {
	dir fsys.Dir
	// uncertain: the names were exchanged, and it is not known which of the two files a loss of power leaves as replica.meta. Then
	// neither is written to any more.
	uncertain bool
}

// replace puts what Meta.encode made in the place of the metadata, all or nothing:
//
//  1. write and sync replica.meta.tmp: in place if that is a spare of the right size, else anew
//  2. exchange its name with that of replica.meta, or rename it where names cannot be exchanged: the commit point
//  3. sync the directory
//  4. see that there is a spare
//
// An error before the commit point leaves the old metadata in force. One after it wraps errUncertain. Without a sync of the directory
// a loss of power could undo the exchange, and what was the spare be the metadata: so 1 is only safe after the 3 before it, and a
// process before this one is covered by the sync of Open.
func (s *metaStore) replace(b []byte) error {
	if err := s.stage(b); err != nil {
		return fmt.Errorf("write metadata: %w", err)
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
		return fmt.Errorf("%w: replace metadata: %w", errUncertain, err)
	}
	s.uncertain = was // no sync is believed after one that failed
	s.keepSpare()
	return nil
}

// stage makes replica.meta.tmp hold b, durably.
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

// makeTemp makes replica.meta.tmp anew, which needs space.
func (s *metaStore) makeTemp(b []byte) error {
	if err := s.dir.Unlink(metaTempName); err != nil && !errors.Is(err, syscall.ENOENT) {
		return err
	}
	err := writeNew(s.dir, metaTempName, b)
	if err != nil {
		_ = s.dir.Unlink(metaTempName) // best effort: gives a full disk its block back; the next replacement does it again
	}
	return err
}

// openSpare opens the spare if it can be overwritten with so many bytes: it has that size, blocks for all of it, and is not the
// metadata itself, by another name or after a loss of power.
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

// keepSpare makes a spare unless there is one. A disk without space is asked again after the next replacement.
func (s *metaStore) keepSpare() {
	if f := s.openSpare(metaBlockBytes); f != nil {
		_ = f.Close() // nothing was written
		return
	}
	if !s.uncertain {
		_ = s.makeTemp(make([]byte, metaBlockBytes))
	}
}

// writeNew makes a file with the given content, synced.
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

// readMeta reads the metadata in an open directory. Errors wrap syscall.ENOENT, fsys.ErrNotRegular, or those of decodeMeta.
//
// A reader without the lock may have opened a file that becomes the spare and is overwritten while it is read. That takes two
// replacements, so it looks torn at most once or twice in a row.
func readMeta(dir fsys.Dir) (m Meta, err error) {
	for range 3 {
		var b []byte
		if b, err = readFile(dir, metaName, maxMetaBytes); err != nil {
			return Meta{}, err
		}
		if m, err = decodeMeta(b); !errors.Is(err, errTorn) {
			return m, err
		}
	}
	return m, err
}

// readFile reads a whole file, or limit+1 bytes of one that is longer than limit.
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
