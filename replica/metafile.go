package replica

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/replica/fsys"
)

// errUncertain is wrapped when it is not known which of two metadata the disk holds. The replica must stop.
var errUncertain = errors.New("not known whether it happened")

// writeMeta replaces the metadata of a replica by what Meta.encode made, all or nothing:
//
//  1. write and sync replica.meta.tmp
//  2. rename it to replica.meta: the commit point
//  3. sync the directory
//
// An error before the commit point leaves the old metadata in force. One after it wraps errUncertain.
func writeMeta(dir fsys.Dir, b []byte) error {
	if err := dir.Unlink(metaTempName); err != nil && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("remove old temporary metadata: %w", err)
	}
	if err := writeNew(dir, metaTempName, b); err != nil {
		_ = dir.Unlink(metaTempName) // best effort: gives a full disk its block back; the next replacement does it again
		return fmt.Errorf("write metadata: %w", err)
	}
	if err := dir.Rename(metaTempName, metaName); err != nil {
		return fmt.Errorf("%w: replace metadata: %w", errUncertain, err)
	}
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("%w: replace metadata: %w", errUncertain, err)
	}
	return nil
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
func readMeta(dir fsys.Dir) (Meta, error) {
	b, err := readFile(dir, metaName, maxMetaBytes)
	if err != nil {
		return Meta{}, err
	}
	return decodeMeta(b)
}

// readFile reads a whole file, or of one that is longer than a limit only one byte more than that.
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
