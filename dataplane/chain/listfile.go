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

// listStore replaces the list, even when the disk is full: a spare file reserves room for the next list. Open syncs the
// directory before the first replacement.
type listStore struct{ fsys.Replacer }

func newListStore(dir fsys.Dir) listStore {
	return listStore{fsys.Replacer{Dir: dir, Name: listName, Temp: listTempName, SpareBytes: listBytes}}
}

// replace replaces the list, all or nothing. After an error that wraps ErrUncertain, no list is written any longer.
func (s *listStore) replace(b []byte) error {
	if s.IsUncertain() {
		return ErrUncertain
	}
	err := s.Replace(b)
	if errors.Is(err, fsys.ErrUncertain) {
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return err
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

func unlinkIfAny(dir fsys.Dir, name string) error {
	if err := dir.Unlink(name); err != nil && !errors.Is(err, syscall.ENOENT) {
		return err
	}
	return nil
}
