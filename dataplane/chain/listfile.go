package chain

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

const (
	listName     = "layers.list"
	listTempName = "layers.list.tmp"
)

// listStore replaces the list, even when the disk is full: a spare file reserves room for the next list.
//
//	layers.list       the list in force
//	layers.list.tmp   the spare; the next list is written into its blocks. Its content is never read
//
// The steps are the ones of the replica's metadata. A listStore is not safe for concurrent use.
type listStore struct {
	dir fsys.Dir
	// uncertain: the names were exchanged, and it is unknown which of the two files a loss of power leaves as
	// layers.list. Then neither file may be written to.
	uncertain bool
}

// replace replaces the list, all or nothing:
//
//  1. write and sync layers.list.tmp: in place if it is a sound spare, otherwise as a new file
//  2. exchange its name with layers.list, or rename it where names cannot be exchanged: the commit point
//  3. sync the directory
//  4. create a spare if it is missing
//
// After an error before the commit point, the old list is in force. An error after it wraps ErrUncertain. Without a
// sync of the directory, a loss of power could undo the exchange and restore the spare as the list. So step 1 is safe
// only after the previous step 3. The sync of the directory in Open covers the replacement of an earlier process.
func (s *listStore) replace(b []byte) error {
	if s.uncertain {
		return ErrUncertain
	}
	if err := s.stage(b); err != nil {
		return fmt.Errorf("write %s: %w", listTempName, err)
	}
	s.uncertain = true
	err := s.dir.Exchange(listTempName, listName)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOENT) { // ENOENT: the first list
		err = s.dir.Rename(listTempName, listName)
	}
	if err == nil {
		err = s.dir.Sync()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	s.uncertain = false
	s.keepSpare()
	return nil
}

// stage durably writes b to layers.list.tmp.
func (s *listStore) stage(b []byte) error {
	if f := s.openSpare(); f != nil {
		err := f.WriteAt(b, 0)
		if err == nil {
			err = f.Sync()
		}
		return errors.Join(err, f.Close())
	}
	return s.makeTemp(b)
}

// makeTemp creates a new layers.list.tmp, which needs space.
func (s *listStore) makeTemp(b []byte) error {
	if err := unlinkIfAny(s.dir, listTempName); err != nil {
		return err
	}
	err := writeNew(s.dir, listTempName, b)
	if err != nil {
		_ = s.dir.Unlink(listTempName) // best effort: frees blocks of a full disk; the next replacement repeats it
	}
	return err
}

// openSpare opens the spare if a list can be written over it. For this, the spare must have the full size and all its
// blocks. It must not be the list itself, under another name or after a loss of power.
func (s *listStore) openSpare() fsys.File {
	f, err := s.dir.OpenFile(listTempName, fsys.ReadWrite)
	if err != nil {
		return nil
	}
	have, errSize := f.Size()
	allocated, errAllocated := f.AllocatedBytes()
	spare, errSpare := f.ID()
	inForce, errInForce := s.dir.Lookup(listName)
	if errors.Is(errInForce, syscall.ENOENT) {
		errInForce = nil
	}
	if errors.Join(errSize, errAllocated, errSpare, errInForce) != nil || have != listBytes || allocated < listBytes || spare == inForce {
		_ = f.Close() // nothing was written
		return nil
	}
	return f
}

// keepSpare creates the spare if it is missing. If the disk lacks the space, the next replacement tries again.
func (s *listStore) keepSpare() {
	if f := s.openSpare(); f != nil {
		_ = f.Close() // nothing was written
		return
	}
	_ = s.makeTemp(make([]byte, listBytes))
}

// readList reads the list in force.
func readList(dir fsys.Dir, uid string) (list, error) {
	f, err := dir.OpenFile(listName, fsys.ReadOnly)
	if err != nil {
		if errors.Is(err, syscall.ENOENT) {
			return list{}, fmt.Errorf("%s: %w: %w", listName, ErrMissing, err)
		}
		return list{}, fmt.Errorf("%s: %w", listName, err)
	}
	defer func() { _ = f.Close() }() // only read
	size, err := f.Size()
	if err != nil {
		return list{}, err
	}
	b := make([]byte, min(size, listBytes+1))
	if len(b) > 0 {
		if err := f.ReadAt(b, 0); err != nil {
			return list{}, fmt.Errorf("%s: %w", listName, err)
		}
	}
	return decodeList(b, uid)
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

func unlinkIfAny(dir fsys.Dir, name string) error {
	if err := dir.Unlink(name); err != nil && !errors.Is(err, syscall.ENOENT) {
		return err
	}
	return nil
}
